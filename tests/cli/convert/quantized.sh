# SPDX-License-Identifier: Apache-2.0
# Quantized weights mean nothing without their scales: passed on as they are, made floats of, or refused.
cat >make.py <<'EOP'
import json, os, struct

SIZES = {'F8_E4M3': 1, 'U8': 1, 'I32': 4, 'F32': 4, 'BF16': 2, 'F16': 2}


def folder(name, config, tensors):
    os.mkdir(name)
    header, at = {}, 0
    for key, (dtype, shape) in sorted(tensors.items()):
        n = SIZES[dtype]
        for k in shape:
            n *= k
        header[key] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(name + '/model.safetensors', 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + bytes(k % 120 for k in range(at)))
    if config is not None:
        with open(name + '/config.json', 'w') as f:
            json.dump(dict({'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'dtype': 'bfloat16'}, **config), f)


BLOCK = {'p.weight': ('F8_E4M3', [4, 6]), 'p.weight_scale_inv': ('F32', [1, 1]), 'norm.weight': ('BF16', [6])}
CHANNEL = {'p.weight': ('F8_E4M3', [4, 6]), 'p.weight_scale': ('BF16', [4, 1]), 'norm.weight': ('BF16', [6])}
MXFP4 = {'e.up_blocks': ('U8', [2, 4, 1, 16]), 'e.up_scales': ('U8', [2, 4, 1]), 'norm.weight': ('BF16', [6])}
GPTQ = {'p.qweight': ('I32', [4, 6]), 'p.scales': ('F16', [1, 6]), 'norm.weight': ('BF16', [6])}
folder('block', {'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [128, 128]}}, BLOCK)
folder('channel', {'quantization_config': {'quant_method': 'compressed-tensors', 'format': 'float-quantized'}}, CHANNEL)
folder('old', {'compression_config': {'quant_method': 'compressed-tensors', 'format': 'float-quantized'}}, CHANNEL)
folder('part', {'text_config': {'quantization_config': {'quant_method': 'fp8'}}}, BLOCK)
folder('mxfp4', {'quantization_config': {'quant_method': 'mxfp4'}}, MXFP4)
folder('gptq', {'quantization_config': {'quant_method': 'gptq', 'bits': 4}}, GPTQ)
folder('odd', {'quantization_config': {'quant_method': 7, 'weight_block_size': [2 ** 50, 'x']}}, BLOCK)
folder('silent_block', {'quantization_config': None}, BLOCK)
folder('silent_channel', None, CHANNEL)
folder('router', {'quantization_config': {'quant_method': 'compressed-tensors', 'format': 'float-quantized'}},
       {**CHANNEL, 'q.weight': ('BF16', [4, 4]), 'mlp.gate.e_score_correction_bias': ('F32', [6])})
folder('silent_mxfp4', None, MXFP4)
folder('plain', {'quantization_config': None}, {'p.weight': ('F8_E4M3', [4, 6]), 'q.weight': ('BF16', [6]), 'q.weight_scale': ('F32', [1])})
EOP
python3 make.py
for f in block channel old part mxfp4 gptq odd silent_block silent_channel silent_mxfp4 plain; do
    echo "== $f"
    ckpt info $f | grep quantized
    # as they are: bytes, names and configuration
    ckpt convert -q $f same_$f --to hf && ckpt diff -q $f same_$f && { [ ! -f $f/config.json ] || cmp $f/config.json same_$f/config.json; }
    ckpt convert -q $f cast_$f --to hf --dtype bf16
    echo "$? $([ -e cast_$f ] && echo written)"
done
echo "== other ways"
ckpt convert -q block some --to hf --dtype 'f32:*norm*'
echo $?
ckpt convert -q silent_block/model.safetensors one.safetensors --dtype fp32
echo $?
ckpt convert -q block m.gguf --to gguf
echo $?
ckpt reshard -q block run --stage 2 --world 2
echo $?
ckpt merge -q --method linear -o merged block:0.5 block:0.5
echo $?
# scales that are not those of their weights
python3 - <<'EOP'
exec(open('make.py').read().split('BLOCK =')[0])
BY_BLOCK = {'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [2, 2]}}
folder('rows', BY_BLOCK, {'p.weight': ('F8_E4M3', [4, 6]), 'p.weight_scale_inv': ('F32', [3, 3])})
folder('axes', BY_BLOCK, {'p.weight': ('F8_E4M3', [4, 6]), 'p.weight_scale_inv': ('F32', [2, 3, 1])})
folder('whole', BY_BLOCK, {'p.weight': ('F8_E4M3', [4, 6]), 'p.weight_scale_inv': ('I32', [2, 3])})
folder('bare', BY_BLOCK, {'p.weight': ('F8_E4M3', [4, 6]), 'p.weight_scale_inv': ('F32', [2, 3]), 'q.weight': ('F8_E4M3', [4])})
folder('zero', None, {'p.weight': ('F8_E4M3', [4, 6]), 'p.weight_scale': ('F32', [4, 1]), 'p.weight_zero_point': ('F32', [4, 1])})
folder('four', None, {'e.up_blocks': ('U8', [2, 4, 1, 15]), 'e.up_scales': ('U8', [2, 4, 1])})
folder('nvfp4', None, {'p.weight_packed': ('U8', [4, 8]), 'p.weight_scale': ('F8_E4M3', [4, 1]), 'p.weight_global_scale': ('F32', [1])})
EOP
for f in rows axes whole bare zero four nvfp4; do
    ckpt convert -q $f floats --to hf --dtype bf16
    echo "$? $(ls -d floats* 2>&1)"
done
echo "== what config.json says is believed, or refused"
python3 - <<'EOP'
exec(open('make.py').read().split('BLOCK =')[0])
SIZES.update(I8=1, F8_E4M3FNUZ=1)
def groups(*of, **more):
    return {'quantization_config': dict({'quant_method': 'compressed-tensors', 'format': 'float-quantized', 'config_groups': {
        'group_%d' % k: {'weights': dict({'num_bits': 8, 'type': 'float', 'symmetric': True}, **w)} for k, w in enumerate(of)}}, **more)}
W, S = 'F8_E4M3', 'F32'
ROWS = {'p.weight': (W, [4, 6]), 'p.weight_scale': (S, [4, 1])}
FP8 = {'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [4, 4]}}
EDGE = {'p.weight': (W, [6, 6]), 'p.weight_scale_inv': (S, [2, 2])}
CHANNEL, INT = {'strategy': 'channel'}, {'strategy': 'channel', 'type': 'int'}
folder('silent_edge', None, EDGE)
folder('whole_of_blocks', FP8, {'p.weight': (W, [6, 6]), 'p.weight_scale_inv': (S, [1, 1])})
folder('no_weight', FP8, dict(EDGE, **{'q.weight_scale_inv': (S, [1, 1])}))
folder('fnuz', FP8, dict(EDGE, **{'q.weight': ('F8_E4M3FNUZ', [6])}))
folder('no_scales', {'quantization_config': {'quant_method': 'mxfp4'}}, {
    'e.up_blocks': ('U8', [2, 4, 1, 16]), 'e.up_scales': ('U8', [2, 4, 1]), 'e.down_blocks': ('U8', [2, 4, 1, 16])})
folder('no_int8_scales', groups(INT, format='int-quantized'), {
    'p.weight': ('I8', [4, 6]), 'p.weight_scale': (S, [4, 1]), 'q.weight': ('I8', [4, 6])})
folder('unknown', {'quantization_config': {'quant_method': 'tomorrow'}}, ROWS)
folder('packed', groups(CHANNEL, format='pack-quantized'), ROWS)
folder('turned', groups(CHANNEL, transform_config={'config_groups': {'R1': {'type': 'hadamard'}}}), ROWS)
folder('sparse', groups(CHANNEL, sparsity_config={'format': 'sparse-24-bitmask'}), ROWS)
folder('uneven', groups(dict(CHANNEL, symmetric=False)), ROWS)
folder('four_bits', groups(dict(CHANNEL, num_bits=4)), ROWS)
folder('tokens', groups({'strategy': 'token'}), ROWS)
folder('no_block', groups({'strategy': 'block', 'block_structure': [0, 4]}), ROWS)
folder('no_pair', {'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [4]}}, EDGE)
folder('two_sizes', groups({'strategy': 'block', 'block_structure': [4, 4]}, {'strategy': 'block', 'block_structure': [5, 5]}),
       {'p.weight': (W, [6, 6]), 'p.weight_scale': (S, [2, 2])})
folder('edge', FP8, EDGE)
folder('text_part', {'text_config': FP8}, EDGE)
folder('second_group', groups(CHANNEL, {'strategy': 'block', 'block_structure': [4, 4]}),
       dict(ROWS, **{'q.weight': (W, [6, 6]), 'q.weight_scale': (S, [2, 2])}))
EOP
for f in silent_edge whole_of_blocks no_weight fnuz no_scales no_int8_scales unknown packed turned sparse uneven four_bits tokens no_block no_pair two_sizes; do
    ckpt convert -q $f floats --to hf --dtype bf16
    echo "$f $? $(ls -d floats* 2>&1)"
done
# a block of 4 rows and one that is cut to 2: never two of 3
for f in edge text_part second_group; do
    ckpt convert -q $f floats --to hf --dtype fp32
    echo "$f $?"
    python3 - $f floats <<'EOP'
import json, struct, sys
def load(path):
    data = open(path + '/model.safetensors', 'rb').read()
    n = struct.unpack('<Q', data[:8])[0]
    return {k: data[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]] for k, v in json.loads(data[8:8 + n]).items() if k != '__metadata__'}
def number(b):
    sign, e, m = -1 if b >> 7 else 1, b >> 3 & 15, b & 7
    return sign * ((1 + m / 8) * 2.0 ** (e - 7) if e else m / 8 * 2.0 ** -6)
def single(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]
a, b = load(sys.argv[1]), load(sys.argv[2])
name = 'q.weight' if 'q.weight' in a else 'p.weight'
scale = struct.unpack('<4f', a.get(name + '_scale_inv') or a[name + '_scale'])
got = struct.unpack('<36f', b[name])
want = tuple(single(number(x) * scale[i // 6 // 4 * 2 + i % 6 // 4]) for i, x in enumerate(a[name]))
print('as blocks of 4 x 4' if got == want else 'other values')
EOP
    rm -r floats
done
grep -c quantization_config cast_block/config.json same_block/config.json
ckpt ls cast_mxfp4
echo "== what was done is said; floats are compared with what is meant"
ckpt convert block said --to hf --dtype bf16 2>&1 | grep -o 'dequantized: .*'
ckpt convert block said --to hf --dtype bf16 --dry-run 2>/dev/null | grep dequantized
ckpt convert block said --to hf --dtype bf16 --dry-run --json 2>/dev/null | grep dequantized
ckpt diff block said
ckpt diff -q said block
echo $?
ckpt diff channel said | tail -1
ckpt diff -q gptq said
echo $?
echo "== a run begins in the model's own dtype; scales stay those of all rows"
printf 'norm.weight\np.weight\n' >order
ckpt reshard -q block run --stage 2 --world 2 --order order && ckpt convert -q run back --to hf --dtype bf16 && ckpt diff back said
ckpt convert -q block rows_cut --to hf --vocab-size 3 --vocab-tensor p.weight
echo $?
ckpt convert -q block rows_cut --to hf --vocab-size 3 --vocab-tensor p.weight --dtype bf16
echo $?
echo "== what says how weights were quantized does not go along with floats"
touch block/recipe.yaml
echo '{}' >block/hf_quant_config.json
ckpt convert block plain_side --to hf --dtype bf16 2>&1 | grep 'config.json\|recipe'
ls plain_side
echo "== files without a configuration, whose names show packed weights"
python3 - <<'EOP'
exec(open('make.py').read().split('BLOCK =')[0])
SIZES.update(I8=1)
folder('silent_gptq', None, {'p.qweight': ('I32', [4, 6]), 'p.scales': ('F16', [1, 6])})
folder('silent_words', None, {'p.weight_packed': ('I32', [4, 6]), 'p.weight_scale': ('BF16', [4, 1])})
folder('silent_nf4', None, {'p.weight': ('U8', [12, 1]), 'p.weight.absmax': ('F32', [1]), 'p.weight.quant_map': ('F32', [16])})
folder('silent_int8', None, {'p.weight': ('I8', [4, 6]), 'p.SCB': ('F32', [4])})
folder('silent_numbers', None, {'p.weight': ('I32', [4, 6]), 'q.weight': ('U8', [4]), 'q.scales': ('F16', [4])})
EOP
for f in silent_gptq silent_words silent_nf4 silent_int8 silent_numbers; do
    ckpt convert -q $f/model.safetensors same.safetensors -f && ckpt diff -q $f/model.safetensors same.safetensors
    ckpt convert -q $f/model.safetensors floats.safetensors -f --dtype bf16
    echo "$f $?"
    ckpt merge -q --method linear -f -o merged.safetensors $f/model.safetensors $f/model.safetensors 2>/dev/null
    echo "merge $?"
done
# the command that made a copy, floats of one dtype, and floats beside a bias that keeps F32
for name in block channel mxfp4 router; do
    for dtype in '' bf16 f32; do
        ckpt convert -qf $name made --to hf ${dtype:+--dtype $dtype} 2>/dev/null
        ckpt verify made --made-from $name 2>/dev/null | tail -n 1
    done
done
