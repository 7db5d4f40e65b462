# SPDX-License-Identifier: Apache-2.0
# Sharded safetensors of torch's HuggingFaceStorageWriter: whole tensors out of the ranks' pieces, whichever file is named; and no tensor
# that is not all there.
cat >make.py <<'EOF'
import json, os, struct, sys


def write(path, boxes, info=None, **more):
    """boxes: name -> (where it begins, shape, first value)."""
    header, data = {}, b''
    places = {n: {'saved_offsets': at} for n, (at, _, _) in boxes.items()} if info is None else info
    header['__metadata__'] = dict({'format': 'pt', 'DCP_VERSION': '1.0', 'DCP_SHARDING_INFO': json.dumps(places)}, **more)
    for name, (_, shape, first) in boxes.items():
        n = 1
        for k in shape:
            n *= k
        header[name] = {'dtype': 'I16', 'shape': shape, 'data_offsets': [len(data), len(data) + 2 * n]}
        data += struct.pack('<%dh' % n, *range(first, first + n))
    text = json.dumps(header).encode()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)


A = {'w': ([0, 0], [2, 2], 0), 'n': ([0], [2], 10), 'grid': ([0, 0], [2, 1], 30)}
B = {'w': ([2, 0], [1, 2], 4), 'grid': ([0, 1], [2, 1], 40), 'none': ([0], [0], 0)}
C = {'n': ([2], [1], 12)}


def folder(name, a=A, b=B, c=C, **more):
    write(name + '/shard-00001-model-00001-of-00001.safetensors', a, **more)
    write(name + '/shard-00002-model-00001-of-00001.safetensors', b)
    if c:
        write(name + '/shard-00003-model-00001-of-00001.safetensors', c)


folder('whole', note='kept')
folder('hole', c={'n': ([3], [1], 12)})
folder('overlap', c={'n': ([1], [1], 12)})
folder('unplaced', info={'w': {'saved_offsets': [0, 0]}})
folder('absent', info=dict({n: {'saved_offsets': at} for n, (at, _, _) in A.items()}, x={'saved_offsets': [0]}))
folder('axes', info=dict({n: {'saved_offsets': at} for n, (at, _, _) in A.items()}, w={'saved_offsets': [0]}))
folder('negative', c={'n': ([-1], [1], 12)})
folder('huge', c={'n': ([9007199254740991], [1], 12)})
folder('rank', c=None)
os.rename('rank/shard-00002-model-00001-of-00001.safetensors', 'rank/shard-00003-model-00001-of-00001.safetensors')
folder('two')
os.rename('two/shard-00003-model-00001-of-00001.safetensors', 'two/shard-00003-model-00001-of-00002.safetensors')
folder('part')
for r in 1, 2, 3:
    os.rename('part/shard-0000%d-model-00001-of-00001.safetensors' % r, 'part/shard-0000%d-model-00001-of-00002.safetensors' % r)
folder('kind')
write('kind/shard-00003-model-00001-of-00001.safetensors', {'n': ([2, 0], [1, 1], 12)})
folder('text', info='x')
EOF
python3 make.py
ckpt info whole
for name in w n grid none; do
    ckpt cat whole $name
done
ckpt ls whole/shard-00002-model-00001-of-00001.safetensors
ckpt convert whole out.safetensors
ckpt info out.safetensors
ckpt diff out.safetensors whole
for bad in hole overlap unplaced absent axes negative huge rank two part kind text; do
    ckpt convert $bad bad.safetensors
    echo "$bad: $?"
done
ckpt verify hole
echo "verify: $?"
ls
