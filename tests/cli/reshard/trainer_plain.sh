# SPDX-License-Identifier: Apache-2.0
# A model folder with the optimizer beside the weights, by number (Trainer, accelerate): the model type gives the order, or a list.
cat >make.py <<'EOP'
import json, os, struct, sys
sys.path.insert(0, os.environ['FIXTURES'] + '/../cli')
from ds_tiny import filled, save, scalar

LAYERS = 11  # so that 10 is before 2 in a sorted file
PARTS = {'self_attn.q_proj': (4, 4), 'self_attn.k_proj': (4, 4), 'self_attn.v_proj': (4, 4), 'self_attn.o_proj': (4, 4),
         'mlp.gate_proj': (6, 4), 'mlp.up_proj': (6, 4), 'mlp.down_proj': (4, 6), 'input_layernorm': (4,), 'post_attention_layernorm': (4,)}
shapes = {'model.embed_tokens.weight': (8, 4)}
for i in range(LAYERS):
    shapes.update({'model.layers.%d.%s.weight' % (i, p): s for p, s in PARTS.items()})
shapes['model.norm.weight'] = (4,)
groups = [n for n in shapes if 'norm' not in n], [n for n in shapes if 'norm' in n]
order = groups[0] + groups[1]


def weights(path, half=False):
    header, data = {}, b''
    for name in sorted(shapes):
        values = filled(shapes[name], (order.index(name) + 1) / 8).storage.values
        start = len(data)
        data += b''.join(struct.pack('<f', v)[2 * half:] for v in values)
        header[name] = {'dtype': 'BF16' if half else 'F32', 'shape': shapes[name], 'data_offsets': [start, len(data)]}
    text = json.dumps(header).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)


def run(folder, kind, groups=groups, half=False):
    order = groups[0] + groups[1]
    os.mkdir(folder)
    weights(folder + '/model.safetensors', half)
    with open(folder + '/config.json', 'w') as f:
        json.dump({'architectures': ['LlamaForCausalLM'], 'model_type': kind, 'hidden_size': 4, 'intermediate_size': 6, 'vocab_size': 8,
                   'num_hidden_layers': LAYERS, 'num_attention_heads': 1, 'tie_word_embeddings': True}, f)
    state = {i: {'step': scalar(3.0), 'exp_avg': filled(shapes[n], (i + 1) / 128), 'exp_avg_sq': filled(shapes[n], (i + 1) / 64)}
             for i, n in enumerate(order)}
    first = len(groups[0])
    save({'state': state, 'param_groups': [
        dict(lr=.1, betas=(.9, .999), eps=1e-8, weight_decay=d, params=list(range(at, at + len(g))))
        for g, d, at in ((groups[0], .01, 0), (groups[1], .0, first))]}, folder + '/optimizer.pt')
    save({'last_epoch': 3, '_step_count': 4, '_last_lr': [.1, .1]}, folder + '/scheduler.pt')
    with open(folder + '/trainer_state.json', 'w') as f:
        json.dump({'global_step': 3}, f)


run('run', 'llama')
run('unknown', 'unheard_of')
run('half', 'llama', half=True)
trained = [[n for n in g if 'layers.3.' not in n] for g in groups]
run('frozen', 'llama', trained)
with open('trained', 'w') as f:
    f.write('\n'.join(trained[0]) + '\n\n' + '\n'.join(trained[1]) + '\n')
with open('order', 'w') as f:
    f.write('\n'.join(groups[0]) + '\n\n' + '\n'.join(groups[1]) + '\n')
with open('short', 'w') as f:
    f.write('\n'.join(order[1:]) + '\n')
with open('check.py', 'w') as f:
    f.write('''import json, struct, sys
with open(sys.argv[1], 'rb') as f:
    header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
    at = f.tell()
    bad = 0
    for i, n in enumerate(%r):
        for k, by in ('', 8), ('exp_avg/', 128), ('exp_avg_sq/', 64):
            f.seek(at + header[k + n]['data_offsets'][0])
            bad += struct.unpack('<f', f.read(4))[0] != (i + 1) / by
print(i + 1, 'parameters,', bad, 'wrong')
''' % (order,))
EOP
python3 make.py
show() { # OPTIONS: reshard to ZeRO, then the values by name
    rm -rf zero named.safetensors
    ckpt reshard -q "$@" zero --to zero --world 3 --stage 3
    echo "status $?"
    [ ! -d zero ] || { ckpt convert -q --with-optimizer zero named.safetensors && python3 check.py named.safetensors; }
}
echo "-- the model type's order"
show run
ckpt convert -q --with-optimizer run direct.safetensors && python3 check.py direct.safetensors
ckpt reshard -q run dcp --to dcp && ckpt diff -q run dcp && echo equal
echo "-- an unknown type"
show unknown
show unknown --order order
show unknown --order short
show unknown --order stored
echo "-- a frozen layer, whose shapes are those of the others"
show frozen
ckpt reshard -q frozen given --to zero --world 3 --stage 3 --order trained
ckpt ls -l given 2>/dev/null | grep -c frozen
echo "-- weights that were rounded after the save"
ckpt reshard -q half rounded --to zero --world 3 --stage 3
echo "status $?"
echo "-- weights alone"
ckpt info run | grep optimizer
ckpt reshard -q unknown fresh --world 3 --stage 3 --order stored --drop-optimizer
echo "status $?"
ckpt reshard -q run anew --world 3 --stage 3 --drop-optimizer
echo "status $?"
echo "-- more steps than the Trainer counts; an optimizer of another model"
sed -i 's/3/2/' run/trainer_state.json
show run
cp -r run other
cp "$FIXTURES/gguf_llama_deep/hf/config.json" "$FIXTURES/gguf_llama_deep/hf/model.safetensors" other
show other
