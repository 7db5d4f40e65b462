#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints of PyTorch that lie, made without torch: each ends with the status and the word that it should.

    dcp_bad.py --bin build/bin [CASE...]
    dcp_bad.py --seeds FOLDER             the small ones as input of tests/fuzz/fuzz_dcp.c

Every command gets every case; none may crash, run code, write anything, or take long or much.
"""
import argparse
import io
import os
import pickle
import re
import resource
import struct
import subprocess
import sys
import tempfile
import types
import zipfile

META, FS = 'torch.distributed.checkpoint.metadata', 'torch.distributed.checkpoint.filesystem'
SECONDS, MIB = 20, 700


def module(name):
    m = sys.modules[name] = types.ModuleType(name)
    return m


def cls(where, name):
    c = type(name, (), {'__module__': where, '__init__': lambda self, **kw: self.__dict__.update(kw)})
    setattr(sys.modules[where], name, c)
    return c


for name in ('torch', 'torch._utils', META, FS):
    module(name)
Metadata, Index, Chunk = (cls(META, n) for n in ('Metadata', 'MetadataIndex', 'ChunkStorageMetadata'))
Tensor, Bytes, Props = (cls(META, n) for n in ('TensorStorageMetadata', 'BytesStorageMetadata', 'TensorProperties'))
Info = cls(FS, '_StorageInfo')
Props.__getstate__ = lambda self: (self.dtype, None, False, None, False)


class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


Size.__module__, Size.__qualname__ = 'torch', 'Size'
sys.modules['torch'].Size = Size


class Named:
    """What is pickled as the name of something in a module."""

    def __init__(self, where, name):
        self.__module__, self.name = where, name
        setattr(sys.modules.get(where) or module(where), name, self)

    def __reduce__(self):
        return self.name

    def __call__(self):
        raise AssertionError


F32, F16, QINT = Named('torch', 'float32'), Named('torch', 'float16'), Named('torch', 'qint8')
META = Named('torch._utils', '_rebuild_meta_tensor_no_storage')
FLOATS, REBUILD = Named('torch', 'FloatStorage'), Named('torch._utils', '_rebuild_tensor_v2')


class Call:
    def __init__(self, what, *args):
        self.what, self.args = what, args

    def __reduce__(self):
        return self.what, self.args


class Persistent:
    def __init__(self, *key):
        self.key = key


class Pickler(pickle.Pickler):
    def persistent_id(self, v):
        return v.key if isinstance(v, Persistent) else None


def pickled(v, protocol=2):
    out = io.BytesIO()
    Pickler(out, protocol).dump(v)
    return out.getvalue()


def archive(root, *records):
    """All that torch.save writes of an object."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_STORED) as z:
        z.writestr('archive/data.pkl', pickled(root))
        z.writestr('archive/byteorder', b'little')
        for i, raw in enumerate(records):
            z.writestr('archive/data/%d' % i, raw)
        z.writestr('archive/version', b'3\n')
    return out.getvalue()


def tensor(shape, stride=None, offset=0, stored=None, held=None):
    n = 1
    for s in shape:
        n *= s
    strides, row = [], 1
    for s in reversed(shape):
        strides.insert(0, row)
        row *= s
    stored = n if stored is None else stored
    storage = Persistent('storage', FLOATS, '0', 'cpu', stored)
    return archive(Call(REBUILD, storage, offset, tuple(shape), tuple(stride or strides), False, {}),
                   struct.pack('<f', 1.5) * (stored if held is None else held))


class Folder:
    """A sound checkpoint of two ranks, to be changed: w [6, 4] in two halves, b [4], an object."""

    def __init__(self):
        self.files = {'__0_0.distcp': b'', '__1_0.distcp': b''}
        self.state, self.storage, self.planner, self.before = {}, {}, {}, {}
        self.chunks = [self.chunk('w', (0, 0), (3, 4), 0), self.chunk('w', (3, 0), (3, 4), 1)]
        self.state['w'] = Tensor(properties=Props(dtype=F32), size=Size((6, 4)), chunks=self.chunks)
        self.state['b'] = Tensor(properties=Props(dtype=F32), size=Size((4,)), chunks=[self.chunk('b', (0,), (4,), 0)])
        self.state['epoch'] = Bytes()
        self.epoch = Index(fqn='epoch', offset=None, index=None)
        self.storage[self.epoch] = self.put(archive(7), 1)
        self.planner.update({n: (n,) for n in self.state})

    def put(self, raw, rank):
        name = '__%d_0.distcp' % rank
        at = len(self.files[name])
        self.files[name] += raw
        return Info(relative_path=name, offset=at, length=len(raw))

    def chunk(self, name, start, count, rank, raw=None):
        key = Index(fqn=name, offset=Size(start), index=0)
        self.storage[key] = self.put(tensor(count) if raw is None else raw, rank)
        return Chunk(offsets=Size(start), sizes=Size(count))

    def key(self, n):
        return list(self.storage)[n]

    def info(self, n):
        return self.storage[self.key(n)]

    def meta(self):
        whole = Metadata(**self.before, state_dict_metadata=self.state, planner_data=self.planner, storage_data=self.storage)
        return getattr(self, 'raw', None) or pickle.dumps(whole, 4)

    def write(self, folder):
        for name, raw in dict(self.files, **{'.metadata': self.meta()}).items():
            with open(os.path.join(folder, name), 'wb') as f:
                f.write(raw)


