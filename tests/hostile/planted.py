#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kept or named: checkpoints with one more value, or another value on one rank, in the verbs that write.

  planted.py --bin build/bin [--log FILE] FIXTURES [NAME...]
  planted.py --into FILE WHERE KIND    add one value to a file, as tests of one case do

One value at a time goes into one file of a fixture.  No verb may end with status 0 unless the value is in its output, or its name
is in its messages.  What a verb leaves out by its definition is in EXCEPTIONS, each with its reason.
"""
import argparse
import collections
import io
import json
import os
import pickle
import pickletools
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

TEXT, NUMBER, REAL = 'planted_text', 7654321, 0.0007654321
ELEMENT = 1232.0  # has no rounding in bfloat16
SEEN_TENSOR = (struct.pack('<f', ELEMENT) * 2, struct.pack('<d', ELEMENT) * 2, struct.pack('<e', ELEMENT) * 2, struct.pack('<f', ELEMENT)[2:] * 2)
SEEN = {
    'text': (TEXT.encode(),), 'tensor': SEEN_TENSOR, 'matrix': SEEN_TENSOR, 'like': SEEN_TENSOR,
    'integer': (struct.pack('<i', NUMBER), b'%d' % NUMBER, struct.pack('<f', NUMBER), struct.pack('>d', NUMBER)),
    'real': (struct.pack('>d', REAL), b'%r' % REAL, struct.pack('<f', REAL)),
    'bool': (),
    'file': (TEXT.encode(),),
}
FIXTURES = ('z1_bf16_w3_groups', 'z3_bf16_w5_odd', 'accel_fsdp1_full_w2', 'rl_verl_fsdp1_w2', 'mlegacy_gpt2_tp2_pp2', 'mlegacy_distopt_dp2',
            'mcore_llama_distopt_dp2', 'mcore_llama_tp2', 'mcore_fsdp_w2', 'mcore_nemo2_dp2', 'hf_trainer_llama_z3_bf16_w2', 'moe_ep2_z2_w2', 'uni_z1_w3', 'fsdp2_mp_w2', 'old_hf_bert_bin', 'map_meta_s1', 'gguf_bert', 'numpy_npz',
            'safetensors_dtypes')
INNER = ('ckpt', 'meta', 'hf', 'adapter', 'universal')
VERBS = collections.OrderedDict((
    ('safetensors', 'convert --to safetensors SRC DST'),
    ('same', 'reshard SRC DST'),
    ('stage 3', 'reshard -s 3 SRC DST'),
    ('universal', 'reshard --to universal SRC DST'),
    ('dcp', 'reshard --to dcp SRC DST'),
    ('ranks', 'reshard --to fsdp-ranks SRC DST'),
    ('megatron', 'reshard --to megatron SRC DST'),
))
LAYOUT = 'it describes how the tensors of these files are cut; the output has its own'
# (source, file, place, kind, reason), regular expressions
EXCEPTIONS = (
    (r'.*', r'\.json$|random_states|\.txt$|modeling_own|second|custom_|rng_state|scaler|train_state', r'', r'.*',
     'files beside a run stay there: ckpt-reshard(1) writes the new tag next to them'),
    (r'.*', r'optim_states', r'param_slice_mappings|group_paddings|/params/\d+$', r'.*', LAYOUT),
    (r'.*', r'optim_states', r'/overflow$', r'bool.*', 'a flag of the last step, which no step reads again'),
    (r'.*', r'model_states', r'parallel_dimensions|frozen_param_fragments|shared_params|[md]p_world_size$', r'.*', LAYOUT),
    (r'(tp|pipe)2_.*', r'mp_rank_01', r'dynamic|param_groups', r'bool last', 'it stays with its rank, but no bytes in the output tell it from others'),
    (r'hf_trainer_.*', r'^model\.safetensors$', r'head', r'tensor.*', 'the run is read, not the weights that the Trainer saved beside it'),
    (r'.*universal', r'/zero/.*\.pt$', r'cat_dim$', r'.*', LAYOUT),
    (r'uni_.*', r'/zero/wte\.weight/', r'', r'.*', 'the model file does not list it: the folder is left out by name'),
    (r'.*', r'', r'head', r'text.*', 'notes of a file about itself, which ckpt convert does not promise to keep'),
)


class Object(dict):
    """A dict, list or object of any class, with the place in the pickle where a member can be added."""
    at, name, args = None, None, ()

    def __init__(self, *a, **k):
        super().__init__()
        self.args = a

    def __setstate__(self, state):
        self.state = state

    def append(self, x):
        self[len(self)] = x

    def extend(self, xs):
        for x in xs:
            self.append(x)

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other


class Integer(int):
    pass


class Real(float):
    pass


class Bool:
    def __init__(self, value):
        self.value = value


class Pickled(pickle._Unpickler):
    """Load a pickle without classes; note where its dicts, numbers and truth values stand."""
    dispatch = dict(pickle._Unpickler.dispatch)

    def __init__(self, raw):
        super().__init__(io.BytesIO(raw))
        self.raw = raw

    def find_class(self, module, name):
        kind = type(name, (Object,), {'name': module + '.' + name})
        if name.startswith('_rebuild'):
            def make(*args):
                o = kind(*args)
                return o
            return make
        return kind

    def persistent_load(self, pid):
        return pid


def noted(op, old):
    def load(self):
        start = self._unframer.file_read.__self__.tell() - 1
        old(self)
        end = self._unframer.file_read.__self__.tell()
        top = self.stack[-1] if self.stack else None
        if op == pickle.EMPTY_DICT[0]:
            top = self.stack[-1] = Object()
        elif op in (pickle.REDUCE[0], pickle.NEWOBJ[0]) and isinstance(top, Object):
            pass
        elif op in (pickle.BININT[0], pickle.BININT1[0], pickle.BININT2[0]):
            top = self.stack[-1] = Integer(top)
            top.at = (start, end)
            return
        elif op == pickle.BINFLOAT[0]:
            top = self.stack[-1] = Real(top)
            top.at = (start, end)
            return
        elif op in (pickle.NEWTRUE[0], pickle.NEWFALSE[0]):
            top = self.stack[-1] = Bool(top)
            top.at = (start, end)
            return
        if isinstance(top, Object) and op in (pickle.EMPTY_DICT[0], pickle.REDUCE[0]):
            # a member goes behind the opcode that numbers the object in the memo
            raw = self.raw
            end += 2 if raw[end:end + 1] == pickle.BINPUT else 5 if raw[end:end + 1] == pickle.LONG_BINPUT else 1 if raw[end:end + 1] == pickle.MEMOIZE else 0
            top.at = end
    return load


for _op in (pickle.EMPTY_DICT, pickle.REDUCE, pickle.NEWOBJ, pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.BINFLOAT, pickle.NEWTRUE, pickle.NEWFALSE):
    Pickled.dispatch[_op[0]] = noted(_op[0], pickle._Unpickler.dispatch[_op[0]])


def text(s):
    return b'X' + struct.pack('<I', len(s)) + s.encode()


def integer(n):
    return b'J' + struct.pack('<i', n)


def tensor(shape):
    n = 1
    for x in shape:
        n *= x
    strides, step = [], 1
    for x in reversed(shape):
        strides.insert(0, step)
        step *= x
    return (b'ctorch._utils\n_rebuild_tensor_v2\n((' + text('storage') + b'ctorch\nFloatStorage\n' + text('planted0') + text('cpu') + integer(n) + b'tQ' +
            integer(0) + b'(' + b''.join(map(integer, shape)) + b't(' + b''.join(map(integer, strides)) + b't\x89ccollections\nOrderedDict\n)RtR'), n


def shape_of(x):
    """The shape of a tensor among the values of a dict."""
    for v in x.values():
        if isinstance(v, Object) and str(v.name).endswith('_rebuild_tensor_v2') and len(v.args) > 2 and v.args[2]:
            return tuple(map(int, v.args[2]))
    return None


def is_dict(x):
    return isinstance(x, Object) and x.at is not None and (x.name is None or x.name.endswith('.OrderedDict'))


def walk(x, path=(), depth=0):
    """All dicts and numbers, with their paths; of many alike, the first."""
    if depth > 12:
        return
    if isinstance(x, (Integer, Real, Bool)):
        if hasattr(x, 'at'):
            yield path, x
    elif isinstance(x, (list, tuple)):
        for i, v in enumerate(x[:2]):
            yield from walk(v, path + (i,), depth + 1)
    elif isinstance(x, Object):
        if str(x.name).endswith('_rebuild_tensor_v2'):
            return
        if is_dict(x):
            yield path, x
        alike = collections.Counter()
        for k, v in x.items():
            like = 'int' if isinstance(k, int) else 'dotted' if '.' in str(k) or '/' in str(k) else k
            alike[like] += 1
            if alike[like] <= 1 and k not in ('_metadata', 'zero_optimization', 'ds_config', 'args', 'param_shapes'):
                yield from walk(v, path + (k,), depth + 1)
        # the attributes of a dict are notes of its module; those of other objects are values of the run
        if getattr(x, 'state', None) is not None and not is_dict(x):
            yield from walk(x.state, path + ('state!',), depth + 1)


def show(path):
    return '/'.join(str(p if not isinstance(p, Bool) else p.value) for p in path)


def pickle_plants(raw, ranked):
    """(name, kind, key, new pickle, n elements of the planted storage)."""
    try:
        p = Pickled(raw)
        root = p.load()
    except Exception as x:  # noqa: a pickle of another form holds nothing to plant
        yield 'unread: %r' % x, None, None, None, 0
        return
    for path, x in walk(root):
        if isinstance(x, Object):
            values = [('text', text(TEXT), 0)]
            made, n = tensor((4,))
            values.append(('tensor', made, n))
            like = shape_of(x)
            if like and like != (4,):
                made, n = tensor(like)
                values += [('like', made, n)] * (n > 1)
                made, n = tensor((2, 3))
                values.append(('matrix', made, n))
            for kind, value, n in values:
                key = 'planted_' + kind + 'key'
                yield show(path), kind, key, raw[:x.at] + text(key) + value + b's' + raw[x.at:], n
        elif ranked and path:
            kind = 'bool' if isinstance(x, Bool) else 'real' if isinstance(x, Real) else 'integer'
            new = integer(NUMBER) if kind == 'integer' else b'G' + struct.pack('>d', REAL) if kind == 'real' else (b'\x89' if x.value else b'\x88')
            key = next((str(k) for k in reversed(path) if isinstance(k, str)), '')
            yield show(path), kind, key, raw[:x.at[0]] + new + raw[x.at[1]:], 0


def zip_plants(path, ranked):
    with zipfile.ZipFile(path) as z:
        records = [(i.filename, z.read(i)) for i in z.infolist()]
    name = next((n for n, _ in records if n.endswith('data.pkl')), None)
    if not name:
        return
    for where, kind, key, new, n in pickle_plants(dict(records)[name], ranked):
        if kind is None:
            yield where, None, None, None
            continue
        out = io.BytesIO()
        with zipfile.ZipFile(out, 'w', zipfile.ZIP_STORED) as z:
            for r, data in records:
                z.writestr(r, new if r == name else data)
            if n:
                z.writestr(name[:-len('data.pkl')] + 'data/planted0', struct.pack('<f', ELEMENT) * n)
        yield where, kind, key, out.getvalue()


def metadata_plants(path):
    """.metadata of a DCP: a pickle, whose frames have lengths and are left out."""
    raw = open(path, 'rb').read()
    out, end = b'', 0
    for op, _, at in pickletools.genops(raw):
        if op.name == 'FRAME':
            out, end = out + raw[end:at], at + 9
    for where, kind, key, new, n in pickle_plants(out + raw[end:], False):
        # tensors need the records of a torch file; the saving ranks' plans describe how they cut the source's tensors
        if kind is None or n == 0 and 'all_local_plans/' not in where:
            yield where, kind, key, new


def safetensors_plants(path):
    raw = open(path, 'rb').read()
    n, = struct.unpack('<Q', raw[:8])
    head, body = json.loads(raw[8:8 + n]), raw[8 + n:]
    more = dict(head)
    more['planted_tensorkey'] = {'dtype': 'F32', 'shape': [4], 'data_offsets': [len(body), len(body) + 16]}
    for kind, h, b in (('tensor', more, struct.pack('<f', ELEMENT) * 4),
                       ('text', {**head, '__metadata__': {**head.get('__metadata__', {}), 'planted_textkey': TEXT}}, b'')):
        h = json.dumps(h).encode()
        h += b' ' * (-len(h) % 8)
        yield 'head', kind, 'planted_' + kind + 'key', struct.pack('<Q', len(h)) + h + body + b


GGUF_SIZE = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def gguf_plants(path):
    raw = open(path, 'rb').read()
    tensors, values = struct.unpack('<QQ', raw[8:24])
    at = 24

    def word(fmt):
        nonlocal at
        x, = struct.unpack_from('<' + fmt, raw, at)
        at += struct.calcsize(fmt)
        return x

    def string():
        nonlocal at
        n = word('Q')
        at += n

    def value(kind):
        nonlocal at
        if kind == 8:
            string()
        elif kind == 9:
            inner, n = word('I'), word('Q')
            for _ in range(n):
                value(inner)
        else:
            at += GGUF_SIZE[kind]
    for _ in range(values):
        string()
        value(word('I'))
    end_values = at
    for _ in range(tensors):
        string()
        n = word('I')
        at += 8 * n + 12
    end_infos, data = at, at + -at % 32

    def put(s):
        return struct.pack('<Q', len(s)) + s.encode()
    body = raw[data:] + b'\0' * (-len(raw[data:]) % 32)
    head = raw[:8] + struct.pack('<QQ', tensors, values + 1) + raw[24:end_values] + put('planted_textkey') + struct.pack('<I', 8) + put(TEXT) + raw[end_values:end_infos]
    yield 'head', 'text', 'planted_textkey', head + b'\0' * (-len(head) % 32) + raw[data:]
    head = raw[:8] + struct.pack('<QQ', tensors + 1, values) + raw[24:end_infos] + put('planted_tensorkey') + struct.pack('<IQIQ', 1, 32, 0, len(body))
    yield 'head', 'tensor', 'planted_tensorkey', head + b'\0' * (-len(head) % 32) + body + struct.pack('<f', ELEMENT) * 32


def npz_plants(path):
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }"
    head += b' ' * (-(len(head) + 11) % 64) + b'\n'
    out = io.BytesIO(open(path, 'rb').read())
    with zipfile.ZipFile(out, 'a') as z:
        z.writestr('planted_tensorkey.npy', b'\x93NUMPY\1\0' + struct.pack('<H', len(head)) + head + struct.pack('<f', ELEMENT) * 4)
    yield 'zip', 'tensor', 'planted_tensorkey', out.getvalue()


def json_plants(path):
    whole = json.load(open(path))
    if isinstance(whole, dict):
        yield '', 'text', 'planted_textkey', json.dumps({**whole, 'planted_textkey': TEXT}).encode()


def plants(path, ranked):
    with open(path, 'rb') as f:
        magic = f.read(8)
    if path.endswith('.metadata'):
        return metadata_plants(path)
    if path.endswith('.npz'):
        return npz_plants(path)
    if magic[:2] == b'PK':
        return zip_plants(path, ranked)
    if magic[:4] == b'GGUF':
        return gguf_plants(path)
    if path.endswith('.safetensors'):
        return safetensors_plants(path)
    if path.endswith('.json'):
        return json_plants(path)
    return ()


FILES = ('random_states_5.pkl', 'notes.txt', 'generation_config.json', 'model-second.safetensors', 'custom_checkpoint_0.pkl', 'rng_state_7.pth', 'scaler.pt', 'modeling_own.py')


class Grid:
    def __init__(self, bin_, log):
        self.bin, self.log = os.path.abspath(bin_), log
        self.env = dict(os.environ, LC_ALL='C.UTF-8', OPENBLAS_NUM_THREADS='1')
        self.cells, self.silent = collections.Counter(), []

    def run(self, verb, src):
        dst = os.path.join(self.tmp, 'out', 'x')
        words = ['ckpt'] + [{'SRC': src, 'DST': dst}.get(w, w) for w in VERBS[verb].split()]
        if verb == 'safetensors':
            words[words.index(dst)] = dst + '.' + verb
        p = subprocess.run([os.path.join(self.bin, 'ckpt'), *words[1:]], env=self.env, capture_output=True, timeout=120)
        return p.returncode, (p.stdout + p.stderr).decode(errors='replace')

    def clean(self):
        shutil.rmtree(os.path.join(self.tmp, 'out'), ignore_errors=True)
        os.mkdir(os.path.join(self.tmp, 'out'))

    def written(self):
        for d, _, fs in os.walk(os.path.join(self.tmp, 'out')):
            for f in fs:
                with open(os.path.join(d, f), 'rb') as x:
                    yield os.path.join(d, f), x.read()

    def source(self, name, top, tmp):
        self.tmp = tmp
        src = os.path.join(tmp, 'src')
        shutil.rmtree(src, ignore_errors=True)
        alone = os.path.isfile(top)
        (shutil.copytree if not alone else lambda a, b: (os.mkdir(b), shutil.copy(a, b)))(top, src)
        subprocess.run(['chmod', '-R', 'u+w', src], check=True)
        self.clean()
        folder, src = src, os.path.join(src, os.path.basename(top)) if alone else src
        base = {}
        for verb in VERBS:
            rc, said = self.run(verb, src)
            if rc == 0:
                base[verb] = said
            self.clean()
        files = sorted(os.path.relpath(os.path.join(d, f), folder) for d, _, fs in os.walk(folder) for f in fs if f not in ('expected.json', 'training_args.bin'))
        alike = collections.OrderedDict()
        for f in files:
            alike.setdefault(re.sub(r'zero/[^/]+/|\d+', '#', f), []).append(f)
        for group in alike.values():
            old, made = {}, {}
            for f in group:
                with open(os.path.join(folder, f), 'rb') as x:
                    old[f] = x.read()
                made[f] = {}
                for where, kind, key, new in plants(os.path.join(folder, f), len(group) > 1):
                    if kind is None:
                        print('%s/%s: %s' % (name, f, where), file=self.log)
                    else:
                        made[f][where, kind, key] = new
            last = group[-1]
            for where, kind, key in made[last]:
                for mode, into in (('all', group), ('last', [last])):
                    if mode == 'last' and len(group) == 1 or mode == 'all' and kind in ('integer', 'real', 'bool'):
                        continue
                    for f in into:
                        if (where, kind, key) in made[f]:
                            with open(os.path.join(folder, f), 'wb') as x:
                                x.write(made[f][where, kind, key])
                    # the weights alone are converted from files of weights: elsewhere training state is left out by definition
                    asked = base if where in ('head', 'zip') else [v for v in base if v != 'safetensors']
                    # the ranks are compared before any of the writers begins
                    for verb in [v for v in asked if v == 'same' or kind not in ('integer', 'real', 'bool')]:
                        self.cell(name, last, where, kind + ' ' + mode, key, verb, base[verb], src)
                    for f in into:
                        with open(os.path.join(folder, f), 'wb') as x:
                            x.write(old[f])
        for d in [] if alone else sorted({os.path.dirname(f) for f in files} | {''}):
            if re.search(r'zero/', d):
                continue
            for more in FILES:
                path = os.path.join(folder, d, more)
                if os.path.exists(path):
                    continue
                with open(path, 'wb') as f:
                    f.write(self.content(more))
                for verb in [v for v in base if v == 'same']:
                    self.cell(name, os.path.join(d, more), '', 'file', more, verb, base[verb], src)
                os.unlink(path)

    @staticmethod
    def content(name):
        if name.endswith('.json'):
            return json.dumps({'planted_key': TEXT}).encode()
        if name.endswith('.safetensors'):
            h = json.dumps({'__metadata__': {'format': 'pt', 'p': TEXT}, 'planted_tensorkey': {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 16]}}).encode()
            return struct.pack('<Q', len(h)) + h + struct.pack('<f', ELEMENT) * 4
        if name.endswith(('.pkl', '.pth', '.pt')):
            out = io.BytesIO()
            with zipfile.ZipFile(out, 'w') as z:
                z.writestr('archive/data.pkl', b'\x80\x02}q\x00' + text('planted_key') + text(TEXT) + b's.')
                z.writestr('archive/version', b'3\n')
            return out.getvalue()
        return TEXT.encode() + b'\n'

    @staticmethod
    def names(said, before, file, where, key):
        """True if a message names the value, its file, or a dict that holds it."""
        new = set(said.split('\n')) - set(before.split('\n'))
        holders = [p for p in where.split('/') if len(p) > 2 and p != 'state!']
        return any(key in line for line in new) or any(
            'left out' in line and os.path.basename(file) in line or
            ('left out: ' in line or "the ranks' " in line or 'the ranks have' in line) and any(re.search(r'\b%s\b' % re.escape(h), line) for h in holders)
            for line in said.split('\n'))

    def cell(self, name, file, where, kind, key, verb, before, src):
        rc, said = self.run(verb, src)
        kind, mode = (kind + ' ').split(' ')[:2]
        self.cells[kind] += 1
        result = 'refused %d' % rc
        if rc == 0:
            if self.names(said, before, file, where, key):
                result = 'named'
            elif kind == 'file' and any(os.path.basename(p) == key for p, _ in self.written()) or any(mark in raw for _, raw in self.written() for mark in SEEN[kind]):
                result = 'kept'
            elif not any(re.fullmatch(n, name) and re.search(f, file) and re.search(w, where) and re.fullmatch(k, (kind + ' ' + mode).strip())
                         for n, f, w, k, _ in EXCEPTIONS):
                result = 'SILENT'
                self.silent.append((name, file, where, kind + ' ' + mode, verb))
            else:
                result = 'excepted'
        print('\t'.join((result, name, file, where, kind + ' ' + mode, verb, ' / '.join(said.strip().split('\n')[-2:])[:160] if rc else '')), file=self.log)
        self.clean()


def plant(path, where, kind):
    """Add one value to a file."""
    for at, what, _, new in plants(path, True):
        if (at, what) == (where, kind):
            with open(path, 'wb') as f:
                f.write(new)
            return 0
    raise SystemExit('%s has no place %s for %s' % (path, where, kind))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--log')
    p.add_argument('--into', action='store_true')
    p.add_argument('fixtures')
    p.add_argument('names', nargs='*')
    a = p.parse_args()
    if a.into:
        return plant(a.fixtures, *a.names)
    log = open(a.log, 'w') if a.log else io.StringIO()
    grid = Grid(a.bin, log)
    # one of them is not in every folder of fixtures
    for name in a.names or [f for f in FIXTURES if os.path.isdir(os.path.join(a.fixtures, f))]:
        top = os.path.join(a.fixtures, name)
        single = [f for f in ('plain.npz', 'F16.gguf', 'model.safetensors') if os.path.exists(os.path.join(top, f))]
        for inner in single or [i for i in INNER if os.path.isdir(os.path.join(top, i))] or ['']:
            with tempfile.TemporaryDirectory(dir='/dev/shm' if os.path.isdir('/dev/shm') else None) as tmp:
                grid.source(os.path.join(name, inner), os.path.join(top, inner), tmp)
        log.flush()
    for cell in grid.silent:
        print('SILENT: %s: %s: %s: %s: ckpt %s' % cell)
    print('planted: %d cells, %d silent' % (sum(grid.cells.values()), len(grid.silent)))
    return 1 if grid.silent or not grid.cells else 0


if __name__ == '__main__':
    sys.exit(main())
