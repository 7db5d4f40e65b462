# SPDX-License-Identifier: Apache-2.0
# IA3, LoHa, LoKr, VeRA, OFT and trained tokens merged, against their formulas; and what does not fit, or is of another peft, is refused.
cat >make.py <<'EOP'
import json, os, random, shutil, struct, sys
random.seed(7)
def write(path, tensors):
    head, data = {}, b''
    for name, (shape, values) in tensors.items():
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + 4 * len(values)]}
        data += struct.pack('<%df' % len(values), *values)
    text = json.dumps(head).encode()
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + data)
def read(path):
    data = open(path, 'rb').read()
    n = struct.unpack('<Q', data[:8])[0]
    return {k: list(struct.unpack('<%df' % ((v['data_offsets'][1] - v['data_offsets'][0]) // 4), data[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]]))
            for k, v in json.loads(data[8:8 + n]).items() if k != '__metadata__'}
def rand(*shape):
    n = 1
    for s in shape:
        n *= s
    return list(shape), [struct.unpack('<f', struct.pack('<f', random.uniform(-1, 1)))[0] for _ in range(n)]
def mul(a, b):
    (n, k), x = a
    m, y = b[0][1], b[1]
    return [sum(x[i * k + q] * y[q * m + j] for q in range(k)) for i in range(n) for j in range(m)]
OUT, IN, M = 4, 6, 'base_model.model.a.'
base = {'a.weight': rand(OUT, IN), 'a.bias': rand(OUT), 'b.weight': rand(OUT, IN), 'b.bias': rand(OUT)}
def folder(name, config, tensors, want):
    os.makedirs(name)
    json.dump(dict(config, base_model_name_or_path='x', target_modules=['a']), open(name + '/adapter_config.json', 'w'))
    write(name + '/adapter_model.safetensors', tensors)
    json.dump(dict({k: v[1] for k, v in base.items()}, **want), open(name + '.want', 'w'))
def make():
    os.makedirs('base')
    write('base/model.safetensors', base)
    W, bias = base['a.weight'][1], base['a.bias'][1]
    l = rand(OUT, 1)
    ia3 = {'peft_type': 'IA3', 'feedforward_modules': [], 'fan_in_fan_out': False, 'modules_to_save': None, 'init_ia3_weights': True}
    folder('ia3', ia3, {M + 'ia3_l': l}, {'a.weight': [w * l[1][i // IN] for i, w in enumerate(W)], 'a.bias': [x * y for x, y in zip(bias, l[1])]})
    l = rand(1, IN)
    folder('ia3_in', dict(ia3, feedforward_modules=['a']), {M + 'ia3_l': l}, {'a.weight': [w * l[1][i % IN] for i, w in enumerate(W)]})
    w = {x: rand(*s) for x, s in (('w1_a', (OUT, 2)), ('w1_b', (2, IN)), ('w2_a', (OUT, 2)), ('w2_b', (2, IN)))}
    d = [x * y * 1.5 for x, y in zip(mul(w['w1_a'], w['w1_b']), mul(w['w2_a'], w['w2_b']))]
    folder('loha', {'peft_type': 'LOHA', 'r': 2, 'alpha': 3, 'rank_dropout': 0.5}, {M + 'hada_' + k: v for k, v in w.items()}, {'a.weight': [x + y for x, y in zip(W, d)]})
    w = {'lokr_w1': rand(2, 3), 'lokr_w2_a': rand(2, 1), 'lokr_w2_b': rand(1, 2)}
    w2 = mul(w['lokr_w2_a'], w['lokr_w2_b'])
    d = [2 * w['lokr_w1'][1][i // 2 * 3 + j // 2] * w2[i % 2 * 2 + j % 2] for i in range(OUT) for j in range(IN)]
    folder('lokr', {'peft_type': 'LOKR', 'r': 1, 'alpha': 2, 'decompose_both': False, 'decompose_factor': -1}, {M + k: v for k, v in w.items()},
           {'a.weight': [x + y for x, y in zip(W, d)]})
    A, B, ld, lb = rand(3, IN + 2), rand(OUT + 1, 3), rand(3), rand(OUT)
    a = [3, IN], [A[1][q * (IN + 2) + j] * ld[1][q] for q in range(3) for j in range(IN)]
    b = [OUT, 3], [B[1][i * 3 + q] * lb[1][i] for i in range(OUT) for q in range(3)]
    folder('vera', {'peft_type': 'VERA', 'r': 3, 'save_projection': True, 'bias': 'none'},
           {'base_model.vera_A': A, 'base_model.vera_B': B, M + 'vera_lambda_b': lb, M + 'vera_lambda_d': ld}, {'a.weight': [x + y for x, y in zip(W, mul(b, a))]})
    R = rand(3, 1)
    d = []
    for i in range(OUT):
        for j in range(3):
            v, (x, y) = R[1][j], W[i * IN + 2 * j:i * IN + 2 * j + 2]
            d += [((1 - v * v) * x - 2 * v * y) / (1 + v * v), (2 * v * x + (1 - v * v) * y) / (1 + v * v)]
    oft = {'peft_type': 'OFT', 'r': 0, 'oft_block_size': 2, 'use_cayley_neumann': False, 'coft': False, 'block_share': False}
    folder('oft', oft, {M + 'oft_R.weight': R}, {'a.weight': d})
    def tokens(name, indices, n=2, module='a', **more):
        rows = rand(n, IN)
        w = [list(W[i * IN:(i + 1) * IN]) for i in range(OUT)]
        for k, i in enumerate(indices[:n]):
            w[i % OUT] = rows[1][k * IN:(k + 1) * IN]
        folder(name, dict({'peft_type': 'TRAINABLE_TOKENS', 'token_indices': indices}, **more), {'base_model.model.%s.trainable_tokens_delta' % module: rows},
               {'a.weight': sum(w, [])})
    tokens('tokens', [3, 1])
    tokens('tokens_lora', [3, 1], 2, 'a.token_adapter', peft_type='LORA', r=2, lora_alpha=2, token_indices=None, trainable_token_indices={'a': [3, 1]})
    # what must be refused
    tokens('tokens_after', [3, OUT])
    tokens('tokens_below', [3, -1])
    tokens('tokens_twice', [3, 3])
    tokens('tokens_three', [3, 1, 2])
    folder('tokens_cut', {'peft_type': 'LORA', 'r': 2, 'lora_alpha': 2, 'trainable_token_indices': [1]},
           {M + 'lora_A.weight': rand(2, IN), M + 'lora_B.weight': rand(OUT, 2)}, {})
    tokens('tokens_lists', [3, 1], 2, 'a.token_adapter', peft_type='LORA', r=2, lora_alpha=2, token_indices=None, trainable_token_indices={'a': [3, 1], 'lm_head': [3]})
    tokens('tokens_none', [3, 1], peft_type='LORA', r=2, lora_alpha=2, token_indices=None)
    tokens('tokens_head', [3, 1], 2, 'lm_head')
    tokens('tokens_absent', [3, 1], 2, 'c')
    folder('loha_half', {'peft_type': 'LOHA', 'r': 2, 'alpha': 3}, {M + 'hada_w1_a': rand(OUT, 2), M + 'hada_w1_b': rand(2, IN)}, {})
    folder('loha_rank', {'peft_type': 'LOHA', 'r': 3, 'alpha': 3}, {M + 'hada_' + k: rand(*s) for k, s in (('w1_a', (OUT, 2)), ('w1_b', (2, IN)), ('w2_a', (OUT, 2)), ('w2_b', (2, IN)))}, {})
    folder('loha_wide', {'peft_type': 'LOHA', 'r': 2, 'alpha': 3}, {M + 'hada_' + k: rand(*s) for k, s in (('w1_a', (OUT, 2)), ('w1_b', (2, IN)), ('w2_a', (OUT, 2)), ('w2_b', (2, IN + 1)))}, {})
    folder('lokr_both', {'peft_type': 'LOKR', 'r': 1, 'alpha': 2}, {M + 'lokr_w1': rand(2, 3), M + 'lokr_w1_a': rand(2, 1), M + 'lokr_w2': rand(2, 2)}, {})
    folder('lokr_size', {'peft_type': 'LOKR', 'r': 1, 'alpha': 2}, {M + 'lokr_w1': rand(2, 3), M + 'lokr_w2': rand(2, 3)}, {})
    folder('lokr_none', {'peft_type': 'LOKR', 'r': 1, 'alpha': 2}, {M + 'lokr_w2': rand(2, 3)}, {})
    folder('vera_bare', {'peft_type': 'VERA', 'r': 3, 'save_projection': False}, {M + 'vera_lambda_b': lb, M + 'vera_lambda_d': ld}, {})
    folder('vera_small', {'peft_type': 'VERA', 'r': 3}, {'base_model.vera_A': rand(3, IN - 1), 'base_model.vera_B': B, M + 'vera_lambda_b': lb, M + 'vera_lambda_d': ld}, {})
    folder('oft_old', {'peft_type': 'OFT', 'r': 3}, {M + 'oft_r': rand(3, 1)}, {})
    folder('oft_series', dict(oft, use_cayley_neumann=True, peft_version='0.17.1'), {M + 'oft_R.weight': R}, {})
    folder('oft_blocks', oft, {M + 'oft_R.weight': rand(2, 1)}, {})
    folder('oft_shared', dict(oft, block_share=True), {M + 'oft_R.weight': R}, {})
    folder('oft_terms', dict(oft, num_cayley_neumann_terms=0), {M + 'oft_R.weight': R}, {})
    folder('ia3_turned', ia3, {M + 'ia3_l': rand(1, IN)}, {})
    folder('ia3_wide', ia3, {M + 'ia3_l': rand(OUT + 1, 1)}, {})
    folder('ia3_mixed', ia3, {M + 'ia3_l': rand(OUT, 1), M + 'lora_A.weight': rand(2, IN)}, {})
    folder('ia3_option', dict(ia3, decompose_both=True), {M + 'ia3_l': rand(OUT, 1)}, {})
    folder('ia3_absent', ia3, {'base_model.model.c.ia3_l': rand(OUT, 1)}, {})
    folder('adalora', {'peft_type': 'ADALORA', 'r': 3}, {M + 'lora_A': rand(3, IN)}, {})
def check(name):
    got, want = read('out_%s/model.safetensors' % name), json.load(open(name + '.want'))
    assert got.keys() == want.keys(), got.keys()
    worst = max(max(map(lambda x, y: abs(x - y), got[k], want[k])) / max(map(abs, want[k])) for k in got)
    print(name, 'as computed here' if worst < 1e-6 else 'differs by %g' % worst)
make() if len(sys.argv) == 1 else check(sys.argv[1])
EOP
python3 make.py
for kind in ia3 ia3_in loha lokr vera oft tokens tokens_lora; do
    ckpt convert base out_$kind --to hf --adapter $kind 2>&1 | grep merged
    python3 make.py $kind
    ckpt convert -q $kind again_$kind --to hf && ckpt diff $kind again_$kind
done
echo "-- two adapters, one after the other"
ckpt convert -q base both --to hf --adapter ia3 --adapter oft && ckpt convert -q out_ia3 steps --to hf --adapter oft && ckpt diff both steps
echo "-- refused"
for kind in loha_half loha_rank loha_wide lokr_both lokr_size lokr_none vera_bare vera_small oft_old oft_series oft_blocks oft_shared oft_terms ia3_turned ia3_wide ia3_mixed \
    ia3_option ia3_absent adalora ia3:0.5 oft:2 \
    tokens_after tokens_below tokens_twice tokens_three tokens_cut tokens_lists tokens_none tokens_head tokens_absent tokens:2; do
    ckpt convert -q base out --to hf --adapter $kind; echo "$kind: status $?"
done
ckpt convert -q base out --to hf --adapter ia3 --adapter tokens; echo "status $?"
ckpt convert -q tokens_lora out.gguf; echo "status $?"
ckpt convert -q ia3 out.gguf; echo "status $?"
ls -d out* 
