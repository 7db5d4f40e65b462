#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resharding keeps every bit: ZeRO fixtures rewritten for other worlds and stages hold what their expected.json says.

    reshard.py --bin build/bin --golden build/golden_map [--gen build/gen_zero] [--some] FIXTURES [NAME...]

Each tag of each ZeRO fixture goes to all of WORLDS and STAGES; what golden_map then reads (names, dtypes, shapes and SHA-256
of weights, moments, buffers and frozen parameters; optimizer steps, counters) must be what it reads from the source and what
expected.json says.  What cannot be resharded stands in CANNOT with the status and words of the refusal, which are
checked; nothing is skipped.  --some: to fewer worlds, in all to each.  Needs Python only.
"""
import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile

WORLDS, STAGES = (1, 2, 3, 4, 7, 8), (1, 2, 3)
PLAIN = ('z0_', 'z1_', 'z2_', 'z3_', 'uni_', 'old0', 'hf_trainer_')
SLICED = ('tp2_', 'autotp2_', 'moe_', 'pipe2_')
OTHER = ('hf_trainer_fsdp', 'tp2_fsdp')   # not of DeepSpeed
DTYPE = {'float64': 'F64', 'float32': 'F32', 'float16': 'F16', 'bfloat16': 'BF16', 'int64': 'I64', 'int32': 'I32', 'int16': 'I16',
         'int8': 'I8', 'uint8': 'U8', 'bool': 'BOOL'}

# What cannot be: fixture, stages, worlds, exit status and a part of the message.
CANNOT = (
    # Its stage 3 lists parameters in the model's order, which does not say what group they are of.
    ('old0316_z1_fp16_w2', (3,), WORLDS, 3, 'releases before 0.4.3 cannot keep 2 parameter groups in stage 3'),
    # Experts of two ranks; and DeepSpeed has no stage 3 for them.
    ('moe_ep2_z0_w2', (1, 2), (1, 3, 7), 2, 'the 2 ranks that share the experts'),
    ('moe_ep2_z2_w2', (1, 2), (1, 3, 7), 2, 'the 2 ranks that share the experts'),
    ('moe_', (3,), WORLDS, 3, 'DeepSpeed has no stage 3 for mixtures of experts'),
)
# Client state of classes that are unknown here: the tool refuses without being told what to do.
OBJECTS = ()
# Other 16-bit copies: fixture, --dtype
RECAST = (('z1_bf16_w3_groups', 'fp16'), ('z3_fp16_w3_subgroups', 'bf16'), ('z1_fp32_w5', 'bf16'), ('z3_bf16_w5_odd', 'fp32'))
KEPT_FACTS = ('step', 'skipped steps', 'optimizer steps', 'parameter groups')


class Report:
    """Counts, and failures with the worlds and stages that share them."""

    def __init__(self):
        self.passed, self.failed, self.texts = 0, 0, {}

    def add(self, name, where, problems):
        self.passed += not problems
        self.failed += bool(problems)
        if problems:
            more = ' (and %d more)' % (len(problems) - 2) if len(problems) > 2 else ''
            self.texts.setdefault((name, '; '.join(problems[:2]) + more), []).append(where)

    def end(self, what):
        for (name, text), where in self.texts.items():
            print('FAIL %s [%s]: %s' % (name, ' '.join(where), text[:600]))
        print('%s: %d passed, %d failed' % (what, self.passed, self.failed))
        return 1 if self.failed or not self.passed else 0


def call(*cmd):
    p = subprocess.run(cmd, capture_output=True, text=True, check=False, timeout=300)
    return p.returncode, p.stdout, p.stderr.strip()


class Seen:
    """What golden_map reads from a checkpoint."""

    def __init__(self, golden, path, tag=None):
        self.status, out, self.error = call(golden, '-o', '-k', *(['-t', tag] if tag else []), path)
        self.tensors, self.facts, self.findings, self.params = {}, {}, [], []
        for line in out.splitlines():
            part = line.split('\t')
            if part[0] == '#fact':
                self.facts[part[1]] = part[2]
            elif part[0] == '#param':
                self.params.append(part[1:])
            elif line.startswith('#'):
                self.findings.append(line)
            else:
                sha, dtype, role, owner, shape, name = line.split('\t', 5)
                self.tensors[name] = (dtype, shape, sha, role, owner)


def against_source(got, source):
    """Problems of a result beside its source."""
    out = []
    for n, t in source.tensors.items():
        if n not in got.tensors:
            # Old stages 1 keep step counts as numbers, not as tensors; they are among the facts.
            out += [] if n.startswith('step/') and t[1] == '' else ['%s: lost' % n]
        elif got.tensors[n] != t:
            names = ('dtype', 'shape', 'values', 'role', 'owner')
            out.append('%s: %s' % (n, ', '.join('%s %s instead of %s' % (k, a[:12], b[:12])
                                                for k, a, b in zip(names, got.tensors[n], t) if a != b)))
    out += ['%s: not in the source' % n for n in got.tensors if n not in source.tensors]
    out += ['%s is %s instead of %s' % (k, got.facts.get(k), source.facts.get(k)) for k in KEPT_FACTS
            if k in source.facts and got.facts.get(k) != source.facts[k]]
    if got.params != source.params:
        out.append('the parameters of the groups, or their order, differ')
    # What old releases cannot name is a finding of stage 3; were it lost, it would stand above.
    known = {f.rsplit(': ', 1)[-1] for f in source.findings}
    out += ['new finding: %s' % f for f in got.findings if f.startswith(('#twin', '#finding\t1', '#finding\t2')) and
            'left out' not in f and f.rsplit(': ', 1)[-1] not in known]
    return out


def against_expected(got, expected):
    """Problems beside expected.json: its one table, or one of each model-parallel rank (experts are compare_grid.py's)."""
    out, wanted = [], {}
    tables = {'': {**expected, 'state': expected['optimizer'].get('state')}} if 'weights' in expected else \
        {'mp_rank_%02d/' % int(k.rsplit('_', 1)[1]): t for k, t in expected['by_rank'].items()
         if not k.startswith('ep_') and expected['stage']}
    for prefix, table in tables.items():
        wanted.update({prefix + n: t for n, t in table['weights'].items()})
        for kind, params in (table.get('state') or {}).items():
            wanted.update({'%s%s/%s' % (prefix, kind, n): t for n, t in params.items()})
    for n, t in wanted.items():
        want = (DTYPE.get(t['dtype'], t['dtype']), ','.join(map(str, t['shape'])), t['sha256'])
        if n not in got.tensors:
            out.append('%s: expected, not there' % n)
        elif got.tensors[n][:3] != want:
            out.append('%s: %s instead of %s' % (n, got.tensors[n][:3], want))
    return out


class Tester:
    def __init__(self, a, tmp):
        self.ckpt, self.golden, self.tmp = os.path.join(a.bin, 'ckpt'), a.golden, tmp
        self.some, self.turn = a.some, 0
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.report, self.n, self.waiting = Report(), 0, []

    def reshard(self, src, dst, world, stage, *more):
        return call(self.ckpt, 'reshard', '-q', src, dst, '--world', str(world), '--stage', str(stage), *more)

    def folder(self):
        self.n += 1
        return os.path.join(self.tmp, 'r%d' % self.n)

    def one(self, job):
        """Reshard and compare; problems."""
        name, src, tag, world, stage, more, source, expected, cannot = job
        dst = self.folder()
        try:
            more = list(more) + (['--tag', tag] if tag else []) + (['--keep-objects'] if name in OBJECTS else [])
            status, _, text = self.reshard(src, dst, world, stage, *more)
            if cannot:
                fine = status == cannot[0] and cannot[1] in text and not os.path.exists(os.path.join(dst, 'latest'))
                return [] if fine else ['status %d instead of %d (%s): %s' % (status, cannot[0], cannot[1], text)]
            if status:
                return ['status %d: %s' % (status, text)]
            got = Seen(self.golden, dst)
            if got.status:
                return ['the result is not read, status %d: %s %s' % (got.status, got.error, ' '.join(got.findings[:2]))]
            facts = {'world size': (str(world),), 'stage': (str(stage),)}
            if stage == 1 and name.startswith('old0') and name < 'old077':   # those releases write 2 for both, their files being alike
                facts['stage'] = ('1', '2')
            return (['%s is %s instead of %s' % (k, got.facts.get(k), v[0]) for k, v in facts.items() if got.facts.get(k) not in v] +
                    against_source(got, source) + against_expected(got, expected))
        except Exception as x:  # a failure of any kind is a failed check
            return ['%s: %s' % (type(x).__name__, x)]
        finally:
            shutil.rmtree(dst, ignore_errors=True)

    def targets(self):
        """Stages and worlds to write for; with --some the worlds take turns from one checkpoint to the next."""
        every = [(stage, world) for stage in STAGES for world in WORLDS]
        self.turn += 1
        return [x for i, x in enumerate(every) if not self.some or (i + self.turn) % 4 == 0]

    def submit(self, where, job):
        self.waiting.append((job[0], where, self.pool.submit(self.one, job)))

    def collect(self):
        for name, where, future in self.waiting:
            self.report.add(name, where, future.result())
        self.waiting = []

    def fixture(self, path):
        """All tags of one fixture to all worlds and stages."""
        name = os.path.basename(path)
        with open(os.path.join(path, 'expected.json'), encoding='utf-8') as f:
            e = json.load(f)
        src = os.path.join(path, e.get('checkpoint', 'ckpt'))
        tags = {e.get('tag'): e, **{t: {**e, **x} for t, x in (e.get('other_tags') or {}).items()}}
        for tag, one in tags.items():
            source = Seen(self.golden, src, tag)
            if source.status:
                self.report.add(name, 'source', ['not read: %s' % source.error])
                continue
            for stage, world in self.targets():
                cannot = next((c[3:] for c in CANNOT if name.startswith(c[0]) and stage in c[1] and world in c[2]), None)
                self.submit('%sw%d/z%d' % (tag + ' ' if tag != e.get('tag') else '', world, stage),
                            (name, src, tag, world, stage, (), source, one, cannot))
        for other, dtype in RECAST:
            if other == name:
                self.recast(name, src, dtype, source)

    def recast(self, name, src, dtype, source):
        """Another training dtype: masters and moments stay, copies are rounded anew (golden_map compares them)."""
        for stage in STAGES:
            dst = self.folder()
            status, _, text = self.reshard(src, dst, 2, stage, '--dtype', dtype)
            got = Seen(self.golden, dst) if status == 0 else None
            problems = ['status %d: %s' % (status, text)] if status else []
            if got:
                problems += [got.error] if got.status else []
                problems += ['%s: values' % n for n, t in source.tensors.items() if t[3] in ('weight', 'state') and
                             got.tensors.get(n) != t]
                want = {'fp16': 'F16', 'bf16': 'BF16', 'fp32': 'F32'}[dtype]
                problems += [] if got.facts.get('dtype') == want else ['dtype is %s' % got.facts.get('dtype')]
            self.report.add(name, '--dtype %s/z%d' % (dtype, stage), problems)
            shutil.rmtree(dst, ignore_errors=True)

    def wide(self, gen):
        """One rank to 1024 and back: the same bytes as without the detour, and at 1024 the same values."""
        for stage in STAGES:
            src, one, mid, back = (self.folder() for _ in range(4))
            call(gen, '--stage', str(stage), '--world', '1', '--layers', '2', '--width', '16', '--vocab', '97', '--context', '32', src)
            problems = []
            for a, b, world in ((src, one, 1), (one, mid, 1024), (mid, back, 1)):
                status, _, text = self.reshard(a, b, world, stage, '--no-fsync')
                problems += ['to %d: status %d: %s' % (world, status, text)] if status else []
            if not problems:
                before, after = files(one), files(back)
                problems = ['%s: other bytes' % f for f in sorted(set(before) | set(after)) if before.get(f) != after.get(f)]
                problems += ['at 1024: %s' % x for x in against_source(Seen(self.golden, mid), Seen(self.golden, src))]
            self.report.add('1 -> 1024 -> 1', 'z%d' % stage, problems)
            for d in (src, one, mid, back):
                shutil.rmtree(d, ignore_errors=True)


def files(folder):
    """All bytes of a folder, by path."""
    out = {}
    for d, _, names in os.walk(folder):
        for n in names:
            with open(os.path.join(d, n), 'rb') as f:
                out[os.path.relpath(os.path.join(d, n), folder)] = f.read()
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--golden', default='build/golden_map')
    p.add_argument('--gen', default=None)
    p.add_argument('--some', action='store_true')
    p.add_argument('fixtures')
    p.add_argument('only', nargs='*')
    a = p.parse_intermixed_args()
    shm = '/dev/shm' if os.access('/dev/shm', os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shm) as tmp:
        t = Tester(a, tmp)
        for name in sorted(os.listdir(a.fixtures)):
            path = os.path.join(a.fixtures, name)
            if name.startswith(PLAIN + SLICED) and not name.startswith(OTHER) and os.path.exists(os.path.join(path, 'expected.json')) and (not a.only or name in a.only):
                t.fixture(path)
                t.collect()
        if a.gen and not a.only:
            t.wide(a.gen)
        return t.report.end('reshard')


if __name__ == '__main__':
    sys.exit(main())
