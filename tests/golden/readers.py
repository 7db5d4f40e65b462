# SPDX-License-Identifier: Apache-2.0
"""Independent readers for what the tools write: safetensors and torch zip files, with Python's standard library only.

Both give {name: (dtype, shape, sha256 of the row-major little-endian bytes)}, in file order.  The pickle is read by an Unpickler
whose find_class makes inert stand-ins: nothing named in a file is ever imported.
"""
import hashlib
import io
import json
import pickle
import struct
import zipfile

# safetensors name -> torch name, bits
ST = {'F64': ('float64', 64), 'F32': ('float32', 32), 'F16': ('float16', 16), 'BF16': ('bfloat16', 16),
      'F8_E4M3': ('float8_e4m3fn', 8), 'F8_E5M2': ('float8_e5m2', 8), 'F8_E4M3FNUZ': ('float8_e4m3fnuz', 8),
      'F8_E5M2FNUZ': ('float8_e5m2fnuz', 8), 'F8_E8M0': ('float8_e8m0fnu', 8), 'F4': ('float4_e2m1fn_x2', 4),
      'F6_E2M3': ('float6_e2m3', 6), 'F6_E3M2': ('float6_e3m2', 6),
      'I64': ('int64', 64), 'I32': ('int32', 32), 'I16': ('int16', 16), 'I8': ('int8', 8), 'U64': ('uint64', 64),
      'U32': ('uint32', 32), 'U16': ('uint16', 16), 'U8': ('uint8', 8), 'BOOL': ('bool', 8), 'C64': ('complex64', 64)}
STORAGE = {'DoubleStorage': ('float64', 8), 'FloatStorage': ('float32', 4), 'HalfStorage': ('float16', 2),
           'BFloat16Storage': ('bfloat16', 2), 'LongStorage': ('int64', 8), 'IntStorage': ('int32', 4),
           'ShortStorage': ('int16', 2), 'CharStorage': ('int8', 1), 'ByteStorage': ('uint8', 1),
           'BoolStorage': ('bool', 1), 'ComplexFloatStorage': ('complex64', 8), 'ComplexDoubleStorage': ('complex128', 16)}
WIDTH = {'complex32': 4, 'complex64': 8, 'complex128': 16}


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Entry(tuple):
    """(dtype, shape, SHA-256) of a tensor, with its bytes beside."""

    def __new__(cls, dtype, shape, raw):
        e = super().__new__(cls, (dtype, shape, sha(raw)))
        e.raw = raw
        return e

    def narrowed(self, dtype):
        """A float32 entry as the 16-bit one that it was widened from; itself if it is none."""
        n = len(self.raw) // 4
        if self[0] != 'float32' or dtype not in ('bfloat16', 'float16'):
            return self
        if dtype == 'bfloat16':
            narrow = b''.join(self.raw[i + 2:i + 4] for i in range(0, 4 * n, 4))
            wide = b''.join(b'\0\0' + narrow[i:i + 2] for i in range(0, 2 * n, 2))
        else:
            try:
                narrow = struct.pack('<%de' % n, *struct.unpack('<%df' % n, self.raw))
            except OverflowError:
                return self
            wide = struct.pack('<%df' % n, *struct.unpack('<%de' % n, narrow))
        return Entry(dtype, self[1], narrow) if wide == self.raw else self


def read_safetensors(path):
    with open(path, 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        head = json.loads(f.read(n))
        base = 8 + n
        out = {}
        meta = head.pop('__metadata__', {})
        for name, e in head.items():
            b, t = e['data_offsets']
            f.seek(base + b)
            dtype, bits = ST[e['dtype']]
            shape = list(e['shape'])
            if dtype == 'float4_e2m1fn_x2':
                shape[-1] //= 2
            out[name] = Entry(dtype, shape, f.read(t - b))
        f.seek(0, 2)
        assert f.tell() == base + max([e['data_offsets'][1] for e in head.values()] or [0]), 'trailing bytes'
    return out, meta


class Name:
    """A class or function merely named."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *args):
        return Call(self.name, args)


class Call(dict):
    """What calling it would have made; behaves as a dict so that SETITEMS works on ordered dicts."""

    def __init__(self, name, args):
        super().__init__()
        self.fn, self.args = name, args

    def __setstate__(self, state):
        self.state = state

    def __hash__(self):
        return id(self)


class Inert(pickle.Unpickler):
    def find_class(self, module, name):
        return Name(module + '.' + name)

    def persistent_load(self, pid):
        return ('storage', pid)


def read_torch(path):
    """Tensors of a flat dict; also checks every CRC of the archive (zipfile does that when it reads)."""
    z = zipfile.ZipFile(path)
    assert z.testzip() is None
    names = {i.filename.split('/', 1)[1]: i.filename for i in z.infolist()}
    root = Inert(io.BytesIO(z.read(names['data.pkl']))).load()
    out = {}
    for name, t in root.items():
        if t.fn == 'torch._utils._rebuild_tensor_v2':
            (_, pid), offset, shape, stride = t.args[:4]
            dtype, width = STORAGE[pid[1].name.split('.')[-1]]
        else:
            assert t.fn == 'torch._utils._rebuild_tensor_v3', t.fn
            (_, pid), offset, shape, stride = t.args[:4]
            dtype = t.args[6].name.split('.')[-1]
            width = WIDTH.get(dtype) or (8 if dtype.endswith('64') else 4 if dtype.endswith('32') else
                                         2 if dtype in ('uint16', 'bits16') else 1)
        data = z.read(names['data/' + pid[2]])
        n = 1
        for s in shape:
            n *= s
        want = 1
        for s, st in reversed(list(zip(shape, stride))):
            assert s <= 1 or st == want, 'not contiguous'
            want *= max(s, 1)
        out[name] = Entry(dtype, list(shape), data[offset * width:(offset + n) * width])
    return out
