# SPDX-License-Identifier: Apache-2.0
# Defaults of Qwen3-Next: those of transformers where config.json lacks a field, and those of llama.cpp where GGUF lacks a key.
cat >make.py <<'END'
import json, os, struct, sys

def folder():
    """A model of two layers with heads of 2."""
    t = {'model.embed_tokens': (4, 4), 'lm_head': (4, 4), 'model.norm': (4,)}
    for i in range(2):
        t.update({'model.layers.%d.%s' % (i, k): v for k, v in {
            'input_layernorm': (4,), 'post_attention_layernorm': (4,), 'mlp.gate': (1, 4), 'mlp.shared_expert_gate': (1, 4)}.items()})
        for e in 'experts.0', 'shared_expert':
            t.update({'model.layers.%d.mlp.%s.%s_proj' % (i, e, k): (4, 4) for k in ('gate', 'up', 'down')})
    t.update({'model.layers.0.linear_attn.' + k: v for k, v in {
        'in_proj_qkvz': (8, 4), 'in_proj_ba': (2, 4), 'conv1d': (6, 1, 4), 'dt_bias': (1,), 'A_log': (1,), 'norm': (2,), 'out_proj': (4, 2)}.items()})
    t.update({'model.layers.1.self_attn.' + k: v for k, v in {
        'q_proj': (16, 4), 'k_proj': (4, 4), 'v_proj': (4, 4), 'o_proj': (4, 8), 'q_norm': (2,), 'k_norm': (2,)}.items()})
    head, at = {}, 0
    for name, shape in t.items():
        n = 4
        for k in shape:
            n *= k
        head[name if name.endswith(('A_log', 'dt_bias')) else name + '.weight'] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [at, at + n]}
        at += n
    text = json.dumps(head).encode()
    text += b' ' * (-len(text) % 8)
    os.makedirs('model')
    open('model/model.safetensors', 'wb').write(len(text).to_bytes(8, 'little') + text + bytes(at))
    json.dump({'architectures': ['Qwen3NextForCausalLM'], 'model_type': 'qwen3_next', 'num_hidden_layers': 2, 'full_attention_interval': 2,
               'hidden_size': 4, 'intermediate_size': 4, 'vocab_size': 4, 'max_position_embeddings': 8, 'num_attention_heads': 4, 'head_dim': 2,
               'num_experts': 1, 'num_experts_per_tok': 1, 'moe_intermediate_size': 4, 'shared_expert_intermediate_size': 4,
               'linear_num_key_heads': 1, 'linear_num_value_heads': 1, 'linear_key_head_dim': 2, 'linear_value_head_dim': 2,
               'linear_conv_kernel_dim': 4, 'rms_norm_eps': 1e-6, 'tie_word_embeddings': False, 'partial_rotary_factor': 0.5},
              open('model/config.json', 'w'))

def other(path, to, key):
    """The file with another name of a key, which programs then lack."""
    raw, name = open(path, 'rb').read(), b'qwen3next.' + key.encode()
    assert raw.count(struct.pack('<Q', len(name)) + name) == 1
    open(to, 'wb').write(raw.replace(name, b'general.x' + b'y' * (len(name) - 9)))

folder() if len(sys.argv) == 1 else other(*sys.argv[1:])
END
python3 make.py
ckpt convert -q model a.gguf 2>/dev/null
ckpt convert -q a.gguf back --to hf 2>/dev/null && grep -E 'partial_rotary|num_key_value' back/config.json
python3 make.py a.gguf b.gguf rope.dimension_count
ckpt convert -q b.gguf whole --to hf 2>/dev/null && grep partial_rotary whole/config.json
# without head_dim, transformers makes heads of 256, which are not those of the tensors
sed -i 's/"head_dim": 2, //' model/config.json
ckpt convert -q model c.gguf || echo "status $?"
