# SPDX-License-Identifier: Apache-2.0
# Tables that are no linear layers stay unquantized: quantize_names.txt has the names of all matrices of transformers 5.23's
# classes whose modules are not nn.Linear (layers 0 only, without Conv1D, which the next lines show to be refused).  Experts in
# one tensor stay floats, too, and are named.
python3 - "$FIXTURES/../cli/convert/quantize_names.txt" <<'EOF'
import json, struct, sys
names = open(sys.argv[1]).read().split() + ['model.layers.0.mlp.up_proj.weight']
head = {n: {'dtype': 'F32', 'shape': [16, 16], 'data_offsets': [1024 * i, 1024 * (i + 1)]} for i, n in enumerate(names)}
head['model.layers.0.mlp.experts.up_proj'] = {'dtype': 'F32', 'shape': [2, 16, 16], 'data_offsets': [1024 * len(names), 1024 * len(names) + 2048]}
text = json.dumps(head).encode()
open('m.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + bytes(1024 * len(names) + 2048))
EOF
for type in llama gpt2 clvp; do
    echo "{\"model_type\": \"$type\"}" >$type.json
    ckpt convert m.safetensors $type --to hf --quantize fp8-channel --config $type.json | grep -v wrote
done
ckpt ls llama | grep 'F8_\|_scale'
