# SPDX-License-Identifier: Apache-2.0
# Values at the ends of floats, empty matrices, and names that collide: finite numbers again, or an error by name.
echo '{"model_type": "llama"}' >config.json
python3 - <<'EOF'
import json, struct
def write(path, tensors):
    head, data = {}, b''
    for name, (shape, values) in tensors.items():
        raw = struct.pack('<%df' % len(values), *values)
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + data)
P, ends = 'model.layers.0.mlp.', [1.25e38, -1.25e38] * 64 + [1e-45, -0.0] * 64 + [0.0] * 128 + [1.25e38] * 128
write('ends', {P + 'up_proj.weight': ([4, 128], ends), P + 'down_proj.weight': ([0, 128], []), P + 'gate_proj.weight': ([128, 0], [])})
write('nan', {P + 'up_proj.weight': ([2, 128], [1.0] * 255 + [float('nan')])})
write('large', {P + 'up_proj.weight': ([1, 128], [-3.4e38] * 128)})
write('exists', {P + 'up_proj.weight': ([1, 128], [1.0] * 128), P + 'up_proj.weight_packed': ([1], [1.0])})
write('quote', {P + 'up_proj.weight': ([1, 128], [1.0] * 128), 'a"b.weight': ([1, 100], [1.0] * 100)})
EOF
for form in w4a16 nvfp4a16 mxfp4a16 mlx4 fp8-channel; do
    for file in ends nan large exists quote; do
        rm -rf out back
        ckpt convert -q $file out --config config.json --to hf --quantize $form 2>&1 | grep -v 'warning: names' | sed "s/^/$form $file: /"
    done
    ckpt convert -q ends out --config config.json --to hf --quantize $form --force 2>/dev/null
    ckpt convert out back --to hf --dtype fp32 2>/dev/null | grep -o 'no NaN or infinity'
done
