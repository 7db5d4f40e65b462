# SPDX-License-Identifier: Apache-2.0
# From GGUF to a folder: config.json names the biases that there are; transformers leaves out others.
cp -r "$FIXTURES"/gguf_llama_deep/hf in; chmod -R u+w in
python3 - in/model.safetensors <<'EOF'
import json
import struct
import sys

with open(sys.argv[1], 'rb') as f:
    n = struct.unpack('<Q', f.read(8))[0]
    head, data = json.loads(f.read(n)), f.read()
parts = ('q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj')
for name in [k for k in head if k.endswith('.weight') and k.split('.')[-2] in parts]:
    rows, size = head[name]['shape'][0], {'F32': 4, 'F16': 2, 'BF16': 2}[head[name]['dtype']]
    head[name[:-6] + 'bias'] = {'dtype': head[name]['dtype'], 'shape': [rows],
                                'data_offsets': [len(data), len(data) + rows * size]}
    data += bytes(rows * size)
text = json.dumps(head).encode()
with open(sys.argv[1], 'wb') as f:
    f.write(struct.pack('<Q', len(text)) + text + data)
EOF
ckpt convert -q in with.gguf && ckpt convert -q with.gguf with --to hf; grep bias with/config.json
ckpt convert -q "$FIXTURES"/gguf_llama_deep/hf without.gguf && ckpt convert -q without.gguf without --to hf
grep bias without/config.json || echo none
