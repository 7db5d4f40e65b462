# SPDX-License-Identifier: Apache-2.0
# GPTQ, AWQ, bitsandbytes, pack-quantized and FP4 folders: floats wherever floats are read, and refusals where parts contradict each other.
cat >words.py <<'EOP'
import functools, json, os, random, shutil, struct

BASE = os.environ['FIXTURES'] + '/gguf_llama_deep/hf'


def load(path):
    data = open(path + '/model.safetensors', 'rb').read()
    n = struct.unpack('<Q', data[:8])[0]
    return {k: (v['dtype'], v['shape'], data[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]])
            for k, v in json.loads(data[8:8 + n]).items() if k != '__metadata__'}


def save(path, tensors, stored_as, **config):
    os.makedirs(path, exist_ok=True)
    header, at = {'__metadata__': {'format': 'pt'}}, 0
    for key, (dtype, shape, data) in sorted(tensors.items()):
        if key.endswith('_qdata'):
            said = {'_type': 'Int8Tensor', '_tensor_data_names': ['qdata', 'scale', 'zero_point'], '_data': {'block_size': [1, 16], 'dtype': {'_type': 'torch.dtype', '_data': 'float16'}}}
            header['__metadata__'][key[:-len('_qdata')].replace('._', '.')] = json.dumps(said)
        header[key] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path + '/model.safetensors', 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(data for _, (_, _, data) in sorted(tensors.items())))
    whole = dict(json.load(open(BASE + '/config.json')), quantization_config=stored_as, **config)
    json.dump(whole, open(path + '/config.json', 'w'))


def i32(rows):
    flat = [x - (x >> 31 << 32) for row in rows for x in row]
    return 'I32', [len(rows), len(rows[0])], struct.pack('<%di' % len(flat), *flat)


def half(rows):
    flat = [x for row in rows for x in row]
    return 'F16', [len(rows), len(rows[0])], struct.pack('<%de' % len(flat), *flat)


def pack(numbers, order=range(8)):
    return [sum(numbers[i + k] << 4 * at for at, k in enumerate(order)) for i in range(0, len(numbers), 8)]


def turn(rows):
    return [list(column) for column in zip(*rows)]