def replace(raw):
    """The second half of w is this entry instead."""
    def change(f):
        f.storage[f.key(1)] = f.put(raw, 1)
    return change


def on(path, value):
    """Set an attribute: ('info', 1, 'offset'), value."""
    what, n, attr = path

    def change(f):
        o = f.info(n) if what == 'info' else f.key(n) if what == 'key' else f.chunks[n] if what == 'chunk' else f.state[n]
        setattr(o, attr, value(f) if callable(value) else value)
    return change


def items(**new):
    return lambda f: [getattr(f, k).update(v(f)) for k, v in new.items()]


def chunk_again(f):
    f.chunks.extend([f.chunks[1]] * 2000000)


def empty_again(f):
    f.chunks.extend([f.chunk('w', (6, 0), (0, 4), 1)] * 1000000)


def long_path(f):
    path, entry = ('a',) * 300000, archive(1)
    for i in range(3000):
        name = 'x%d' % i
        f.state[name], f.planner[name] = Bytes(), path
        f.storage[Index(fqn=name, offset=None)] = f.put(entry, 0)


def nested(f):
    v = ()
    f.raw = b'\x80\x04' + b'(' * 100000 + b't' * 100000 + b'.'


def shared_entry(f):
    f.storage[f.key(1)] = Info(**f.info(0).__dict__)


def overlapping_entries(f):
    f.info(1).offset -= 8
    f.info(1).length += 8
    f.storage[f.key(1)].relative_path = '__1_0.distcp'


def same_path(f):
    f.planner['b'] = ('w',)


def leaf_and_folder(f):
    f.planner['b'] = ('w', 'b')


def renamed(name):
    def change(f):
        f.state[name], f.planner[name] = f.state.pop('b'), (name,)
        del f.planner['b']
        f.key(2).fqn = name
    return change


def twins(f):
    """Two items that are one name after their prefixes."""
    f.state['model.w'], f.planner['model.w'] = f.state['w'], ('model', 'w')
    for k in (0, 1):
        f.storage[Index(fqn='model.w', offset=f.key(k).offset)] = f.put(tensor((3, 4)), 0)
    f.state['optim.state.w.step'], f.planner['optim.state.w.step'] = Bytes(), ('optim', 'state', 'w', 'step')
    f.storage[Index(fqn='optim.state.w.step')] = f.put(archive(3), 0)


# name: change, statuses of `convert`, what its message says; 0 is a sound one
SYSTEM = Call(Named('posix', 'system'), 'touch "$CANARY"')
# the rows of keys and places (formats/dcp/parts.c): keys that other values hold before storage_data, and places of several keys
def keys_first(f):
    """A plan, which is read first, holds the keys and a place of its own; one place is stored for two of them."""
    f.before = {'all_local_plans': [f.key(1), f.key(0), Info(relative_path='__0_0.distcp', offset=0, length=1)]}
    info_shared(f)


def info_shared(f):
    f.storage[f.key(1)] = f.info(0)


def entries_many(f):
    """A name with entries in the reverse order of their offsets, none of them a chunk's."""
    for i in range(20000, 0, -1):
        f.storage[Index(fqn='loose', offset=Size((i, 0)))] = Info(relative_path='__0_0.distcp', offset=(1 << 40) - i * 10, length=10)


