# SPDX-License-Identifier: Apache-2.0
# Numbers that a layout map computes, such as GGUF's -exp(A_log), differ by a rounding; copied numbers may not.
cat >make.py <<'END'
import json, os, random, struct, sys

t = {'model.embed_tokens': (4, 4), 'lm_head': (4, 4), 'model.norm': (4,)}
for i in range(2):
    t.update({'model.layers.%d.%s' % (i, k): v for k, v in {
        'input_layernorm': (4,), 'post_attention_layernorm': (4,), 'mlp.gate': (1, 4), 'mlp.shared_expert_gate': (1, 4)}.items()})
    for e in 'experts.0', 'shared_expert':
        t.update({'model.layers.%d.mlp.%s.%s_proj' % (i, e, k): (4, 4) for k in ('gate', 'up', 'down')})
t.update({'model.layers.0.linear_attn.' + k: v for k, v in {
    'in_proj_qkvz': (32, 4), 'in_proj_ba': (8, 4), 'conv1d': (24, 1, 4), 'dt_bias': (4,), 'A_log': (4,), 'norm': (2,), 'out_proj': (4, 8)}.items()})
t.update({'model.layers.1.self_attn.' + k: v for k, v in {
    'q_proj': (16, 4), 'k_proj': (4, 4), 'v_proj': (4, 4), 'o_proj': (4, 8), 'q_norm': (2,), 'k_norm': (2,)}.items()})
change, by = sys.argv[2:4] if len(sys.argv) > 2 else ('', 0)
random.seed(7)
head, body = {}, b''
for name, shape in t.items():
    n = 1
    for k in shape:
        n *= k
    name += '' if name.endswith(('A_log', 'dt_bias')) else '.weight'
    data = [struct.unpack('<f', struct.pack('<f', random.uniform(-2, 2)))[0] for _ in range(n)]
    if name == change:
        data[0] += float(by)
    head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(body), len(body) + 4 * n]}
    body += struct.pack('<%df' % n, *data)
text = json.dumps(head).encode()
text += b' ' * (-len(text) % 8)
os.makedirs(sys.argv[1])
open(sys.argv[1] + '/model.safetensors', 'wb').write(len(text).to_bytes(8, 'little') + text + body)
json.dump({'architectures': ['Qwen3NextForCausalLM'], 'model_type': 'qwen3_next', 'num_hidden_layers': 2, 'full_attention_interval': 2,
           'hidden_size': 4, 'intermediate_size': 4, 'vocab_size': 4, 'max_position_embeddings': 8, 'num_attention_heads': 4, 'head_dim': 2,
           'num_key_value_heads': 2, 'num_experts': 1, 'num_experts_per_tok': 1, 'moe_intermediate_size': 4, 'shared_expert_intermediate_size': 4,
           'linear_num_key_heads': 4, 'linear_num_value_heads': 4, 'linear_key_head_dim': 2, 'linear_value_head_dim': 2,
           'linear_conv_kernel_dim': 4, 'rms_norm_eps': 1e-6, 'tie_word_embeddings': False, 'partial_rotary_factor': 0.5},
          open(sys.argv[1] + '/config.json', 'w'))
END
python3 make.py model
ckpt convert -q model a.gguf
for how in 'model a.gguf' 'a.gguf model' 'a.gguf a.gguf'; do
    # shellcheck disable=SC2086
    ckpt diff $how
    echo "$how: status $?"
done
ckpt diff --json model a.gguf 2>&1 | grep -E 'rounded|equal'
case=0
while read -r name by; do
    case=$((case + 1))
    python3 make.py $case "$name" "$by"
    echo "-- $name + $by"
    ckpt diff $case a.gguf 2>/dev/null
    echo "status $?"
done <<'END'
model.layers.0.linear_attn.A_log 1e-3
model.norm.weight 1e-3
model.layers.1.self_attn.q_proj.weight 1e-6
END
ckpt convert -q model bf16 --to hf --dtype bf16
ckpt convert -q bf16 b.gguf --dtype f32
ckpt diff bf16 b.gguf
