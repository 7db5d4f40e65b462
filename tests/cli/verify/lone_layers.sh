# SPDX-License-Identifier: Apache-2.0
# A tensor that is missing in all layers: the names of the model_type show it.
cat >make.py <<'END'
import json, os, sys

QKVO = ['self_attn.%s_proj.weight' % k for k in 'qkvo']
MLP = ['mlp.%s_proj.weight' % k for k in ('gate', 'up', 'down')]
NORMS = ['input_layernorm.weight', 'post_attention_layernorm.weight']
MLA = ['self_attn.%s.weight' % k for k in ('q_proj', 'kv_a_proj_with_mqa', 'kv_a_layernorm', 'kv_b_proj', 'o_proj')]
EXPERTS = ['mlp.gate.weight'] + ['mlp.experts.%d.%s_proj.weight' % (e, k) for e in range(2) for k in ('gate', 'up', 'down')]
GPT2 = ['ln_1.weight', 'ln_2.weight', 'attn.c_attn.weight', 'attn.c_proj.weight', 'mlp.c_fc.weight', 'mlp.c_proj.weight']
JAMBA = ['input_layernorm.weight', 'pre_ff_layernorm.weight'] + ['feed_forward.%s_proj.weight' % k for k in ('gate', 'up', 'down')]
MAMBA = ['mamba.%s' % k for k in ('A_log', 'D', 'conv1d.weight', 'in_proj.weight', 'out_proj.weight', 'x_proj.weight', 'dt_proj.weight')]
models = {
    'deepseek_v3': ('model.layers', [MLA + NORMS + MLP] + [MLA + NORMS + EXPERTS] * 2, {'first_k_dense_replace': 1, 'n_routed_experts': 2}),
    'qwen2': ('model.layers', [QKVO + NORMS + MLP] * 2, {}),
    'olmo': ('model.layers', [QKVO + MLP] * 2, {}),
    'gpt2': ('transformer.h', [GPT2], {'n_layer': 1}),
    'jamba': ('model.layers', [JAMBA + QKVO] + [JAMBA + MAMBA] * 2, {}),
}
folder, kind, lacks = sys.argv[1:]
prefix, layers, config = models[kind]
outer = ['transformer.%s.weight' % k for k in ('wte', 'wpe', 'ln_f')] if kind == 'gpt2' else ['model.embed_tokens.weight', 'model.norm.weight', 'lm_head.weight']
names = outer + ['%s.%d.%s' % (prefix, i, k) for i, own in enumerate(layers) for k in own]
names = [k for k in names if not (lacks and k.endswith(lacks))]
head = {k: {'dtype': 'F32', 'shape': [1, 1], 'data_offsets': [4 * i, 4 * i + 4]} for i, k in enumerate(names)}
text = json.dumps(head).encode()
text += b' ' * (-len(text) % 8)
os.makedirs(folder)
open(folder + '/model.safetensors', 'wb').write(len(text).to_bytes(8, 'little') + text + bytes(4 * len(names)))
json.dump({'model_type': kind, 'num_hidden_layers': len(layers), 'tie_word_embeddings': kind == 'gpt2', **config}, open(folder + '/config.json', 'w'))
END
case=0
while read -r kind lacks; do
    case=$((case + 1))
    python3 make.py $case "$kind" "$lacks"
    echo "-- $kind without ${lacks:-nothing}"
    ckpt convert -q $case out.safetensors --force 2>&1
    echo "status $?"
done <<'END'
deepseek_v3
qwen2
qwen2 .mlp.up_proj.weight
qwen2 q_proj.weight
olmo
olmo q_proj.weight
olmo .mlp.down_proj.weight
gpt2
gpt2 c_fc.weight
jamba
END
