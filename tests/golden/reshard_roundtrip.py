#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""There and back: a checkpoint resharded to another world and stage and back again is the one it was, file by file.

    reshard_roundtrip.py --bin build/bin FIXTURES [NAME...] [-v]

The real torch loads every file of the original and of the result, with classes that are not torch's or Python's as plain
stand-ins that keep what the pickle said.  The trees must be equal: keys, values, classes, tensors bit for bit, storages
shared by the same tensors.  Of padding, which DeepSpeed leaves uninitialised, ours must be zero; a difference counts as
padding only where it can be (flat partitions and frozen fragments) and ours is zero; reshard.py compares what is not padding.
What a detour must lose stands in LOST.  -v also prints what is not required: order of keys, sizes of storages.
"""
import argparse
import collections
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import types

try:
    import torch
except ImportError:
    print('reshard round trip: skipped (no torch)')
    sys.exit(0)

PREFIXES = ('z1_', 'z2_', 'z3_', 'uni_', 'old0', 'hf_trainer_')
OBJECTS = ()
# Refused on the way: fixture and stages of the detour (reshard.py checks the refusals).
CANNOT = {
    'old0316_z1_fp16_w2': (3,),     # that release cannot keep two groups in stage 3
}
# What no file on the way can carry: fixture, stages of the detour, path, and why.  {buffers}, {params}, {tied}: its names.
ANY = (1, 2, 3)
LOST = (
    (r'z3_|old\d+_z3', ANY, r"zero_pp_rank_[1-9]\d*_.*\['module'\]\['({buffers})'\]$",
     'each rank has its own batch statistics; the first rank\'s become everyone\'s'),
    (r'old0316_z3|old0510_z3', ANY, r"\['module'\]\['({params}|{tied})'\](\.storage)?$",
     'the one element of a placeholder is whatever was in memory'),
    (r'old0316_z1', (1,), r"(local_sub_partitions_of_fp32_groups|'exp_avg(_sq)?'|base_optimizer_state)",
     'the interval was rounded down to a multiple of the ranks, once more on the way'),
    (r'old0316_z1', (2,), r"(num_comm_intervals|sub_partitions|base_optimizer_state)", 'stage 2 has no intervals, and no ds_config yet'),
    (r'old0316_z2|old0510_z1|old065_z2|old077_z1', (3,), r"\['module'\]\['({tied})'\]", 'before 0.9.2 stage 3 does not say what is tied'),
    (r'old065_z3', (1, 2), r"\['module'\]\['({tied})'\]", 'before 0.9.2 stage 3 does not say what is tied'),
    (r'old0316_z3', ANY, r"\['module'\]\['({buffers})'\]", 'before 0.4.2 nothing says what a buffer is'),
    (r'old0316_z3', (1, 2), r"\['param_groups'\]", 'stages 1 and 2 of that release save no hyper-parameters'),
    (r'z3_bf16_w4_frozen_excl|z3_fp32_w2_zerodim', (1, 2), r"\['fp32_flat_groups'\]\[\d+\]\.__dict__",
     'ds_id counts parameters as they were made: those left out too, and under zero.Init in another order'),
    (r'', (1,), r"\['frozen_param_(shapes|fragments)'\]$",
     'stage 1 has None there, whether frozen parameters are left out or there are none'),
    (r'old0316_z2', (3,), r"\['module'\]\['({buffers})'\]", 'before 0.4.2 nothing says what a buffer is'),
    (r'old0316_z2', ANY, r"base_optimizer_state_step", 'a list of states gets the step that later releases ask for'),
    (r'old0316_z3', (1, 2), r"\['param_groups'\]", 'stages 1 and 2 of 0.3.16 keep no hyper-parameters, and there is no ds_config yet'),
    (r'old0316_z3', (1,), r"\['state'\].*\['step'\]", 'kept beside the moments on the way, for want of groups'),
    (r'', (1,), r"\['frozen_param_(shapes|fragments)'\]", 'stage 1 lists no frozen parameters, left out or not'),
    (r'z3_bf16_w4_frozen_excl|z3_fp32_w2_zerodim', (1, 2), r"fp32_flat_groups.*__dict__", 'stages 1 and 2 keep no numbers of parameters'),
)
PADDED = re.compile(r'(exp_avg|exp_avg_sq|max_exp_avg_sq|momentum_buffer|single_partition|fp32_flat_groups|sub_partitions|'
                    r'frozen_param_fragments|base_optimizer_state|optimizer_state_dict|sum)')
STAGE_NAMES = {'disabled': 0, 'optimizer_states': 1, 'gradients': 2, 'weights': 3}


# ---- loading with stand-ins ----

class Meta(type):
    def __getattr__(cls, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return cls(STAGE_NAMES.get(name, name))   # how some Pythons pickle the members of an enumeration


class StandIn(metaclass=Meta):
    """An object of a class that is not at hand: its name, arguments and state."""

    def __new__(cls, *args):
        self = object.__new__(cls)
        self.args = args
        self.state = {}
        return self

    def __init__(self, *args):
        pass

    def __setstate__(self, state):
        self.state = state

    def __call__(self, *args):
        return type(self)(*args)


known = {}


def stand_in(module, name):
    key = module + '.' + name
    if key not in known:
        known[key] = Meta(name, (StandIn,), {'full': key})
    return known[key]


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module.split('.')[0] in ('torch', 'collections', 'builtins', '__builtin__', 'numpy', 'argparse', '_codecs', 'copyreg',
                                    'copy_reg'):
            try:
                return super().find_class(module, name)
            except (ImportError, AttributeError):
                pass
        return stand_in(module, name)


reader = types.ModuleType('reader')
reader.__dict__.update(pickle.__dict__)
reader.Unpickler = Unpickler
reader.load = lambda f, **k: Unpickler(f, **k).load()


def load(path):
    """The fixtures are our own: no class outside torch, numpy and Python is looked up, let alone run."""
    torch.serialization.pickle = reader   # one torch forgets the pickle_module it is given
    return torch.load(path, map_location='cpu', pickle_module=reader, weights_only=False)


# ---- comparing ----

def bits(t):
    t = t.detach().contiguous()
    return b'' if t.numel() == 0 else t.reshape(-1).view(torch.uint8).numpy().tobytes()


def class_of(x):
    return getattr(type(x), 'full', type(x).__module__ + '.' + type(x).__qualname__)


def text(x):
    if torch.is_tensor(x):
        v = ' = %r' % x.item() if x.numel() == 1 and x.dtype is not torch.bool else ''
        return '%s%s%s' % (str(x.dtype).replace('torch.', ''), list(x.shape), v)
    if isinstance(x, StandIn):
        return '%s%s %s' % (class_of(x).split('.')[-1], x.args or '', x.state if len(str(x.state)) < 60 else '{...}')
    t = repr(x)
    return t if len(t) < 90 else '%s of %s: %s...' % (type(x).__name__, len(x) if hasattr(x, '__len__') else '?', t[:70])


def storage_of(t):
    s = t.untyped_storage() if hasattr(t, 'untyped_storage') else t.storage()
    n = s.nbytes() // t.element_size()
    return s.data_ptr() if n else None, n


class Compare:
    """Differences of two trees, and what is not required."""

    def __init__(self):
        self.out, self.notes, self.padding = [], [], 0
        self.met, self.met_back, self.shares, self.shares_back = {}, {}, {}, {}

    def differ(self, path, a, b):
        self.out.append((path, a, b))

    def walk(self, path, a, b):
        if class_of(a) != class_of(b):
            return self.differ(path, '%s (%s)' % (text(a), type(a).__name__), '%s (%s)' % (text(b), type(b).__name__))
        if isinstance(a, (dict, list, set, StandIn)) or torch.is_tensor(a):
            if self.met_back.setdefault(id(b), id(a)) != id(a) and not torch.is_tensor(a):   # of tensors, storages count
                self.differ(path, 'an object of its own', 'one met before')
            if id(a) in self.met:
                if self.met[id(a)] != id(b):
                    self.notes.append((path, 'an object met before', 'a copy'))
                return None
            self.met[id(a)] = id(b)
        if torch.is_tensor(a):
            return self.tensor(path, a, b)
        if isinstance(a, dict):
            self.dict(path, a, b)
        elif isinstance(a, (list, tuple)) and not hasattr(a, 'numel'):
            if len(a) != len(b):
                return self.differ(path, text(a), text(b))
            for i, (x, y) in enumerate(zip(a, b)):
                self.walk('%s[%d]' % (path, i), x, y)
        elif isinstance(a, StandIn):
            self.walk(path + '(arguments)', a.args, b.args)
            self.walk(path + '(state)', a.state, b.state)
        elif isinstance(a, argparse.Namespace):
            self.dict(path, vars(a), vars(b))
        elif hasattr(a, 'tobytes'):
            if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
                self.differ(path, text(a), text(b))
        elif not (a == b or a != a and b != b):
            self.differ(path, text(a), text(b))
        return None

    def dict(self, path, a, b):
        for k in a:
            if k not in b:
                self.differ('%s[%r]' % (path, k), text(a[k]), 'absent')
        for k in b:
            if k not in a:
                self.differ('%s[%r]' % (path, k), 'absent', text(b[k]))
        both = [k for k in a if k in b]
        if both != [k for k in b if k in a]:
            self.notes.append((path, 'keys in order %s' % both, [k for k in b if k in a]))
        for k in both:
            self.walk('%s[%r]' % (path, k), a[k], b[k])
        if getattr(a, '__dict__', None) != getattr(b, '__dict__', None):
            self.walk(path + '.__dict__', getattr(a, '__dict__', None), getattr(b, '__dict__', None))

    def tensor(self, path, a, b):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return self.differ(path, text(a), text(b))
        for what in ('requires_grad', 'is_sparse'):
            if getattr(a, what) != getattr(b, what):
                self.differ(path + '.' + what, getattr(a, what), getattr(b, what))
        if a.stride() != b.stride():
            self.differ(path + '.stride', a.stride(), b.stride())
        mine, yours = {k: v for k, v in vars(a).items()}, {k: v for k, v in vars(b).items()}
        if mine != yours:
            self.differ(path + '.__dict__', mine, yours)
        (p, n), (q, m) = storage_of(a), storage_of(b)
        if p is not None and self.shares.setdefault(p, q) != q:
            self.differ(path + '.storage', 'shared with a tensor before', 'of its own')
        if p is not None and self.shares_back.setdefault(q, p) != p:
            self.differ(path + '.storage', 'of its own', 'shared with a tensor before')   # changed once, it changes for both
        if n != m or a.storage_offset() != b.storage_offset():
            self.notes.append((path + '.storage', '%d elements, from %d' % (n, a.storage_offset()),
                               '%d, from %d' % (m, b.storage_offset())))
        if bits(a) != bits(b):
            self.values(path, a, b)
        return None

    def values(self, path, a, b):
        size = a.element_size()
        x, y = bits(a), bits(b)
        other = [i for i in range(a.numel()) if x[i * size:(i + 1) * size] != y[i * size:(i + 1) * size]]
        wrong = [i for i in other if any(y[i * size:(i + 1) * size])]
        if a.dim() != 1 or not PADDED.search(path):
            wrong = other
        self.padding += len(other) - len(wrong)
        if wrong:
            i = wrong[0]
            self.differ(path, '%s, %d of %d elements differ, [%d] %r' % (text(a), len(wrong), a.numel(), i, a.reshape(-1)[i].item()),
                        repr(b.reshape(-1)[i].item()))


def compare_folders(a, b):
    c = Compare()
    names, got = sorted(os.listdir(a)), sorted(os.listdir(b))
    if names != got:
        c.differ('files', sorted(set(names) - set(got)) or 'those', sorted(set(got) - set(names)) or 'fewer')
    for n in names:
        if n in got and n.endswith('.pt'):
            one = Compare()
            one.walk(n + ':', load(os.path.join(a, n)), load(os.path.join(b, n)))
            c.out += one.out
            c.notes += one.notes
            c.padding += one.padding
    return c


def grouped(items):
    """Differences with the same words but for rank and index, once: {(path, a, b): count}."""
    out = collections.OrderedDict()
    for path, a, b in items:
        path = re.sub(r'rank_\d+', 'rank_N', path, 1)
        path = re.sub(r'\[\d+\]', '[i]', path)
        key = (path, str(a)[:160], str(b)[:160])
        out[key] = out.get(key, 0) + 1
    return out


# ---- the test ----

def reshard(ckpt, src, dst, world, stage, more=()):
    p = subprocess.run([ckpt, 'reshard', '-q', src, dst, '--world', str(world), '--stage', str(stage), *more],
                       capture_output=True, text=True, check=False, timeout=900)
    return 'exit %d: %s' % (p.returncode, p.stderr.strip()) if p.returncode else ''


def round_trip(a, tmp, name, src, tag, e, stage):
    """Differences of one detour: (what is wrong, notes)."""
    mid, dst = os.path.join(tmp, 'mid'), os.path.join(tmp, 'dst')
    detour = 3 if e['world'] != 3 else 2
    more = ['--keep-objects'] if name in OBJECTS else []
    try:
        text_ = reshard(a.ckpt, src, mid, detour, stage, more + (['--tag', tag] if tag else [])) or \
            reshard(a.ckpt, mid, dst, e['world'], e['stage'], more)
        if text_:
            return [('reshard', 'works', text_)], []
        with open(os.path.join(dst, 'latest'), encoding='utf-8') as f:
            back = f.read()
        with open(os.path.join(src, 'latest'), encoding='utf-8') as f:
            tag = tag or f.read().strip()
        c = compare_folders(os.path.join(src, tag), os.path.join(dst, back))
        return ([] if back == tag else [('latest', tag, back)]) + c.out, c.notes
    except Exception as x:  # a failure of any kind is a failed check
        return [('comparing', 'works', '%s: %s' % (type(x).__name__, x))], []
    finally:
        for d in (mid, dst):
            shutil.rmtree(d, ignore_errors=True)


def lost(e, name, stage, path):
    words = {k: '|'.join(re.escape(n) for n in v) or '-' for k, v in
             (('buffers', e.get('buffers') or {}), ('params', e.get('param_order') or []), ('tied', e.get('tied') or {}))}
    return any(re.match(n, name) and stage in s and re.search(re.sub(r'\{(\w+)\}', lambda m: words[m.group(1)], p), path)
               for n, s, p, _ in LOST)


def fixture(a, tmp, name, path, e, count):
    """All tags of one fixture by all detours; what differs is printed once with the stages that show it."""
    src = os.path.join(path, e.get('checkpoint', 'ckpt'))
    seen, noted = collections.OrderedDict(), collections.OrderedDict()
    for tag in [e.get('tag')] + list(e.get('other_tags') or {}):
        for stage in ANY:
            if stage in CANNOT.get(name, ()):
                continue
            out, notes = round_trip(a, tmp, name, src, tag, e, stage)
            out = [d for d in out if not lost(e, name, stage, d[0])]
            count[bool(out)] += 1
            for into, items in ((seen, out), (noted, notes)):
                for key in grouped(items):
                    into.setdefault(key, []).append(str(stage))
    for i, ((where, x, y), stages) in enumerate(seen.items()):
        if i == 10:
            print('FAIL %s: and %d more' % (name, len(seen) - i))
            break
        print('FAIL %s by stage %s: %s: was %s, is %s' % (name, ' '.join(stages), where, x, y))
    for (where, x, y), stages in noted.items() if a.verbose else ():
        print('note %s by stage %s: %s: was %s, is %s' % (name, ' '.join(stages), where, x, y))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('fixtures')
    p.add_argument('only', nargs='*')
    a = p.parse_intermixed_args()
    a.ckpt = os.path.join(a.bin, 'ckpt')
    count = [0, 0]
    with tempfile.TemporaryDirectory(dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None) as tmp:
        for name in sorted(os.listdir(a.fixtures)):
            path = os.path.join(a.fixtures, name)
            if name.startswith(PREFIXES) and os.path.exists(os.path.join(path, 'expected.json')) and (not a.only or name in a.only):
                with open(os.path.join(path, 'expected.json'), encoding='utf-8') as f:
                    e = json.load(f)
                if e.get('stage'):
                    fixture(a, tmp, name, path, e, count)
    passed, failed = count
    print('reshard round trip (torch %s): %d passed, %d failed' % (torch.__version__, passed, failed))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
