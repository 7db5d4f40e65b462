# SPDX-License-Identifier: Apache-2.0
# ckpt extract-lora: the difference of two models as a LoRA adapter; merged into the base it gives the model again.  What LoRA does not change is refused, saved or dropped.
cat >make.py <<'EOP'
import json, os, struct
def write(folder, tensors, config={'model_type': 'toy', 'architectures': ['ToyForCausalLM'], 'hidden_size': 6}):
    os.makedirs(folder)
    head, data = {}, b''
    for name, (shape, values) in tensors.items():
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + 4 * len(values)]}
        data += struct.pack('<%df' % len(values), *values)
    text = json.dumps(head).encode()
    open(folder + '/model.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + data)
    json.dump(config, open(folder + '/config.json', 'w'))
Q, D = 'model.layers.%d.self_attn.q_proj.weight', 'model.layers.%d.mlp.down_proj.weight'
base = {'model.embed_tokens.weight': ([4, 6], list(range(24))), 'model.norm.weight': ([6], [1] * 6), 'lm_head.weight': ([4, 6], [0.5] * 24)}
for i in range(2):
    base.update({Q % i: ([6, 6], [x % 5 for x in range(36)]), Q.replace('weight', 'bias') % i: ([6], [0] * 6), D % i: ([6, 4], [x % 7 for x in range(24)])})
def tuned(folder, change, **more):
    write(folder, {k: (s, [x + change(k, i) for i, x in enumerate(v)]) for k, (s, v) in base.items()}, **more)
write('base', base)
# ones in a row and in a column: rank 2
cross = lambda k, i: float('q_proj.weight' in k and (i < 6 or i % 6 == 0)) + 2 * (k == D % 1) * (i % 4 == 0)
tuned('tuned', cross)
tuned('first', lambda k, i: float(k == Q % 0 and i == 7))
tuned('rest', lambda k, i: cross(k, i) + ('norm' in k or 'bias' in k))
tuned('table', lambda k, i: cross(k, i) + ('embed' in k))
tuned('nan', lambda k, i: float('nan') if k == Q % 0 and i == 3 else 0.0)
tuned('same', lambda k, i: 0.0)
tuned('other', cross, config={'model_type': 'play'})
write('more', dict(base, **{'model.layers.2.mlp.down_proj.weight': ([6, 4], [0] * 24)}))
write('wide', dict(base, **{'model.embed_tokens.weight': ([5, 6], [0] * 30)}))
write('tall', {'a.weight': ([300, 8], [0] * 2400)})
write('tall_tuned', {'a.weight': ([300, 8], [x % 11 for x in range(2400)])})
tied = dict(base)
del tied['lm_head.weight']
write('tied', tied)
write('tied_tuned', dict(tied, **{'model.embed_tokens.weight': ([4, 6], [1] * 24), Q % 0: ([6, 6], [1] * 36)}))
EOP
python3 make.py
again() { ckpt convert -q base "$1_again" --to hf --adapter "$1" && ckpt diff "$2" "$1_again" --tol 1e-5; }
echo "-- an update of rank 2"
ckpt extract-lora base tuned lora --rank 2 | sed 's/ in [0-9].*/ .../; s/error [0-9.]*e-0[78]/error tiny/'
ls lora; cat lora/adapter_config.json; echo; ckpt ls lora; again lora tuned
echo "-- rank 1 leaves a part; the same with any number of threads"
ckpt extract-lora base tuned half --rank 1 -j 1 | sed 's/ in [0-9].*/ .../; s/error [0-9.]*e-0[78]/error tiny/'
ckpt extract-lora -q base tuned half3 --rank 1 -j 3 && ckpt diff half half3
ckpt extract-lora --json base tuned json --rank 1 2>/dev/null | python3 -c "
import json, sys
d = json.load(sys.stdin)
print(d['rank'], '%.3f' % d['relative_error'], [(x['module'], x['rows'], x['cols'], '%.3f' % x['difference']) for x in d['matrices']])"
echo "-- a module of one layer alone is named by its path"
ckpt extract-lora -q base first one --rank 1 && grep -A2 target_modules one/adapter_config.json && again one first
echo "-- norms and biases"
ckpt extract-lora -q base rest out --rank 2; echo "status $?"
ckpt extract-lora -q base rest saved --rank 2 --save-rest && grep -E -A3 '"bias"|to_save' saved/adapter_config.json && ckpt ls saved && again saved rest
ckpt extract-lora base rest dropped --rank 2 --drop-rest >/dev/null && again dropped tuned
ckpt extract-lora -q base table table_lora --rank 2 --save-rest && again table_lora table
echo "-- other formats and dtypes"
ckpt convert -q tuned tuned.gguf.pt --to torch
ckpt extract-lora -q base tuned.gguf.pt from_pt --rank 2 --to hf-bin --dtype bf16 && ls from_pt && ckpt ls from_pt | head -2
echo "-- factors beyond 64 MiB wait in a file, also in the sandbox"
ckpt extract-lora -q tall tall_tuned tall_lora --rank 60000 && ckpt convert -q tall tall_again --to hf --adapter tall_lora && ckpt diff tall_tuned tall_again --tol 1e-4
rm -r tall_lora
echo "-- refused"
try() { ckpt extract-lora -q "$@"; echo "status $?"; }
try base tuned out
try base tuned out --rank 0
try base tuned out --rank 2 --save-rest --drop-rest
try base tuned out --rank 2 --to safetensors
try base tuned out --rank 2 --dtype f64
try base nan out --rank 2
try base same out --rank 2
try base other out --rank 2
try base more out --rank 2
try more base out --rank 2
try base wide out --rank 2
try tied tied_tuned out --rank 2 --save-rest
try base nan lora --rank 2
try base base out --rank 2
try nothing tuned out --rank 2
[ ! -e out ] || echo "out was written"
