# SPDX-License-Identifier: Apache-2.0
# Gemma 2: norms around 0 become norms around 1 without a second rounding, and what llama.cpp always computes is checked.
cat > make.py <<'PY'
import json, struct
W, H = 8, 4
layer = {'self_attn.q_proj': (8, W), 'self_attn.k_proj': (4, W), 'self_attn.v_proj': (4, W), 'self_attn.o_proj': (W, 8),
         'mlp.gate_proj': (4, W), 'mlp.up_proj': (4, W), 'mlp.down_proj': (W, 4), 'input_layernorm': (W,),
         'post_attention_layernorm': (W,), 'pre_feedforward_layernorm': (W,), 'post_feedforward_layernorm': (W,)}
shapes = {'model.embed_tokens.weight': (4, W), 'model.norm.weight': (W,)}
for i in range(2):
    shapes.update({'model.layers.%d.%s.weight' % (i, k): v for k, v in layer.items()})
head, data = {}, b''
for name, shape in shapes.items():
    n = shape[0] * (shape[1] if len(shape) > 1 else 1)
    # bf16: 2^-7 + 2^-14 and others, of which the sum with 1 has more digits
    part = b''.join(struct.pack('<H', 0x3c01 + i) for i in range(n))
    head[name] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [len(data), len(data) + len(part)]}
    data += part
text = json.dumps(head).encode()
with open('hf/model.safetensors', 'wb') as f:
    f.write(struct.pack('<Q', len(text)) + text + data)
config = {'model_type': 'gemma2', 'architectures': ['Gemma2ForCausalLM'], 'hidden_size': W, 'intermediate_size': 4, 'head_dim': H,
          'num_hidden_layers': 2, 'num_attention_heads': 2, 'num_key_value_heads': 1, 'max_position_embeddings': 64,
          'query_pre_attn_scalar': H, 'attn_logit_softcapping': 50.0, 'final_logit_softcapping': 30.0, 'sliding_window': 16,
          'rms_norm_eps': 1e-6, 'rope_theta': 10000.0, 'vocab_size': 4, 'layer_types': ['sliding_attention', 'full_attention']}
with open('hf/config.json', 'w') as f:
    json.dump(config, f)
PY
mkdir hf && python3 make.py
ckpt convert -q hf x.gguf 2>/dev/null && ckpt cat x.gguf output_norm.weight
ckpt convert -q x.gguf back --to hf --dtype bf16 2>/dev/null && ckpt diff hf back
echo '# other models'
try() {
    sed "$1" hf/config.json >other.json && ckpt convert -q hf y.gguf --config other.json
}
try 's/"query_pre_attn_scalar": 4/"query_pre_attn_scalar": 8/'
try 's/\["sliding_attention", /["full_attention", /'
try 's/10000.0/20000.0/'