def single(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def singles(*flat):
    return 'F32', [len(flat)], struct.pack('<%df' % len(flat), *flat)


NF4 = [single(x) for x in (-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                           -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                           0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1)]


def nf4(name, rows, cols):
    n, codes = rows * cols, [random.randrange(16) for _ in range(rows * cols)]
    factors, of = [random.randrange(256) for _ in range(n // 64)], [single((k - 127) / 3000) for k in range(256)]
    state = json.dumps({'quant_type': 'nf4', 'blocksize': 64, 'dtype': 'float16', 'shape': [rows, cols], 'nested_blocksize': 256,
                        'nested_dtype': 'float32', 'nested_offset': 0.0625}).encode()
    made = {name: ('U8', [n // 2, 1], bytes(codes[i] << 4 | codes[i + 1] for i in range(0, n, 2))), name + '.absmax': ('U8', [n // 64], bytes(factors)),
            name + '.nested_absmax': singles(0.75), name + '.nested_quant_map': singles(*of), name + '.quant_map': singles(*NF4),
            name + '.quant_state.bitsandbytes__nf4': ('U8', [len(state)], state)}
    block = [single(single(of[c] * 0.75) + 0.0625) for c in factors]
    return made, ('F16', [rows, cols], struct.pack('<%de' % n, *[single(NF4[c] * block[i // 64]) for i, c in enumerate(codes)]))


def int8(name, rows, cols):
    q, scb = [random.randrange(-127, 128) for _ in range(rows * cols)], [single(random.random()) for _ in range(rows)]
    made = {name: ('I8', [rows, cols], struct.pack('<%db' % len(q), *q)), name[:-len('weight')] + 'SCB': singles(*scb),
            name + '_format': ('U8', [], b'\0')}
    by = single(7.874015718698502e-3)
    return made, ('F32', [rows, cols], struct.pack('<%df' % len(q), *[single(single(x * scb[i // cols]) * by) for i, x in enumerate(q)]))


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def fp4(kind, name, rows, cols):
    """Scales of few bits, so that no product is rounded; ModelOpt has no negative zero."""
    q, s = [random.randrange(16) for _ in range(rows * cols)], [random.randrange(0x28, 0x48) for _ in range(rows * cols // 16)]
    packed = 'U8', [rows, cols // 2], bytes(q[i] | q[i + 1] << 4 for i in range(0, len(q), 2))
    made = {name + '_scale': ('F8_E4M3', [rows, cols // 16], bytes(s))}
    if kind == 'nvfp4':
        made.update({name + '_packed': packed, name + '_global_scale': singles(4.0)})
    else:
        made.update({name: packed, name + '_scale_2': ('F32', [], struct.pack('<f', 0.25))})
    by = [(1 + x % 8 / 8) * 2.0 ** ((x >> 3) - 7) / 4 for x in s]
    floats = [(E2M1[c] + 0.0 if kind == 'modelopt' else E2M1[c]) * by[i // 16] for i, c in enumerate(q)]
    return made, ('F16', [rows, cols], struct.pack('<%de' % len(q), *floats))


def e4m3(x):
    exponent, mantissa = x >> 3 & 15, x & 7
    value = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0 ** -9
    return -value if x >> 7 else value


def halves(x):
    return struct.unpack('<e', struct.pack('<e', x))[0]


def mlx(name, rows, cols):
    """Four bits; down_proj has three, and up_proj exponents and E2M1."""
    bits, module = 3 if 'down_proj' in name else 4, name[:-len('weight')]
    q = [random.randrange(1 << bits) for _ in range(rows * cols)]
    number = sum(x << bits * i for i, x in enumerate(q))
    made = {name: ('U32', [rows, cols * bits // 32], number.to_bytes(len(q) * bits // 8, 'little'))}
    if 'up_proj' in name:
        e = [random.randrange(121, 126) for _ in range(len(q) // 32)]
        made[module + 'scales'] = 'U8', [rows, cols // 32], bytes(e)
        return made, ('F16', [rows, cols], struct.pack('<%de' % len(q), *[E2M1[c] * 2.0 ** (e[i // 32] - 127) for i, c in enumerate(q)]))
    s, b = ([halves(random.uniform(-0.1, 0.1)) for _ in range(len(q) // 32)] for _ in range(2))
    for end, x in ('scales', s), ('biases', b):
        made[module + end] = half([x[i:i + cols // 32] for i in range(0, len(x), cols // 32)])
    floats = [halves(halves(c * s[i // 32]) + b[i // 32]) for i, c in enumerate(q)]
    return made, ('F16', [rows, cols], struct.pack('<%de' % len(q), *floats))


def parts(kind, name, rows, cols):
    """Random numbers of four bits in groups of 16, as the kind stores them, and the floats that they stand for."""
    if kind == 'mlx':
        return mlx(name, rows, cols)
    if kind in ('nf4', 'int8'):
        return (nf4 if kind == 'nf4' else int8)(name, rows, cols)
    if kind in ('nvfp4', 'modelopt'):
        return fp4(kind, name, rows, cols)
    if kind in ('torchao', 'uneven'):
        q, z = ([random.randrange(-128, 128) for _ in range(n)] for n in (rows * cols, rows * cols // 16))
        s, grid = [random.randrange(1, 512) / 8192 for _ in z], [rows, cols // 16]
        made = {'_weight_qdata': ('I8', [rows, cols], struct.pack('<%db' % len(q), *q)), '_weight_scale': ('F32', grid, struct.pack('<%df' % len(s), *s)),
                '_weight_zero_point': ('I8', grid, struct.pack('<%db' % len(z), *z))}
        floats = [(x - z[i // 16]) * s[i // 16] for i, x in enumerate(q)]
        if kind == 'uneven':
            made = {end.replace('_weight_qdata', 'weight').replace('_weight', 'weight'): t for end, t in made.items()}
            made['weight_scale'] = 'F16', grid, struct.pack('<%de' % len(s), *s)
        return ({name[:-len('weight')] + end: t for end, t in made.items()}, ('F16', [rows, cols], struct.pack('<%de' % len(q), *floats)))
    if kind == 'fp8':
        s, by = [random.randrange(1 << 7) % 0x7e | random.randrange(2) << 7 for _ in range(rows * cols)], 0.0625
        floats = [e4m3(x) * by for x in s]
        return ({name: ('F8_E4M3', [rows, cols], bytes(s)), name + '_scale': ('F32', [], struct.pack('<f', by)),
                 name[:-len('weight')] + 'input_scale': singles(2.0)}, ('F16', [rows, cols], struct.pack('<%de' % len(floats), *floats)))
    groups = cols // 16
    q = [[random.randrange(16) for _ in range(cols)] for _ in range(rows)]
    z = [[random.randrange(1, 15) for _ in range(groups)] for _ in range(rows)]
    s = [[random.randrange(1, 512) / 8192 for _ in range(groups)] for _ in range(rows)]
    of = [c // 16 for c in range(cols)]
    module = name[:-len('.weight')]
    if kind == 'gptq':
        random.shuffle(of)
        made = {module + '.qweight': i32(turn([pack(row) for row in q])), module + '.qzeros': i32([pack([x - 1 for x in row]) for row in turn(z)]),
                module + '.scales': half(turn(s)), module + '.g_idx': ('I32', [cols], struct.pack('<%di' % cols, *of))}
    elif kind == 'awq':
        order = 0, 2, 4, 6, 1, 3, 5, 7
        made = {module + '.qweight': i32([pack(row, order) for row in turn(q)]), module + '.qzeros': i32([pack(row, order) for row in turn(z)]),
                module + '.scales': half(turn(s))}
    elif kind == 'gemv':
        # a group of 32, and zeros and scales that are padded to 32
        z, s = ([[x[c // 32] for c in range(0, cols, 32)] for x in rows] for rows in (z, s))
        of = [c // 32 for c in range(cols)]
        made = {module + '.qweight': i32([pack(row) for row in q]), module + '.qzeros': i32([pack(row + [0] * (32 - len(row))) for row in z]),
                module + '.scales': half([row + [0] * (32 - len(row)) for row in s])}
    else:
        made = {name + '_packed': i32([pack(row) for row in q]), name + '_zero_point': i32(turn([pack(column) for column in turn(z)])),
                name + '_scale': half(s), name + '_shape': ('I64', [2], struct.pack('<2q', rows, cols))}
    floats = [struct.unpack('<e', struct.pack('<e', (q[r][c] - z[r][of[c]]) * s[r][of[c]]))[0] for r in range(rows) for c in range(cols)]
    return made, ('F16', [rows, cols], struct.pack('<%de' % len(floats), *floats))


SETTINGS = {'gptq': {'quant_method': 'gptq', 'bits': 4, 'group_size': 16, 'desc_act': True, 'sym': False, 'checkpoint_format': 'gptq'},
            'awq': {'quant_method': 'awq', 'bits': 4, 'group_size': 16, 'version': 'GEMM', 'zero_point': True},
            'gemv': {'quant_method': 'awq', 'bits': 4, 'group_size': 32, 'version': 'gemv', 'zero_point': True},
            'fp8': {'quant_method': 'modelopt', 'quant_algo': 'FP8', 'config_groups': {'group_0': {
                'weights': {'num_bits': 8, 'type': 'float', 'dynamic': False}}}},
            'packed': {'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'config_groups': {'group_0': {
                'weights': {'num_bits': 4, 'type': 'int', 'strategy': 'group', 'group_size': 16, 'symmetric': False}}}},
            'uneven': {'quant_method': 'compressed-tensors', 'format': 'int-quantized', 'config_groups': {'group_0': {
                'weights': {'num_bits': 8, 'type': 'int', 'strategy': 'group', 'group_size': 16, 'symmetric': False}}}},
            'nf4': {'quant_method': 'bitsandbytes', 'load_in_4bit': True, 'load_in_8bit': False},
            'int8': {'quant_method': 'bitsandbytes', 'load_in_4bit': False, 'load_in_8bit': True},
            'nvfp4': {'quant_method': 'compressed-tensors', 'format': 'nvfp4-pack-quantized', 'config_groups': {'group_0': {
                'weights': {'num_bits': 4, 'type': 'float', 'strategy': 'tensor_group', 'group_size': 16, 'symmetric': True}}}},
            'mlx': dict({'group_size': 32, 'bits': 4}, **{'model.layers.%d.mlp.%s_proj' % (i, k): v for i in range(9) for k, v in (
                ('down', {'group_size': 32, 'bits': 3}), ('up', {'group_size': 32, 'bits': 4, 'mode': 'mxfp4'}))}),
            'modelopt': {'quant_method': 'modelopt', 'quant_algo': 'NVFP4', 'group_size': 16}, 'torchao': {'quant_method': 'torchao'}}


@functools.cache
def quantize(kind):
    random.seed(7)
    stored, floats = {}, {}
    for name, (dtype, shape, data) in load(BASE).items():
        if '_proj.' in name:
            made, floats[name] = parts(kind, name, *shape)
            stored.update(made)
        else:
            stored[name] = floats[name] = dtype, shape, data
    return stored, floats


def bad(name, change, kind='gptq', **more):
    stored = dict(quantize(kind)[0])
    change(stored)
    save(name, stored, dict(SETTINGS[kind], **more))


def tensor(stored, end, change):
    for name in sorted(stored):
        if name.endswith('layers.0.mlp.down_proj.' + end):
            made = change(*stored.pop(name))
            if made:
                stored[name] = made
            return


if __name__ == '__main__':
    for kind in SETTINGS:
        stored, floats = quantize(kind)
        dtype = {'dtype': 'float32'} if kind == 'int8' else {}
        save(kind, stored, SETTINGS[kind], **dtype)
        save(kind + '_floats', floats, None, **dtype)
        for name in os.listdir(BASE):
            if not os.path.exists(kind + '/' + name):
                shutil.copy(BASE + '/' + name, kind)
                shutil.copy(BASE + '/' + name, kind + '_floats')
    os.mkdir('lora')
    name = 'base_model.model.model.layers.1.self_attn.q_proj.lora_'
    ab = {name + x + '.weight': half([[random.randrange(-64, 64) / 64 for _ in range(c)] for _ in range(r)]) for x, r, c in (('A', 2, 32), ('B', 32, 2))}
    save('lora', ab, None)
    os.remove('lora/config.json')
    os.rename('lora/model.safetensors', 'lora/adapter_model.safetensors')
    json.dump({'peft_type': 'LORA', 'r': 2, 'lora_alpha': 2, 'target_modules': ['q_proj'], 'base_model_name_or_path': 'x'}, open('lora/adapter_config.json', 'w'))
EOP
python3 words.py
for kind in gptq awq gemv packed uneven nf4 int8 nvfp4 modelopt fp8 torchao mlx; do
    dtype=fp16
    [ $kind != int8 ] || dtype='f32:*_proj*'
    echo "== $kind"
    ckpt info $kind | grep quantized
    ckpt convert $kind $kind.f16 --to hf --dtype "$dtype" 2>&1 | grep -o 'dequantized: .*'
    ckpt verify -q --strict $kind.f16 && ckpt diff $kind.f16 ${kind}_floats
    grep -c quantization_config $kind.f16/config.json
    ckpt diff $kind ${kind}_floats
    ckpt convert -q $kind a.gguf -f --dtype q8_0 && ckpt convert -q ${kind}_floats b.gguf -f --dtype q8_0 && ckpt diff a.gguf b.gguf
    ckpt merge -q --method linear -f -o a.safetensors $kind:0.5 ${kind}_floats:0.5 &&
        ckpt merge -q --method linear -f -o b.safetensors ${kind}_floats:0.5 ${kind}_floats:0.5 && ckpt diff a.safetensors b.safetensors
    ckpt convert -q $kind a.safetensors -f --adapter lora && ckpt convert -q ${kind}_floats b.safetensors -f --adapter lora &&
        ckpt diff a.safetensors b.safetensors
    ckpt convert -q $kind $kind.same --to hf && ckpt diff -q $kind $kind.same && cmp $kind/config.json $kind.same/config.json
    ckpt verify -q $kind.f16 --made-from $kind --dtype "$dtype" && echo made
done
echo "== parts that contradict each other, and settings that are not read"
python3 - <<'EOP'
from words import *
down = 'model.layers.0.mlp.down_proj'
bad('no_zeros', lambda s: tensor(s, 'qzeros', lambda *t: None))
bad('no_words', lambda s: tensor(s, 'qweight', lambda *t: None))
bad('no_scales', lambda s: tensor(s, 'scales', lambda *t: None))
bad('no_index', lambda s: tensor(s, 'g_idx', lambda *t: None))
bad('index', lambda s: tensor(s, 'g_idx', lambda d, n, b: (d, n, b[:-4] + struct.pack('<i', 4))))
bad('negative', lambda s: tensor(s, 'g_idx', lambda d, n, b: (d, n, struct.pack('<i', -1) + b[4:])))
bad('short_index', lambda s: tensor(s, 'g_idx', lambda d, n, b: (d, [n[0] - 1], b[:-4])))
bad('few_scales', lambda s: tensor(s, 'scales', lambda d, n, b: (d, [n[0] // 2, n[1]], b[:len(b) // 2])))
bad('wide_zeros', lambda s: tensor(s, 'qzeros', lambda d, n, b: (d, [n[0] // 2, n[1] * 2], b)))
bad('odd_scales', lambda s: tensor(s, 'scales', lambda d, n, b: ('I32', [n[0], n[1] // 2], b)))
bad('flat', lambda s: tensor(s, 'qweight', lambda d, n, b: (d, [n[0] * n[1]], b)))
bad('other_words', lambda s: tensor(s, 'qweight', lambda d, n, b: ('F32', n, b)))
bad('twice', lambda s: s.update({'model.layers.0.mlp.down_proj.weight': s['model.norm.weight']}))
bad('stray', lambda s: s.update({'model.layers.0.mlp.down_proj.channel_scale': s['model.norm.weight']}))
bad('two_bits', lambda s: None, bits=2)
bad('five_bits', lambda s: None, bits=5)
bad('groups', lambda s: None, group_size=32)
bad('no_group', lambda s: None, group_size=0)
bad('marlin', lambda s: None, checkpoint_format='marlin')
bad('two_formats', lambda s: None, format='gptq_v2')
bad('adapter', lambda s: None, adapter={'rank': 4})
bad('dynamic', lambda s: None, dynamic={'+:.*': {'bits': 4, 'rotate': True}})
bad('pack_dtype', lambda s: None, pack_dtype='int16')
bad('of_gemv', lambda s: None, 'awq', version='gemv')
bad('gemv_group', lambda s: None, 'gemv', group_size=64)
bad('gemv_index', lambda s: s.update({'model.layers.0.mlp.down_proj.g_idx': s['model.norm.weight']}), 'gemv')
bad('gemv_fast', lambda s: None, 'gemv', version='gemv_fast')
bad('llm_awq', lambda s: None, 'awq', backend='llm-awq')
bad('three', lambda s: None, 'awq', bits=3)
bad('awq_zeros', lambda s: tensor(s, 'qzeros', lambda d, n, b: (d, [n[0] * 2, n[1] // 2], b)), 'awq')
bad('no_shape', lambda s: tensor(s, 'weight_shape', lambda *t: None), 'packed')
bad('shape', lambda s: tensor(s, 'weight_shape', lambda d, n, b: (d, n, struct.pack('<2q', 32, 72))), 'packed')
bad('rows', lambda s: tensor(s, 'weight_shape', lambda d, n, b: (d, n, struct.pack('<2q', -32, 64))), 'packed')
bad('even', lambda s: tensor(s, 'weight_zero_point', lambda *t: None), 'packed')
bad('zero_rows', lambda s: tensor(s, 'weight_zero_point', lambda d, n, b: (d, [n[0] * 2, n[1] // 2], b)), 'packed')
bad('no_zero', lambda s: tensor(s, 'weight_zero_point', lambda *t: None), 'uneven')
bad('few_zeros', lambda s: tensor(s, 'weight_zero_point', lambda d, n, b: (d, [n[0] * 2, n[1] // 2], b)), 'uneven')
bad('even_zeros', lambda s: None, 'uneven', config_groups={'group_0': {'weights': {'num_bits': 8, 'type': 'int', 'strategy': 'group', 'group_size': 16}}})
bad('nibbles', lambda s: None, 'packed', config_groups={'group_0': {'weights': {'num_bits': 3, 'type': 'int', 'strategy': 'channel'}}})
bad('stray_packed', lambda s: s.update({'model.layers.0.mlp.down_proj.weight_global_scale': s['model.norm.weight']}), 'packed')
def state(**change):
    def edit(dtype, shape, data):
        text = json.dumps(dict(json.loads(data), **change)).encode()
        return dtype, [len(text)], text
    return lambda s: tensor(s, 'weight.quant_state.bitsandbytes__nf4', edit)


bad('no_state', lambda s: tensor(s, 'weight.quant_state.bitsandbytes__nf4', lambda *t: None), 'nf4')
bad('no_absmax', lambda s: tensor(s, 'weight.absmax', lambda *t: None), 'nf4')
bad('no_map', lambda s: tensor(s, 'weight.quant_map', lambda *t: None), 'nf4')
bad('no_nested', lambda s: tensor(s, 'weight.nested_absmax', lambda *t: None), 'nf4')
bad('other_map', lambda s: tensor(s, 'weight.quant_map', lambda d, n, b: (d, n, b[4:] + b[:4])), 'nf4')
bad('few_factors', lambda s: tensor(s, 'weight.absmax', lambda d, n, b: (d, [n[0] - 1], b[1:])), 'nf4')
bad('no_json', lambda s: tensor(s, 'weight.quant_state.bitsandbytes__nf4', lambda d, n, b: (d, [n[0] - 1], b[1:])), 'nf4')
bad('state_shape', state(shape=[32, 66]), 'nf4')
bad('state_size', state(shape=[32, -64]), 'nf4')
bad('state_block', state(blocksize=0), 'nf4')
bad('state_type', state(quant_type='fp4'), 'nf4')
bad('state_dtype', state(dtype='int8'), 'nf4')
bad('both', lambda s: None, 'nf4', load_in_8bit=True)
bad('few_rows', lambda s: tensor(s, 'SCB', lambda d, n, b: (d, [n[0] - 1], b[4:])), 'int8')
bad('no_rows', lambda s: tensor(s, 'SCB', lambda *t: None), 'int8')
bad('tiles', lambda s: tensor(s, 'weight_format', lambda d, n, b: (d, n, b'\3')), 'int8')
bad('no_global', lambda s: tensor(s, 'weight_global_scale', lambda *t: None), 'nvfp4')
bad('zero_global', lambda s: tensor(s, 'weight_global_scale', lambda d, n, b: (d, n, bytes(4))), 'nvfp4')
bad('two_globals', lambda s: tensor(s, 'weight_global_scale', lambda d, n, b: (d, [2], b + b)), 'nvfp4')
bad('exponents', lambda s: tensor(s, 'weight_scale', lambda d, n, b: ('U8', n, b)), 'nvfp4')
bad('wide_scales', lambda s: tensor(s, 'weight_scale', lambda d, n, b: (d, [n[0] // 2, n[1] * 2], b)), 'nvfp4')
bad('no_second', lambda s: tensor(s, 'weight_scale_2', lambda *t: None), 'modelopt')
bad('algo', lambda s: None, 'modelopt', quant_algo='NVFP4_AWQ')
bad('smoothed', lambda s: s.update({down + '.pre_quant_scale': s['model.norm.weight']}), 'modelopt')
bad('smoothed_fp8', lambda s: s.update({down + '.pre_quant_scale': s['model.norm.weight']}), 'fp8')
bad('second_fp8', lambda s: s.update({down + '.weight_scale_2': singles(0.25)}), 'fp8')
bad('no_scale_fp8', lambda s: tensor(s, 'weight_scale', lambda *t: None), 'fp8')
bad('blocks_fp8', lambda s: tensor(s, 'weight_scale', lambda d, n, b: ('F32', [2, 2], b * 4)), 'fp8')
bad('fp4_as_fp8', lambda s: None, 'modelopt', quant_algo='FP8', config_groups={})
bad('fp8_as_fp4', lambda s: None, 'fp8', quant_algo='NVFP4', group_size=16, config_groups={})
bad('mixed', lambda s: None, 'fp8', quant_algo='MIXED_PRECISION', quantized_layers={'a': {'quant_algo': 'W4A8_AWQ'}})
bad('ao_scales', lambda s: tensor(s, '_weight_scale', lambda d, n, b: (d, [n[0] // 2, n[1]], b[:len(b) // 2])), 'torchao')
bad('ao_none', lambda s: tensor(s, '_weight_scale', lambda *t: None), 'torchao')
bad('ao_zeros', lambda s: tensor(s, '_weight_zero_point', lambda *t: None), 'torchao')
bad('ao_packed', lambda s: s.update({down + '._weight_scale_and_zero': s['model.norm.weight']}), 'torchao')
bad('two_algos', lambda s: None, 'fp8')
json.dump({'quantization': {'quant_algo': 'NVFP4', 'group_size': 16}}, open('two_algos/hf_quant_config.json', 'w'))
bad('mlx_biases', lambda s: tensor(s, 'biases', lambda *t: None), 'mlx')
bad('mlx_few', lambda s: tensor(s, 'biases', lambda d, n, b: (d, [n[0], n[1] - 1], b[:n[0] * (n[1] - 1) * 2])), 'mlx')
bad('mlx_scales', lambda s: tensor(s, 'scales', lambda *t: None), 'mlx')
bad('mlx_bits', lambda s: None, 'mlx', **{down: {'group_size': 32, 'bits': 7}})
bad('mlx_group', lambda s: None, 'mlx', **{down: {'group_size': 64, 'bits': 3}})
bad('mlx_mode', lambda s: None, 'mlx', mode='mxfp6')
bad('mlx_codes', lambda s: None, 'mlx', **{down: {'mode': 'mxfp4'}})
bad('mlx_excluded', lambda s: None, 'mlx', **{down: False})
bad('mlx_stray', lambda s: s.update({down + '.zeros': s['model.norm.weight']}), 'mlx')
bad('mlx_signed', lambda s: tensor(s, 'weight', lambda d, n, b: ('I32', n, b)), 'mlx')
save('mlx_twice', quantize('mlx')[0], SETTINGS['mlx'], **{'quantization': {'group_size': 64, 'bits': 4}})
stored = quantize('gptq')[0]
save('conv1d', stored, SETTINGS['gptq'], model_type='gpt2')
for kind, name in ('gptq', 'table_head'), ('awq', 'awq_table'), ('gemv', 'gemv_table'):
    tables = {n.replace(down, 'model.embed_tokens'): t for n, t in quantize(kind)[0].items() if n.startswith(down)}
    rows, cols = quantize('gptq')[1][down + '.weight'][1]
    rows, cols = (rows, cols) if kind == 'gptq' else (cols, rows)
    save(name, tables, SETTINGS[kind], vocab_size=rows, hidden_size=cols)
save('auto_round', stored, dict(SETTINGS['gptq'], quant_method='auto-round', packing_format='auto_round:auto_gptq', checkpoint_format=None))
save('auto_round_2', stored, dict(SETTINGS['gptq'], quant_method='auto-round', packing_format='auto_round:llm_compressor', checkpoint_format=None))
EOP
for f in no_zeros no_words no_scales no_index table_head awq_table gemv_table index negative short_index few_scales wide_zeros odd_scales flat other_words twice stray two_bits five_bits groups no_group \
    marlin two_formats adapter dynamic pack_dtype of_gemv gemv_group gemv_index gemv_fast llm_awq three awq_zeros no_shape shape rows even zero_rows no_zero few_zeros even_zeros nibbles stray_packed no_state no_absmax \
    no_map no_nested other_map few_factors no_json state_shape state_size state_block state_type state_dtype both few_rows no_rows tiles \
    no_global zero_global two_globals exponents wide_scales no_second algo smoothed smoothed_fp8 second_fp8 no_scale_fp8 blocks_fp8 \
    fp4_as_fp8 fp8_as_fp4 mixed two_algos ao_scales ao_none ao_zeros ao_packed \
    mlx_biases mlx_few mlx_scales mlx_bits mlx_group mlx_mode mlx_codes mlx_excluded mlx_stray mlx_signed mlx_twice conv1d auto_round auto_round_2; do
    ckpt convert -q $f out --to hf --dtype fp16
    echo "$f $? $(ls -d out 2>&1)"
    rm -rf out
done 2>&1 | grep -v 'ckpt: warning'
echo "== MLX: another model's tensors"
sed 's/"llama"/"qwen3_next"/' mlx/config.json >config.json && mv config.json mlx
ckpt convert mlx mlx.again --to hf --dtype fp16 --strict 2>&1 | grep -c 'MLX wrote these weights'