CASES = {
    'sound': (lambda f: None, '0', ''),
    'sound_empty': (lambda f: f.chunks.append(f.chunk('w', (6, 0), (0, 4), 1)), '0', ''),
    'code_metadata': (lambda f: setattr(f, 'raw', pickle.dumps(SYSTEM, 4)), '4', 'posix.system'),
    'code_key': (items(state=lambda f: {'x': SYSTEM}), '4', 'posix.system'),
    'code_entry': (replace(archive(SYSTEM)), '4', 'posix.system'),
    'code_object': (lambda f: f.storage.update({f.epoch: f.put(archive(SYSTEM), 1)}), '4', 'posix.system'),
    'code_getattr': (lambda f: setattr(f, 'raw', b"\x80\x04cbuiltins\ngetattr\ncos\npath\n\x8c\x06system\x86R."), '4', ''),
    'overlap': (lambda f: (setattr(f.chunks[1], 'offsets', Size((2, 0))), setattr(f.key(1), 'offset', Size((2, 0)))), '5', ''),
    'hole': (lambda f: f.chunks.pop(), '5', ''),
    'no_chunks': (lambda f: f.chunks.clear(), '5', ''),
    'outside': (on(('chunk', 1, 'sizes'), Size((4, 4))), '5', 'axis 0'),
    'chunk_axes': (on(('chunk', 1, 'sizes'), Size((3,))), '3', 'is missing in a chunk'),
    'chunk_negative': (on(('chunk', 1, 'sizes'), (-3, 4)), '3', ''),
    'chunk_long': (on(('chunk', 1, 'offsets'), (1 << 70, 0)), '3', ''),
    'chunk_wraps': (on(('chunk', 1, 'offsets'), ((1 << 63) - 1, 0)), '5', ''),
    'chunk_bool': (on(('chunk', 1, 'sizes'), (True, 4)), '3', ''),
    'chunk_float': (on(('chunk', 1, 'sizes'), (3.0, 4)), '3', ''),
    'chunk_is_key': (lambda f: f.chunks.append(f.key(0)), '3', ''),
    'chunk_is_number': (lambda f: f.chunks.append(0), '3', ''),
    'chunk_again': (chunk_again, '5', 'one entry'),
    'empty_again': (empty_again, '056', ''),
    'key_is_number': (lambda f: f.storage.update({0: f.info(0)}), '3', 'no name'),
    'key_is_chunk': (lambda f: f.storage.update({f.chunks[0]: f.info(0)}), '3', 'no name'),
    'info_is_chunk': (lambda f: f.storage.update({f.key(0): f.chunks[0]}), '3', 'does not give the location'),
    'info_is_number': (lambda f: f.storage.update({f.key(0): 1}), '3', 'does not give the location'),
    'key_twice': (lambda f: f.storage.update({Index(fqn='b', offset=Size((0,))): f.info(0)}), '3', 'repeats a chunk'),
    'key_again': (lambda f: f.storage.update({Index(fqn='b', offset=Size((0,))): f.info(0), f.key(0): f.info(0)}), '35', ''),
    'keys_first': (keys_first, '5', 'overlap'),
    'info_shared': (info_shared, '5', 'overlap'),
    'offsets_other': (on(('key', 1, 'offset'), Size((3,))), '5', 'no entry'),
    'offsets_none': (on(('key', 1, 'offset'), Size(())), '5', 'no entry'),
    'offsets_63': (on(('key', 1, 'offset'), Size((0,) * 64)), '5', 'no entry'),
    'offsets_65': (on(('key', 1, 'offset'), Size((0,) * 65)), '3', ''),
    'entries_many': (entries_many, '0', 'left out: 20000 entries'),
    'key_negative': (on(('key', 1, 'offset'), (-3, 0)), '3', 'not a number'),
    'key_other': (on(('key', 1, 'offset'), Size((4, 0))), '5', 'no entry'),
    'key_none': (on(('key', 1, 'fqn'), None), '3', 'no name'),
    'axes_many': (on(('key', 1, 'offset'), (0,) * 100000), '3', ''),
    'at_beyond': (on(('info', 1, 'offset'), 1 << 40), '3', ''),
    'at_last': (on(('info', 1, 'offset'), (1 << 63) - 1), '3', ''),
    'at_long': (on(('info', 1, 'offset'), 1 << 64), '3', 'does not give the location'),
    'at_negative': (on(('info', 1, 'offset'), -1), '3', 'does not give the location'),
    'length_beyond': (on(('info', 1, 'length'), 1 << 62), '5', 'overlap'),
    'length_wraps': (lambda f: f.info(1).__dict__.update(offset=(1 << 63) - 1, length=(1 << 63) - 1), '3', ''),
    'length_zero': (on(('info', 1, 'length'), 0), '35', ''),
    'length_short': (on(('info', 1, 'length'), 20), '35', ''),
    'shared_entry': (shared_entry, '5', 'overlap'),
    'entries_overlap': (overlapping_entries, '35', ''),
    'path_up': (on(('info', 1, 'relative_path'), '../__1_0.distcp'), '4', 'outside'),
    'path_root': (on(('info', 1, 'relative_path'), '/etc/passwd'), '4', 'outside'),
    'path_inside_up': (on(('info', 1, 'relative_path'), 'a/../../b'), '4', 'outside'),
    'path_dots': (on(('info', 1, 'relative_path'), '..'), '4', 'outside'),
    'path_dot': (on(('info', 1, 'relative_path'), '.'), '4', 'outside'),
    'path_empty': (on(('info', 1, 'relative_path'), ''), '4', 'outside'),
    'path_nul': (on(('info', 1, 'relative_path'), '__1_0.distcp\0x'), '4', 'outside'),
    'path_self': (on(('info', 1, 'relative_path'), '.metadata'), '35', ''),
    'path_number': (on(('info', 1, 'relative_path'), 5), '3', 'does not give the location'),
    'transform': (on(('info', 1, 'transform_descriptors'), ['stream.zstd']), '3', 'stream.zstd'),
    'entry_dtype': (replace(tensor((3, 4)).replace(b'FloatStorage', b'Int32Storage')), '35', ''),
    'entry_shape': (replace(tensor((4, 3))), '5', 'another shape'),
    'entry_axes': (replace(tensor((12,))), '5', 'number of axes'),
    'entry_offset': (replace(tensor((3, 4), offset=2, stored=14)), '5', 'first element of its storage'),
    'entry_expanded': (replace(tensor((3, 4), stride=(0, 1), stored=4)), '5', ''),
    'entry_large': (replace(tensor((3, 4), stored=100)), '5', ''),
    'entry_small': (replace(tensor((3, 4), stored=5)), '35', ''),
    'entry_cut': (replace(tensor((3, 4), held=5)), '35', ''),
    'entry_object': (replace(archive({'a': 1})), '5', 'no tensor'),
    'entry_meta': (replace(archive(Call(META, F32, (3, 4), (4, 1), False))), '5', 'without bytes'),
    'entry_negative': (replace(tensor((3, 4), stride=(-4, 1))), '35', ''),
    'entry_stride': (replace(tensor((3, 4), stride=(1 << 62, 1))), '35', ''),
    'dtype_none': (lambda f: setattr(f.state['w'].properties, 'dtype', None), '3', 'dtype'),
    'dtype_other': (lambda f: setattr(f.state['w'].properties, 'dtype', QINT), '35', ''),
    'dtype_half': (lambda f: setattr(f.state['w'].properties, 'dtype', F16), '5', 'another dtype'),
    'size_huge': (lambda f: (setattr(f.state['w'], 'size', Size((1 << 40, 1 << 40)))), '35', ''),
    'size_long': (lambda f: (setattr(f.state['w'], 'size', (1 << 200, 4))), '3', ''),
    'size_negative': (lambda f: (setattr(f.state['w'], 'size', (-6, 4))), '3', ''),
    'size_more': (lambda f: (setattr(f.state['w'], 'size', Size((7, 4)))), '5', ''),
    'bytes_and_chunks': (lambda f: f.state.update(epoch=Tensor(properties=Props(dtype=F32), size=Size(()), chunks=[])), '5', ''),
    'tensor_is_bytes': (lambda f: f.state.update(b=Bytes()), '5', 'no entry'),
    'loose_entry': (items(storage=lambda f: {Index(fqn='ghost', offset=Size((0,))): f.put(tensor((1,)), 0)}), '0', 'ghost'),
    'planner_more': (items(planner=lambda f: {'ghost': ('ghost',)}), '5', 'ghost'),
    'planner_same': (same_path, '35', ''),
    'planner_leaf': (leaf_and_folder, '5', ''),
    'planner_leaf_first': (lambda f: (f.planner.update(w=('b', 'w'))), '5', ''),
    'planner_number': (lambda f: f.planner.update(w=5), '3', ''),
    'planner_empty': (lambda f: f.planner.update(w=()), '3', ''),
    'planner_negative': (lambda f: f.planner.update(w=('w', -1)), '3', ''),
    'planner_list': (lambda f: setattr(f, 'planner', ['w']), '3', ''),
    'planner_long': (long_path, '3', 'lacks the path'),
    'nested': (nested, '36', ''),
    'name_up': (renamed('../../b'), '0', ''),
    'name_root': (renamed('/b'), '0', ''),
    'name_control': (renamed('b\x1b[2J\n'), '0', ''),
    'name_nul': (renamed('b\0c'), '3', ''),
    'name_surrogate': (lambda f: setattr(f, 'raw', pickle.dumps({'\ud800': 1}, 4)), '3', ''),
    'name_long': (renamed('b' * 70000), '3', ''),
    'name_empty': (renamed(''), '03', ''),
    'name_number': (lambda f: f.state.update({5: f.state['w']}), '3', ''),
    'twins': (twins, '035', ''),
    'no_state': (lambda f: setattr(f, 'state', None), '3', 'state_dict_metadata'),
    'no_storage': (lambda f: setattr(f, 'storage', None), '3', 'storage_data'),
    'root_number': (lambda f: setattr(f, 'raw', pickle.dumps(5, 4)), '3', ''),
    'root_empty': (lambda f: setattr(f, 'raw', b' '), '3', ''),
    'data_empty': (lambda f: f.files.update({'__1_0.distcp': b''}), '3', ''),
    'data_missing': (lambda f: f.files.pop('__1_0.distcp'), '5', '__1_0'),
    'data_swapped': (lambda f: f.files.update({'__1_0.distcp': f.files['__0_0.distcp'], '__0_0.distcp': f.files['__1_0.distcp']}), '35', ''),
}


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MIB * 4 << 20, MIB * 4 << 20))


