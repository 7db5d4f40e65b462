# SPDX-License-Identifier: Apache-2.0
# ckpt extract-lora: the difference of two models as a LoRA adapter; merged into the base it gives the model again.  What LoRA does not change is refused, saved or dropped.
cat >make.py <<'EOP'
import json, os, struct
def write(folder, tensors, config={'model_type': 'toy', 'architectures': ['ToyForCausalLM'], 'hidden_size': 6}, ties={}):
    os.makedirs(folder)
    head, data = {'__metadata__': dict({'format': 'pt'}, **ties)}, bytearray()
    for name, (shape, values, *dtype) in tensors.items():
        code = {'F64': 'd', 'F16': 'e'}[dtype[0]] if dtype else 'f'
        at = len(data)
        data += struct.pack('<%d%s' % (len(values), code), *values)
        head[name] = {'dtype': dtype[0] if dtype else 'F32', 'shape': shape, 'data_offsets': [at, len(data)]}
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
# names that share their values; the owner is the name that the file has
H, E, N = 'lm_head.weight', 'model.embed_tokens.weight', 'model.norm.weight'
eye = lambda by, n=4: ([n, n], [by * (i % (n + 1) == 0) for i in range(n * n)])
for by, what in enumerate(('', '_tuned')):
    write('head' + what, {H: eye(by)}, ties={E: H}, config={'model_type': 'toy'})
    write('linears' + what, {Q % 0: eye(by)}, ties={Q % 1: Q % 0})
    write('shared' + what, {Q % 2: eye(by), 'x.shared.weight': eye(by)}, ties={'y.embed_tokens.weight': 'x.shared.weight'}, config={'model_type': 'toy'})
    # E follows the head in the base, but a matrix that differs in the tuned model
    write('moved' + what, {H: eye(0), Q % 0: eye(by)}, ties={E: (H, Q % 0)[by]}, config={'model_type': 'toy'})
    write('f64' + what, {Q % 0: eye(by), N: ([2], [1 + by * 1e-10, 2], 'F64')})
    write('f64_matrix' + what, {Q % 0: ([2, 2], [1 + by * 1e-10, 0, 0, 2], 'F64')})
    write('huge' + what, {Q % 0: eye(by * 1e13)})
    write('small' + what, {Q % 0: eye(by * 1e-14)})
    write('dtypes' + what, {Q % 0: eye(by) + (() if by else ('F16',))})
    write('tables' + what, {Q % 0: eye(by), 'tok.weight': eye(by), 'emb.weight': eye(by), 'wte.weight': eye(by), 'wpe.weight': eye(by)}, config={'model_type': 'toy'})
    write('conv' + what, {'h.0.attn.c_proj.weight': ([2, 2], [0, by, 0, 0])})
    os.rename('conv' + what + '/model.safetensors', 'conv%s.safetensors' % what)
    write('many' + what, {'m.%d.%s' % (i, k): ([2, 2] if k == 'q.weight' else [2], [by] * (4 if k == 'q.weight' else 2)) for i in range(12000) for k in ('q.weight', 'q.bias', 'norm.weight')})
json.dump({'model_type': 'gpt2', 'architectures': ['GPT2LMHeadModel']}, open('gpt2.json', 'w'))
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
try head head_tuned out --rank 1
try linears linears_tuned out --rank 1
try shared shared_tuned out --rank 1 --save-rest
try moved moved_tuned out --rank 1
try huge huge_tuned out --rank 1 --dtype f16
try conv.safetensors conv_tuned.safetensors out --rank 1
try f64 f64_tuned out --rank 1
try tables tables_tuned out --rank 1
[ ! -e out ] || echo "out was written"
echo "-- a name that the two models tie to different names"
ckpt extract-lora -q moved moved_tuned moved_lora --rank 4 --save-rest && ckpt ls moved_lora && ckpt convert -q moved moved_again --to hf --adapter moved_lora && ckpt diff moved_tuned moved_again --tol 1e-5
echo "-- F64 is compared and subtracted as F64; dtypes that differ, and factors too small for F16"
one() { ckpt extract-lora "$1" "$1_tuned" "$1_lora" --rank 4 $2 | grep -v wrote | sed 's/error [0-9.]*e-[01][0-9]/error tiny/'; }
one f64_matrix
one dtypes
one small "--dtype f16"
one small "--dtype bf16 --force"
echo "-- the type of the model decides which side of a Conv1D is its input"
ckpt extract-lora -q conv.safetensors conv_tuned.safetensors conv_lora --rank 1 --config gpt2.json && grep fan_in conv_lora/adapter_config.json
echo "-- many modules: seconds of processor time that no quadratic search would meet"
(ulimit -t 8; ckpt extract-lora -q --no-fsync many many_tuned many_lora --rank 1 --save-rest; echo "status $?")
grep -c norm many_lora/adapter_config.json
