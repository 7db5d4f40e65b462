# SPDX-License-Identifier: Apache-2.0
# Weights of integers without scales and without a quantization_config: not copied among floats of another dtype.
cat >make.py <<'END'
import json, os, sys

folder, dtype, every, config = sys.argv[1], sys.argv[2], sys.argv[3] == 'all', eval(sys.argv[4])
width = {'I8': 1, 'U8': 1, 'I16': 2, 'I32': 4, 'F8_E4M3': 1, 'F32': 4}
layer = ['self_attn.%s_proj' % k for k in 'qkvo'] + ['mlp.%s_proj' % k for k in ('gate', 'up', 'down')]
shapes = {'model.layers.0.%s.weight' % k: (dtype, 2) for k in layer}
norms = ['model.layers.0.input_layernorm', 'model.layers.0.post_attention_layernorm', 'model.norm']
shapes.update({k + '.weight': ('F32', 1) for k in norms})
shapes.update({k + '.weight': (dtype if every else 'F32', 2) for k in ('model.embed_tokens', 'lm_head')})
head, at = {}, 0
for name, (d, n) in shapes.items():
    head[name] = {'dtype': d, 'shape': [4] * n, 'data_offsets': [at, at + 4 ** n * width[d]]}
    at += 4 ** n * width[d]
text = json.dumps(head).encode()
text += b' ' * (-len(text) % 8)
os.makedirs(folder)
open(folder + '/model.safetensors', 'wb').write(len(text).to_bytes(8, 'little') + text + bytes(at))
sizes = dict.fromkeys(['hidden_size', 'intermediate_size', 'head_dim', 'vocab_size', 'max_position_embeddings'], 4)
json.dump({'model_type': 'llama', 'num_hidden_layers': 1, 'num_attention_heads': 1, 'num_key_value_heads': 1, 'tie_word_embeddings': False,
           'rms_norm_eps': 1e-5, **sizes, **config}, open(folder + '/config.json', 'w'))
END
try() {
    ckpt convert -q "$@"
    echo "$*: exit status $?"
}
for dtype in I8 U8 I16 I32; do
    python3 make.py $dtype $dtype some '{}'
    try $dtype out_$dtype --to hf --dtype bf16
    try $dtype $dtype.safetensors --dtype f16
    try $dtype $dtype.gguf
done
ls -d out_* ./*.gguf ./*.safetensors 2>/dev/null
echo "-- as they are: a warning, and the same bits"
try I8 same --to hf
ckpt diff -q I8 same && echo same
echo "-- left out, in a file"
try I8/model.safetensors floats.safetensors --dtype f16 --exclude '*layers*_proj*'
echo "-- no weight is a float"
python3 make.py whole I8 all '{}'
try whole whole.out --to hf --dtype bf16
echo "-- numbers of 8 bits that are floats"
python3 make.py f8 F8_E4M3 some '{}'
try f8 f8.out --to hf --dtype bf16
