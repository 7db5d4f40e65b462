# SPDX-License-Identifier: Apache-2.0
# A layer's missing tensor: no folder of any format has it with status 0 if the configuration is known; single files get a warning.
try() {
    echo "$*"
    ckpt convert -q "$@" || echo "status $?"
    rm -rf out
}
llama=$FIXTURES/map_meta_s1/hf
ckpt convert -q "$llama" lacks.pt --exclude '*.1.input_layernorm.weight'
for to in hf hf-bin hf-sharded safetensors torch; do
    try lacks.pt out --to $to --config "$llama/config.json"
done
try lacks.pt out --to consolidated --config "$llama/config.json"
for to in hf hf-bin; do
    try lacks.pt out --to $to --no-side-files --config "$llama/config.json"
    try lacks.pt out --to $to --no-side-files
done
try lacks.pt out --to hf-sharded
try lacks.pt out --to safetensors
# selected on purpose
try lacks.pt out --to hf --exclude lm_head.weight --config "$llama/config.json"
try lacks.pt out --to safetensors --exclude lm_head.weight --config "$llama/config.json"
# a whole model, and a model with a larger vocabulary than its configuration says
for to in hf-sharded consolidated safetensors; do
    try "$llama" out --to $to
done
try "$llama" out --to hf --no-side-files
try "$llama" out --to hf --no-side-files --vocab-size 200
# the first layer, the last one, or a tensor of them, in types whose layers all have the same names
gpt2=$FIXTURES/map_mcore_gpt2/hf
neox=$FIXTURES/map_neox_tp2/hf
for glob in '*h.0.*' '*h.1.*' '*h.*' '*h.0.ln_1.bias' '*h.1.ln_1.bias'; do
    ckpt convert -q "$gpt2" lacks.pt --force --exclude "$glob"
    try lacks.pt out --to hf --config "$gpt2/config.json"
done
for glob in '*layers.0.*' '*layers.3.*' '*layers.0.attention.dense.bias' '*layers.3.attention.dense.bias'; do
    ckpt convert -q "$neox" lacks.pt --force --exclude "$glob"
    try lacks.pt out --to hf --config "$neox/config.json"
    try lacks.pt out --to hf
done
# outside of the layers
for glob in '*wpe*' '*ln_f.weight'; do
    ckpt convert -q "$gpt2" lacks.pt --force --exclude "$glob"
    try lacks.pt out --to hf --config "$gpt2/config.json"
done
for glob in '*embed_in*' '*final_layer_norm.weight' 'embed_out*'; do
    ckpt convert -q "$neox" lacks.pt --force --exclude "$glob"
    try lacks.pt out --to hf --config "$neox/config.json"
done
# a layer that predicts more tokens does not replace the first one
python3 - "$neox/config.json" <<'END'
import json, sys

config = json.load(open(sys.argv[1]))
config['num_hidden_layers'] = 3
json.dump(config, open('less.json', 'w'))
END
ckpt convert -q "$neox" lacks.pt --force --exclude '*layers.0.*'
try lacks.pt out --to hf --config less.json
# many stacks beside the model's layers, and many that are no layers, whose comparison must not take minutes
python3 - "$gpt2/config.json" <<'END'
import json, struct, sys

def write(path, shapes):
    head, at = {}, 0
    for name, shape in shapes.items():
        n = 4 * shape[0]
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [at, at + n]}
        at += n
    text = json.dumps(head).encode()
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + bytes(at))


model = {'h.%d.ln_1.%s' % (i, end): [4] for i in range(2) for end in ('weight', 'bias')}
del model['h.0.ln_1.bias']
write('many.safetensors', {**{'part%d.layers.0.weight' % i: [1] for i in range(100)}, **model})
rows = ((p, r) for p in range(60) for r in range(512))
write('sparse.safetensors', {'p%d.layers.%d.n%d.weight' % (p, r, k): [1] for p, r in rows for k in (r, r + 512)})
config = json.load(open(sys.argv[1]))
config['n_layer'] = 2
json.dump(config, open('two.json', 'w'))
END
try many.safetensors out --to hf --config two.json
timeout 60 ckpt convert -q sparse.safetensors out --to safetensors
echo "status $?"
