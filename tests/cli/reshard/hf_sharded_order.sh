# SPDX-License-Identifier: Apache-2.0
# DCP_SHARDING_INFO holds the order of the model, unless torch sorted by size, or several lists are parts of it.
cat >make.py <<'EOP'
import json, os, struct


def folder(name, *files):
    """files: (rank, number, of, {tensor: rows}, info?); each row has two numbers."""
    os.mkdir(name)
    for rank, number, of, tensors, info in files:
        header, at = {}, 0
        for t in sorted(tensors):
            header[t] = {'dtype': 'F32', 'shape': [tensors[t], 2], 'data_offsets': [at, at + 8 * tensors[t]]}
            at += 8 * tensors[t]
        if info:
            header['__metadata__'] = {'DCP_SHARDING_INFO': json.dumps({t: {'saved_offsets': [0, 0]} for t in tensors})}
        text = json.dumps(header).encode()
        with open('%s/shard-%05d-model-%05d-of-%05d.safetensors' % (name, rank, number, of), 'wb') as f:
            f.write(struct.pack('<Q', len(text)) + text + struct.pack('<%df' % (at // 4), *range(at // 4)))


folder('model', (1, 1, 1, {'wte': 5, 'b.w': 2, 'a.w': 3}, True))
folder('even', (1, 1, 1, {'wte': 3, 'b.w': 3, 'a.w': 3}, True))
folder('by_size', (1, 1, 1, {'b.w': 2, 'a.w': 3, 'wte': 5}, True))
folder('shared', (1, 1, 1, {'wte': 5}, True), (2, 1, 1, {'b.w': 2, 'a.w': 3}, True))
folder('files', (1, 1, 2, {'wte': 5}, True), (1, 2, 2, {'b.w': 2, 'a.w': 3}, True))
folder('silent', (1, 1, 1, {'wte': 5, 'b.w': 2, 'a.w': 3}, False))
EOP
python3 make.py
for f in model even by_size shared files silent; do
    echo "-- $f"
    if ckpt reshard -q $f $f.zero --world 1 --stage 1 2>err; then
        python3 - $f.zero/global_step0/mp_rank_00_model_states.pt <<'EOP'
import re, sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
data = z.read(next(n for n in z.namelist() if n.endswith('data.pkl')))
at = data.index(b'param_shapes')
print(re.findall(rb'wte|[ab]\.w', data[at:])[:3])
EOP
    else
        sed 's/; write the names.*//' err
    fi
done
ckpt reshard -q files stored --world 1 --stage 1 --order stored && echo stored
echo "-- what we write keeps it, where the source has it; else it is none"
src=$FIXTURES/z2_bf16_w2_aligned/ckpt
ckpt convert -q "$src" kept --to hf-sharded --world 3 --max-shard-size 0
ckpt reshard kept kept.zero --world 2 --stage 2 2>&1 | grep -o 'in the order[^;]*'
ckpt convert -q "$src" sorted.safetensors
ckpt convert -q sorted.safetensors sorted --to hf-sharded --world 3 --max-shard-size 0
ckpt reshard sorted sorted.zero --world 2 --stage 2 2>&1 | grep -o ': its [^;]*'
