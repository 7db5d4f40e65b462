# SPDX-License-Identifier: Apache-2.0
# The names of the hub out of a run, whose tensors have the names of the model in memory; and the way back.
src=$FIXTURES/hub_olmoe
ckpt convert "$src/run" out --to hf --config "$src/hub" 2>&1 | sed 's/ in [0-9.]* m*s ([^)]*)//'
ckpt diff --tol 0.0003 "$src/hub" out
echo "-- a file of weights that has them already stays"
ckpt convert -q "$src/hub" hub.pt --to torch && ckpt convert -q hub.pt again --to hf --config "$src/hub" && ckpt diff "$src/hub" again
echo "-- there and back, by name"
ckpt convert -q "$src/hub" memory.safetensors --map hf:packed && ckpt ls memory.safetensors | grep experts
ckpt convert -q memory.safetensors back --to hf --config "$src/hub" && ckpt diff "$src/hub" back
echo "-- without its configuration nothing says which model it is; the advice leads to the names"
ckpt convert -q memory.safetensors packed --to hf
ckpt convert -q memory.safetensors strict --to hf --strict || echo "status $?"
ckpt convert -q memory.safetensors strict --to hf --strict --config "$src/hub" && ckpt diff "$src/hub" strict
sed 's/"olmoe"/"of_nobody"/; s/Olmoe/Nobodys/' "$src/hub/config.json" >config.json
ckpt convert -q memory.safetensors strict --to hf -f --strict || echo "status $?"
echo "-- names of parts, and classes of one type"
cat >make.py <<'EOP'
import json, os, struct
def model(path, names, **config):
    os.makedirs(path)
    head = {n: {'dtype': 'F32', 'shape': [2, 2], 'data_offsets': [16 * i, 16 * i + 16]} for i, n in enumerate(names)}
    text = json.dumps(head).encode()
    with open(path + '/weights.safetensors', 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + struct.pack('<%df' % (4 * len(names)), *range(4 * len(names))))
    json.dump(config, open(path + '/config.json', 'w'))
inner = ['language_model.embed_tokens.weight', 'language_model.layers.0.mlp.up_proj.weight', 'vision_tower.post_layernorm.weight',
         'multi_modal_projector.linear_1.weight']
model('llava', ['model.' + n for n in inner] + ['lm_head.weight'], model_type='llava', architectures=['LlavaForConditionalGeneration'])
model('bare', inner, model_type='llava', architectures=['LlavaModel'])
model('vl', ['model.language_model.norm.weight', 'model.visual.blocks.0.norm1.weight', 'lm_head.weight'], model_type='qwen2_5_vl',
      architectures=['Qwen2_5_VLForConditionalGeneration'])
model('neox', ['gpt_neox.embed_in.weight', 'lm_head.weight'], model_type='gpt_neox', architectures=['GPTNeoXForCausalLM'])
model('own', ['model.language_model.norm.weight'], model_type='my_own', architectures=['MyOwnModel'])
EOP
python3 make.py
for m in llava bare vl neox own; do
    ckpt convert -q $m/weights.safetensors $m.hub --to hf --config $m && ckpt ls $m.hub
done
