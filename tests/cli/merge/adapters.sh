# SPDX-License-Identifier: Apache-2.0
# LoRA adapters made into one by cat and linear; merged into a base, cat gives the sum of the updates.  What cannot be combined is refused.
cat >make.py <<'EOP'
import json, os, struct
def write(path, tensors):
    head, data = {}, b''
    for name, (shape, values) in tensors.items():
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + 4 * len(values)]}
        data += struct.pack('<%df' % len(values), *values)
    text = json.dumps(head).encode()
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + data)
def folder(name, modules, rank, more={}, extra={}):
    os.makedirs(name)
    config = {'peft_type': 'LORA', 'r': rank, 'lora_alpha': 2 * rank, 'target_modules': sorted(modules), 'bias': 'none', 'base_model_name_or_path': 'x'}
    json.dump(dict(config, **more), open(name + '/adapter_config.json', 'w'))
    n = len(name)
    tensors = {}
    for m in modules:
        tensors['base_model.model.%s.lora_A.weight' % m] = [rank, 3], [n + i for i in range(3 * rank)]
        tensors['base_model.model.%s.lora_B.weight' % m] = [2, rank], [i - n for i in range(2 * rank)]
    write(name + '/adapter_model.safetensors', dict(tensors, **extra))
os.makedirs('base')
write('base/model.safetensors', {m + '.weight': ([2, 3], [1, 2, 3, 4, 5, 6]) for m in ('h.0.q', 'h.0.v')})
folder('one', ['h.0.q'], 1)
folder('second', ['h.0.q', 'h.0.v'], 2)
folder('third', ['h.0.q'], 1, {'use_rslora': True, 'lora_alpha': 3})
folder('pattern', ['h.0.q'], 2, {'rank_pattern': {'q': 2}, 'r': 8, 'alpha_pattern': {'h.0.q': 6}, 'exclude_modules': 'x'})
folder('dora', ['h.0.q'], 1, {'use_dora': True})
folder('whole', ['h.0.q'], 1, {'modules_to_save': ['v']}, {'base_model.model.h.0.v.weight': ([2, 3], [0] * 6)})
folder('biases', ['h.0.q'], 1, {'bias': 'all'})
folder('option', ['h.0.q'], 1, {'alora_invocation_tokens': [1]})
folder('pissa', ['h.0.q'], 1, {'init_lora_weights': 'pissa'})
folder('ia3', [], 1, {'peft_type': 'IA3', 'lora_alpha': 0, 'r': 0}, {'base_model.model.h.0.q.ia3_l': ([2, 1], [1, 2])})
folder('other', ['h.0.q'], 1, {'base_model_name_or_path': 'y'})
folder('ranked', ['h.0.q'], 1, {'r': 4})
folder('wide', [], 1, {}, {'base_model.model.h.0.q.lora_A.weight': ([1, 4], [1] * 4), 'base_model.model.h.0.q.lora_B.weight': ([2, 1], [1] * 2)})
folder('half', [], 1, {}, {'base_model.model.h.0.q.lora_A.weight': ([1, 3], [1] * 3)})
def table(name, rank, base, width=3):
    m = 'base_model.model.emb.'
    folder(name, [], rank, {'target_modules': ['emb']}, {m + 'lora_embedding_A': ([rank, 4], [len(name) + i for i in range(4 * rank)]),
        m + 'lora_embedding_B': ([width, rank], [i for i in range(width * rank)]), m + 'base_layer.weight': ([4, width], [base] * 4 * width)})
table('table', 1, 7)
table('table_more', 2, 7)
table('table_other', 1, 8)
table('table_wide', 1, 7, 4)
write('base/emb.safetensors', {'emb.weight': ([4, 3], [7] * 12)})
EOP
python3 make.py
echo "-- cat: the update of the result is the sum of all updates"
ckpt merge -o cat --method cat one:2 second:-1 third:0.5 pattern 2>&1 | sed 's/ in .*/ .../'
cat cat/adapter_config.json
ckpt ls cat
ckpt convert -q base all --to hf --adapter one:2 --adapter second:-1 --adapter third:0.5 --adapter pattern
ckpt convert -q base once --to hf --adapter cat && ckpt diff all once --tol 1e-4
ckpt verify cat --made-from one:2 --made-from second:-1 --made-from third:0.5 --made-from pattern --method cat
echo "-- linear: both factors"
ckpt merge -q -o linear --method linear one:2 third:-0.5 && ckpt cat linear base_model.model.h.0.q.lora_A.weight && ckpt cat one base_model.model.h.0.q.lora_A.weight
grep -E '"(r|lora_alpha)"' linear/adapter_config.json
echo "-- the widest dtype holds the values of both"
ckpt convert -q one one_bf16 --to hf --dtype bf16 && ckpt convert -q second second_bf16 --to hf --dtype bf16
ckpt merge -q -o mixed --method cat one_bf16 second && ckpt ls mixed | grep lora
ckpt merge -q -o narrow --method cat one_bf16 second_bf16 && ckpt ls narrow | grep lora
ckpt convert -q base sum --to hf --adapter one_bf16 --adapter second && ckpt convert -q base mixed_sum --to hf --adapter mixed && ckpt diff sum mixed_sum --tol 1e-6
echo "-- embeddings, with the unmodified weight that peft saves"
ckpt merge -q -o tables --method cat one table:2 table_more && ckpt ls tables
ckpt convert -q base/emb.safetensors emb.safetensors --adapter table:2 --adapter table_more && ckpt convert -q base/emb.safetensors emb_once.safetensors --adapter tables 2>&1 | sed 's/^.*: the base/the base/'
ckpt merge -q -o tables_only --method cat table:2 table_more && ckpt convert -q base/emb.safetensors emb_once.safetensors --adapter tables_only && ckpt diff emb.safetensors emb_once.safetensors --tol 1e-4
echo "-- refused"
try() { ckpt merge -q -o out "$@"; echo "status $?"; }
try one second
try --method svd one second
try --method ties one second
try --method linear one second
for kind in dora whole biases option pissa ia3 ranked wide half base; do try --method cat one $kind; done
try --method cat base one
try base one
try --method cat --no-normalize one second
try --method cat --base base one second
try --method cat --to safetensors one second
try --method cat --strict one other
try --method cat table table_other
try --method cat table table_wide
mkdir renamed && cp one/adapter_model.safetensors renamed/first.safetensors && cp third/adapter_model.safetensors renamed/next.safetensors
try renamed/first.safetensors renamed/next.safetensors
try --method task_arithmetic --base base renamed/first.safetensors
echo '{"model_type": "llama"}' >one/config.json
try --method ties one third
ckpt merge -q -o beside --method cat one third; echo "status $?"
[ ! -e out ] || echo "out was written"
