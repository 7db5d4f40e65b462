# SPDX-License-Identifier: Apache-2.0
# Layers of one kind of attention have the same tensors in Qwen3-Next, and config.json says which layers are of which kind.
cat >make.py <<'END'
import json, os, sys

folder, n, full, lacks, config = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3]), sys.argv[4], eval(sys.argv[5])
linear = ['in_proj_qkvz.weight', 'in_proj_ba.weight', 'conv1d.weight', 'dt_bias', 'A_log', 'norm.weight', 'out_proj.weight']
names = ['model.embed_tokens.weight', 'model.norm.weight', 'lm_head.weight']
for i in range(n):
    own = ['self_attn.%s.weight' % k for k in 'q_proj k_proj v_proj o_proj q_norm k_norm'.split()] if i in full else ['linear_attn.' + k for k in linear]
    own += ['input_layernorm.weight', 'post_attention_layernorm.weight', 'mlp.gate.weight', 'mlp.shared_expert_gate.weight']
    own += ['mlp.%s.%s_proj.weight' % (e, k) for e in ('experts.0', 'experts.1', 'shared_expert') for k in ('gate', 'up', 'down')]
    names += ['model.layers.%d.%s' % (i, k) for k in own]
names = [k for k in names if k != 'model.layers.' + lacks]
head = {k: {'dtype': 'F32', 'shape': [1, 1], 'data_offsets': [4 * i, 4 * i + 4]} for i, k in enumerate(names)}
text = json.dumps(head).encode()
text += b' ' * (-len(text) % 8)
os.makedirs(folder)
open(folder + '/model.safetensors', 'wb').write(len(text).to_bytes(8, 'little') + text + bytes(4 * len(names)))
config = dict({'model_type': 'qwen3_next', 'architectures': ['Qwen3NextForCausalLM'], 'num_hidden_layers': n, 'num_experts': 2,
               'tie_word_embeddings': False, 'decoder_sparse_step': 1, 'mlp_only_layers': []}, **config)
json.dump(config, open(folder + '/config.json', 'w'))
END
case=0
while IFS='|' read -r n full lacks config; do
    case=$((case + 1))
    python3 make.py $case "$n" "$full" "$lacks" "$config"
    echo "-- $n layers, full attention in $full, without $lacks: $config"
    ckpt convert -q $case out.safetensors --force 2>&1
    echo "status $?"
done <<'END'
4|[3]|nothing|{}
4|[3]|0.linear_attn.A_log|{}
8|[3, 7]|7.self_attn.q_norm.weight|{}
4|[3]|2.mlp.shared_expert_gate.weight|{'layer_types': ['linear_attention'] * 3 + ['full_attention']}
4|[3]|nothing|{'layer_types': ['full_attention'] + ['linear_attention'] * 3}
4|[3]|nothing|{'layer_types': ['linear_attention'] * 3 + ['full_attention'] * 3}
4|[1, 3]|nothing|{}
4|[1, 3]|nothing|{'full_attention_interval': 2}
4|[1, 3]|nothing|{'full_attention_interval': 0}
4|[1, 3]|nothing|{'full_attention_interval': -1}
4|[0]|nothing|{'mlp_only_layers': [1]}
4|[3]|3.self_attn.q_proj.weight|{}
4|[3]|3.self_attn.o_proj.weight|{}
4|[3]|3.self_attn.q_norm.weight|{}
4|[3]|3.self_attn.q_norm.weight|{'layer_types': ['linear_attention'] * 3 + ['full_attention']}
1|[0]|0.self_attn.q_norm.weight|{'layer_types': ['full_attention']}
1|[]|0.linear_attn.A_log|{}
1|[]|0.linear_attn.conv1d.weight|{'layer_types': ['linear_attention']}
END