def run(bin_, verb, folder, out, canary):
    cmd = [os.path.join(bin_, 'ckpt')] + verb + [folder] + out
    p = subprocess.run(cmd, capture_output=True, env=dict(os.environ, CANARY=canary), timeout=600, preexec_fn=limit)
    return p.returncode, p.stderr.decode('utf-8', 'replace')


def check(bin_, name, tmp):
    change, want, word = CASES[name]
    f, src, out, canary = Folder(), os.path.join(tmp, 'src'), os.path.join(tmp, 'out'), os.path.join(tmp, 'canary')
    change(f)
    os.mkdir(src)
    os.mkdir(out)
    f.write(src)
    before = sorted(os.listdir(src))
    for verb in (['ls'], ['info'], ['tree'], ['verify'], ['doctor'], ['ls', '-a']):
        rc, err = run(bin_, verb, src, [], canary)
        if rc not in (0, 1, 2, 3, 4, 5, 6):
            return '%s: exit %d: %s' % (verb[0], rc, err[-400:])
    rc, err = run(bin_, ['convert', '-q'], src, [os.path.join(out, 'model.safetensors')], canary)
    if str(rc) not in want:
        return 'exit %d, not %s: %s' % (rc, want, err[-400:])
    if not re.search(re.escape(word), err):
        return 'does not say "%s": %s' % (word, err[-400:])
    if re.search('[\x00-\x09\x0b-\x1f]', err):
        return 'prints a control character: %r' % err
    if os.path.exists(canary) or os.listdir(src) != before and sorted(os.listdir(src)) != before:
        return 'something was run or written'
    if (rc == 0) != (os.listdir(out) == ['model.safetensors']):
        return 'exit %d leaves %s' % (rc, os.listdir(out))
    return None


def seeds(folder):
    for name, (change, _, _) in CASES.items():
        f = Folder()
        change(f)
        parts = [f.meta(), f.files.get('__0_0.distcp', b''), f.files.get('__1_0.distcp', b'')]
        if sum(map(len, parts)) < 20000:
            with open(os.path.join(folder, 'bad_' + name), 'wb') as out:
                out.write(b''.join(struct.pack('<I', len(x))[:3] + x for x in parts[:2]) + parts[2])


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--seeds')
    p.add_argument('cases', nargs='*')
    a = p.parse_args()
    if a.seeds:
        return seeds(a.seeds)
    failed = 0
    for name in a.cases or CASES:
        with tempfile.TemporaryDirectory() as tmp:
            problem = check(os.path.abspath(a.bin), name, tmp)
        if problem:
            failed += 1
            print('FAIL %s: %s' % (name, problem))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    if peak > MIB:
        failed += 1
        print('FAIL a case used %d MiB, the limit is %d' % (peak, MIB))
    print('bad distributed checkpoints: %d passed, %d failed (peak %d MiB)' % (len(a.cases or CASES) - failed, failed, peak))
    sys.exit(1 if failed else 0)


main()
