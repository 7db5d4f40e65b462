# SPDX-License-Identifier: Apache-2.0
# Tensors of torchao's classes in files of torch.save become floats, and nothing of their modules is imported.
cat >make.py <<'EOP'
import io, pickle, struct, sys, types, zipfile


def module(name):
    return sys.modules.setdefault(name, types.ModuleType(name))


def named(of, name, make):
    made = make()
    made.__module__, made.__qualname__, made.__name__ = of, name, name
    setattr(module(of), name, made)
    return made


def function():
    return lambda *a: None


def cls():
    return type('x', (), {})


v2, from_type, wrapper, parameter = (named(m, n, function) for m, n in (
    ('torch._utils', '_rebuild_tensor_v2'), ('torch._tensor', '_rebuild_from_type_v2'), ('torch._utils', '_rebuild_wrapper_subclass'),
    ('torch._utils', '_rebuild_parameter')))
STORAGES = {k: named('torch', n + 'Storage', cls) for k, n in (('b', 'Char'), ('B', 'Byte'), ('f', 'Float'))}
AO = {n: named(m, n, cls) for m, n in (('torchao.quantization', 'Int8Tensor'), ('torchao.quantization', 'Int4PreshuffledTensor'),
                                       ('torchao.prototype.mx_formats.mx_tensor', 'MXTensor'))}


class Named:
    """torch.float32 and the like: a name that is no class."""
    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return self.name


class Call:
    def __init__(self, of, *args):
        self.of, self.args = of, args

    def __reduce__(self):
        return self.of, self.args


class Storage:
    def __init__(self, code, values):
        self.code, self.values = code, values


class Pickler(pickle._Pickler):
    def __init__(self, *a):
        super().__init__(*a)
        self.records = []

    def persistent_id(self, o):
        if not isinstance(o, Storage):
            return None
        self.records.append(struct.pack('<%d%s' % (len(o.values), o.code), *o.values))
        return 'storage', STORAGES[o.code], str(len(self.records) - 1), 'cpu', len(o.values)

    def save_global(self, obj, name=None):
        self.write(b'c' + ('%s\n%s\n' % (obj.__module__, obj.__qualname__)).encode())

    def save_dtype(self, obj):
        self.write(b'ctorch\n' + obj.name.encode() + b'\n')

    dispatch = dict(pickle._Pickler.dispatch)
    dispatch[Named] = save_dtype
    dispatch[types.FunctionType] = dispatch[type] = save_global


def tensor(code, shape, values):
    stride = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        stride[i - 1] = stride[i] * shape[i]
    import collections
    return Call(v2, Storage(code, values), 0, tuple(shape), tuple(stride), False, collections.OrderedDict())


def wrapped(kind, shape, **state):
    f32 = Named('float32')
    return Call(from_type, wrapper, AO[kind], (AO[kind], f32, tuple(shape), (shape[1], 1), 0, None, None, False), state)


def save(path, value):
    out = io.BytesIO()
    p = Pickler(out, 2)
    p.dump(value)
    with zipfile.ZipFile(path, 'w') as z:
        z.writestr('a/data.pkl', out.getvalue())
        for i, record in enumerate(p.records):
            z.writestr('a/data/%d' % i, record)
        z.writestr('a/version', '3\n')


Q, S = tensor('b', [2, 4], [1, -2, 3, -4, 5, 6, -7, 8]), tensor('f', [2, 1], [0.5, 2.0])
good = dict(qdata=Q, scale=S, zero_point=tensor('b', [2, 1], [1, 0]), block_size=[1, 4], act_quant_kwargs=None)
mx = dict(qdata=tensor('B', [1, 16], list(range(16))), scale=tensor('B', [1, 1], [128]), block_size=32, elem_dtype=Named('float4_e2m1fn_x2'),
          orig_dtype=Named('float32'), is_swizzled_scales=False)
weight = wrapped('Int8Tensor', [2, 4], **good)
save('good.pt', {'model': {'a.weight': weight, 'tied': weight, 'b.weight': Call(parameter, wrapped('MXTensor', [1, 32], **mx), False, {}),
                           'plain': tensor('f', [1], [7.0])}})
for name, kind, shape, change in (
        ('shape', 'Int8Tensor', [2, 5], {}), ('no_scale', 'Int8Tensor', [2, 4], {'scale': None}), ('no_data', 'Int8Tensor', [2, 4], {'qdata': 3}),
        ('blocks', 'Int8Tensor', [2, 4], {'block_size': [1, 3]}), ('no_blocks', 'Int8Tensor', [2, 4], {'block_size': 'x'}),
        ('smoothed', 'Int8Tensor', [2, 4], {'act_pre_scale': S}), ('other', 'Int4PreshuffledTensor', [2, 4], {}),
        ('quoted', 'Int8Tensor', [2, 4], {'x", "y': S}), ('nul', 'Int8Tensor', [2, 4], {'x\0': S}),
        ('many', 'Int8Tensor', [2, 4], {'p%d' % i: S for i in range(5)})):
    save(name + '.pt', {'a.weight': wrapped(kind, shape, **{k: v for k, v in dict(good, **change).items() if v is not None})})
deep, loop, shared = [1], [], 7
for _ in range(60):
    deep = [deep]
loop.append(loop)
for _ in range(4):
    shared = [shared] * 3000
for name, change in (('deep', {'block_size': deep}), ('loop', {'block_size': loop}), ('shared', {'block_size': shared}),
                     ('zero', {'block_size': [0, 0]}), ('huge', {'block_size': [1 << 62, 1 << 62]}), ('no_scales', {'scale': tensor('f', [0], [])}),
                     ('scale_of_scales', {'scale': weight}), ('overflow', {'qdata': tensor('b', [1 << 62, 4], [1] * 8)})):
    save(name + '.pt', {'a.weight': wrapped('Int8Tensor', [2, 4], **dict(good, **change))})
for name, change in ('mx_zero', {'block_size': 0}), ('mx_huge', {'block_size': 1 << 62}):
    save(name + '.pt', {'a.weight': wrapped('MXTensor', [1, 32], **dict(mx, **change))})
for name, change in ('wide', {'block_size': 64}), ('few', {'scale': tensor('B', [1, 2], [1, 1])}), ('fp6', {'elem_dtype': 'fp6_e2m3'}), (
        'e4m3', {'elem_dtype': Named('float8_e4m3fn')}), ('swizzled', {'is_swizzled_scales': True}):
    save(name + '.pt', {'a.weight': wrapped('MXTensor', [1, 32], **dict(mx, **change))})
EOP
python3 make.py
ckpt ls good.pt
for name in model.a.weight model.tied model.b.weight; do
    ckpt cat good.pt $name
done
ckpt convert -q good.pt out.safetensors && ckpt ls out.safetensors
ckpt verify -q out.safetensors --made-from good.pt && echo made
echo "== refused"
for f in quoted nul shape no_scale no_data blocks no_blocks smoothed other many wide few fp6 e4m3 swizzled \
    deep loop shared zero huge no_scales scale_of_scales overflow mx_zero mx_huge; do
    ckpt convert -qf $f.pt out.safetensors
    echo "$f $?"
done 2>&1
ckpt verify -q other.pt
echo "verify $?"
