# SPDX-License-Identifier: Apache-2.0
# Sizes of 0 and types of layers that no model has: refused with the key, not copied into the output.
cat >make.py <<'END'
import json, os, sys

folder, n, config = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])
linear = ['in_proj_qkvz.weight', 'in_proj_ba.weight', 'conv1d.weight', 'dt_bias', 'A_log', 'norm.weight', 'out_proj.weight']
names = ['model.embed_tokens.weight', 'model.norm.weight', 'lm_head.weight']
for i in range(n):
    own = ['self_attn.%s.weight' % k for k in 'q_proj k_proj v_proj o_proj q_norm k_norm'.split()] if i else ['linear_attn.' + k for k in linear]
    own += ['input_layernorm.weight', 'post_attention_layernorm.weight', 'mlp.gate.weight', 'mlp.shared_expert_gate.weight']
    own += ['mlp.%s.%s_proj.weight' % (e, k) for e in ('experts.0', 'shared_expert') for k in ('gate', 'up', 'down')]
    names += ['model.layers.%d.%s' % (i, k) for k in own]
head = {k: {'dtype': 'F32', 'shape': [1, 1], 'data_offsets': [4 * i, 4 * i + 4]} for i, k in enumerate(names)}
text = json.dumps(head).encode()
text += b' ' * (-len(text) % 8)
os.makedirs(folder)
open(folder + '/model.safetensors', 'wb').write(len(text).to_bytes(8, 'little') + text + bytes(4 * len(names)))
sizes = 'hidden_size num_attention_heads num_key_value_heads head_dim linear_num_key_heads linear_num_value_heads num_experts'.split()
config = dict({'model_type': 'qwen3_next', 'num_hidden_layers': n, 'full_attention_interval': 2, 'tie_word_embeddings': False, 'vocab_size': 1},
              **dict({k: 1 for k in sizes}, **config))
json.dump(config, open(folder + '/config.json', 'w'))
END
case=0
while read -r config; do
    case=$((case + 1))
    python3 make.py $case 2 "$config"
    echo "-- $config"
    ckpt convert -q $case out --to hf --force 2>&1
    echo "status $?"
    ckpt convert -q $case out.gguf --force >gguf 2>&1 || cut -c1-70 gguf | head -n 1
done <<'END'
{'num_attention_heads': 0}
{'num_key_value_heads': -1}
{'head_dim': 0}
{'linear_num_key_heads': 0}
{'full_attention_interval': 0}
{'num_hidden_layers': 0}
{'layer_types': ['linear_attention', 'chunked_attention']}
{'layer_types': ['linear_attention', 3]}
{'layer_types': 'full_attention'}
{'layer_types': ['linear_attention', 'full_attention']}
{'auto_map': {}, 'head_dim': 0}
END
echo "-- numbers of the text's part, and a type that the tables do not have"
python3 - <<'END'
import json
config = json.load(open('10/config.json'))
json.dump({'model_type': 'some_vl', 'text_config': {**config, 'num_attention_heads': 0}}, open('10/config.json', 'w'))
json.dump({**config, 'model_type': 'unheard_of', 'num_attention_heads': 0}, open('1/config.json', 'w'))
END
for model in 10 1; do
    ckpt convert -q $model out --to hf --force 2>&1
    echo "status $?"
done
echo "-- sizes of 0 that reach a GGUF file by --config, and in a file that another program wrote"
ckpt convert -q "$FIXTURES/gguf_llama_deep/hf" whole.gguf 2>/dev/null
python3 - "$FIXTURES/gguf_llama_deep/hf/config.json" <<'END'
import json, struct, sys
config = json.load(open(sys.argv[1]))
json.dump({**config, 'num_attention_heads': 0}, open('zero.json', 'w'))
raw, key = open('whole.gguf', 'rb').read(), b'llama.attention.head_count'
at = raw.index(struct.pack('<Q', len(key)) + key) + 8 + len(key) + 4
open('zero.gguf', 'wb').write(raw[:at] + bytes(4) + raw[at + 4:])
END
ckpt convert -q "$FIXTURES/gguf_llama_deep/hf" zero2.gguf --config zero.json 2>&1
echo "status $?"
ckpt verify -q zero.gguf 2>&1
echo "status $?"
ckpt convert -q zero.gguf zero3.gguf 2>&1
echo "status $?"
ls zero2.gguf zero3.gguf 2>/dev/null || echo "none was written"
