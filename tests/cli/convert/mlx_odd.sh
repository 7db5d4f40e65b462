# SPDX-License-Identifier: Apache-2.0
# Folders of MLX with odd shapes and settings: blocks beyond the end of the words, stacked weights, sizes that overflow.
python3 - <<'EOP'
import json, os, random, struct


def save(path, quantization, **tensors):
    os.makedirs(path)
    header, data = {'__metadata__': {'format': 'mlx'}}, b''
    for end, (dtype, shape, part) in tensors.items():
        header['x.' + end] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path + '/model.safetensors', 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)
    json.dump({'torch_dtype': 'bfloat16', 'quantization': quantization}, open(path + '/config.json', 'w'))


random.seed(1)
w = bytes(random.randrange(256) for _ in range(24))
four, eight, half = {'group_size': 16, 'bits': 4, 'mode': 'nvfp4'}, ('U8', [1], b'8'), ('F16', [1, 1], b'\0\x3c')
save('stacked', four, weight=('U32', [3, 1, 2], w), scales=('U8', [3, 1, 1], b'8@8'))
save('one', four, weight=('U32', [2], w[:8]), scales=eight)
save('three', {'group_size': 32, 'bits': 3}, weight=('U32', [1, 3], w[:12]), scales=half, biases=half)
save('empty', four, weight=('U32', [0, 2], b''), scales=('U8', [0, 1], b''))
save('none', four, weight=('U32', [2, 0], b''), scales=('U8', [2, 0], b''))
save('scalar', four, weight=('U32', [], w[:4]), scales=('U8', [], b'8'))
save('huge', dict(four, group_size=2**62), weight=('U32', [2], w[:8]), scales=eight)
save('negative', dict(four, group_size=-16), weight=('U32', [2], w[:8]), scales=eight)
save('bits', dict(four, bits=2**63), weight=('U32', [2], w[:8]), scales=eight)
save('text', dict(four, group_size='16'), weight=('U32', [2], w[:8]), scales=eight)
save('wide', four, weight=('U32', [2], w[:8]), scales=('U8', [1, 1], b'8'))
EOP
for f in stacked one three empty none scalar huge negative bits text wide; do
    echo "== $f"
    ckpt convert -q "$f" "$f.out" --to hf --dtype f32 2>&1 | grep -v 'warning: .*MLX wrote'
    [ ! -d "$f.out" ] || ckpt cat -q "$f.out" x.weight
done
