# SPDX-License-Identifier: Apache-2.0
# Models in PEFT training whose adapter is not LoRA: their names are of no loader, and a merge says what it cannot do.
cat >make.py <<'EOP'
import json, struct
def write(path, names):
    head = {n: {'dtype': 'F32', 'shape': [2], 'data_offsets': [8 * i, 8 * i + 8]} for i, n in enumerate(names)}
    text = json.dumps(head).encode()
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + struct.pack('<2f', 1, 2) * len(names))
k = 'base_model.model.model.layers.0.self_attn.k_proj.'
write('ia3.safetensors', [k + 'base_layer.weight', k + 'ia3_l.default', 'base_model.model.model.norm.weight'])
write('loha.safetensors', [k + 'base_layer.weight', k + 'hada_w1_a.default', k + 'hada_w1_b.default'])
write('prompt.safetensors', ['base_model.model.norm.weight', 'prompt_encoder.default.embedding.weight'])
write('base.safetensors', ['model.layers.0.self_attn.k_proj.weight', 'model.norm.weight'])
json.dump({'peft_type': 'IA3', 'target_modules': ['k_proj'], 'feedforward_modules': []}, open('ia3.json', 'w'))
EOP
python3 make.py
for kind in ia3 loha prompt; do
    ckpt convert -q $kind.safetensors $kind --to hf && ls $kind
    ckpt convert -q $kind.safetensors x --to hf --strict || echo "status $?"
done
ckpt convert -q base.safetensors y --to hf --adapter ia3.safetensors || echo "status $?"
ckpt convert -q base.safetensors y --to hf --adapter ia3.safetensors --adapter-config ia3.json || echo "status $?"
echo "-- another target keeps the names"
ckpt convert -q ia3.safetensors ia3.npz && ckpt diff ia3.safetensors ia3.npz
