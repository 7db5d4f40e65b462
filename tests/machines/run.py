#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ckpt and zerotrain over several machines (lay_out.py): what one process gives, and what is left when a machine goes.

  run.py --bin build/bin [--some] FIXTURES_FOLDER NAME...

Each fixture: convert, hf, verify, reshard, zero_to_fp32, ds_to_universal by 2 to 4 ranks on 2 or 3 machines, from a folder that
all see and from shards that are dealt over the machines' own folders.  zerotrain: losses over two machines are those of one;
saved in a folder that all see or on each machine's own disk; a machine is killed and the run goes on elsewhere.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, HERE + '/../mpi', HERE + '/../replay']
import run_mpi as one_host
from lay_out import Machines, missing
from local import deal
from run_mpi import check, commands, compare, same, source_of
from training import ds_config, gpt2, read_lines, write_tokens

SOON = 90                    # seconds that an end may take on a loaded machine
LAYOUTS = (['1:1', '2:1'], ['1:2', '2:1'], ['1:1', '2:2', '3:1'])


def end(p, soon=SOON):
    """Status, output, errors; None: it did not end."""
    try:
        out, err = p.communicate(timeout=soon)
    except subprocess.TimeoutExpired:
        p.kill()
        return None, '', 'still running after %d s' % soon
    return p.returncode, out, err


def remove(*paths):
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        if os.path.isfile(path):
            os.unlink(path)


def conversions(m, b, name, source, training, some):
    work = m.work
    whole = work + '/whole'
    shutil.copytree(source, whole + '/ckpt')
    deal(source, work, m.n, first=1)
    for k, (what, words) in enumerate(commands(b, 'ckpt', training)):
        out1, outn = whole + '/out', work + '/out'
        one = subprocess.run([w.replace('OUT', out1) for w in words], capture_output=True, text=True, cwd=whole)
        one = (one.returncode, one.stdout, one.stderr)
        for i, hosts in enumerate(LAYOUTS):
            if some and i != k % len(LAYOUTS):
                continue
            for local in (False, True):
                where = 'here/ckpt' if local else 'whole/ckpt'
                if local and len(hosts) < m.n:
                    hosts = ['%d:1' % k for k in range(1, m.n + 1)]
                many = end(m.mpirun(hosts, [w.replace('OUT', outn) if w != 'ckpt' else where for w in words] + ['--local'] * local))
                many = (many[0], *[x.replace(where, 'ckpt') for x in many[1:]])
                compare('%s %s on %s%s' % (name, what, ' '.join(hosts), ' --local' if local else ''), sum(int(h[2:]) for h in hosts), one, many,
                        out1, outn)
                remove(outn)
        remove(out1)
    remove(whole)


def command_of(pid):
    """The name of a process's program; '' once the process has ended."""
    try:
        with open('/proc/%d/comm' % pid, encoding='utf-8') as f:
            return f.read().strip()
    except OSError:
        return ''


def gone(m, b, source):
    """A machine goes while ckpt runs: it ends, names nothing, and the rest of the machines does it."""
    words = [b + '/ckpt', 'reshard', source, m.work + '/out', '--world', '3']
    for victim in (2, 1):
        p = m.mpirun(['1:1', '2:1'], words, {'CKPT_MPI_LIMIT': '5'}.items())
        for _ in range(1000):
            if any(command_of(x) == 'ckpt' for x in m.processes(victim)):
                break
            time.sleep(0.01)
        m.kill(victim)
        status, _, err = end(p)
        left = [x for x in os.listdir(m.work + '/out') if not x.startswith('.')] if os.path.exists(m.work + '/out') else []
        check('machine %d gone' % victim, None if status not in (None, 0) and not left else 'status %s, %s: %s' % (status, left, err[-400:]))
        again = end(m.mpirun(['3:2'], words))
        check('and again on machine 3', None if again[0] == 0 else again[2][-400:])
        subprocess.run(words[:3] + [m.work + '/one'] + words[4:], check=True, capture_output=True)
        check('equal', same(m.work + '/one', m.work + '/out'))
        remove(m.work + '/out', m.work + '/one')


class Training:
    def __init__(self, m, b):
        self.m, self.b, self.n = m, b, 0
        write_tokens(m.work + '/tokens.safetensors', 240, 12, 97)
        self.write('gpt2.json', gpt2())

    def write(self, name, content):
        with open(self.m.work + '/' + name, 'w') as f:
            json.dump(content, f)
        return self.m.work + '/' + name

    def words(self, stage, steps, *more, **config):
        self.n += 1
        ds = self.write('ds%d.json' % self.n, ds_config(stage, 6, **config))
        return [self.b + '/zerotrain', '--threads', '1', '--quiet', '--wait-limit', '30', '--deepspeed_config', ds, '--model', self.m.work + '/gpt2.json',
                '--data', self.m.work + '/tokens.safetensors', '--max-steps', str(steps), *more]

    def train(self, hosts, stage, steps, *more, **config):
        """Metrics of a run over machines; None: of two processes of this one."""
        metrics = '%s/metrics%d' % (self.m.work, self.n)
        words = self.words(stage, steps, '--metrics', metrics, *more, **config)
        if hosts:
            status, _, err = end(self.m.mpirun(hosts, words))
        else:
            p = subprocess.run(one_host.MPIRUN + ['2'] + words, capture_output=True, text=True, env=one_host.ENV, cwd=self.m.work, timeout=SOON)
            status, err = p.returncode, p.stderr
        if status != 0:
            raise RuntimeError('status %s: %s' % (status, err[-600:]))
        return read_lines(metrics)


def losses_differ(a, b, first=0):
    pairs = [(x, y) for x in a for y in b if x['step'] == y['step'] and x['step'] > first]
    far = [(x['step'], x['loss'], y['loss']) for x, y in pairs if abs(x['loss'] - y['loss']) > 1e-6 * abs(y['loss'])]
    return 'no step in common' if not pairs else 'step %s: %s, not %s' % far[0] if far else None


def attempt(label, what):
    try:
        check(label, what())
    except (RuntimeError, subprocess.TimeoutExpired, OSError) as e:
        check(label, str(e))


def trainings(m, b, some):
    t = Training(m, b)
    local = {'checkpoint': {'use_node_local_storage': True}}
    want = {stage: t.train(None, stage, 8) for stage in ((3,) if some else (1, 2, 3))}
    for stage in want:
        attempt('losses over machines, stage %d' % stage, lambda s=stage: losses_differ(t.train(['1:1', '2:1'], s, 8), want[s]))
    # saved where all see it, and gone on with by one machine
    attempt('saved on a shared disk', lambda: losses_differ(t.train(['1:1', '2:1'], 3, 4, '--save', m.work + '/run'), want[3]))
    attempt('resumed by one machine', lambda: losses_differ(t.train(['3:2'], 3, 8, '--load', m.work + '/run'), want[3], 4))
    # each machine its own ranks' shards
    attempt('saved on own disks', lambda: losses_differ(t.train(['1:1', '2:1'], 3, 4, '--save', m.work + '/here/run', **local), want[3]))
    mine = {k: sorted(f for _, _, names in os.walk('%s/m%d/run' % (m.work, k)) for f in names if 'optim' in f) for k in (1, 2)}
    check('own shards', None if all(len(x) == 1 for x in mine.values()) and mine[1] != mine[2] else str(mine))
    # a rank reads the shards of all ranks, to resume at any number of them: those of other machines are missed by name
    status, _, err = end(m.mpirun(['1:1', '2:1'], t.words(3, 8, '--load', m.work + '/here/run', **local)))
    check('others missed by name', None if status == 5 and 'zero_pp_rank_1' in err else 'status %s: %s' % (status, err[-400:]))
    # the shards of both machines, put together by ckpt
    status, _, err = end(m.mpirun(['1:1', '2:1'], [b + '/ckpt', 'reshard', '--local', 'here/run', m.work + '/joined', '--world', '2']))
    check('own disks joined', None if status == 0 else err[-400:])
    attempt('resumed from what was joined', lambda: losses_differ(t.train(['3:2'], 3, 8, '--load', m.work + '/joined'), want[3], 4))
    killed(m, t)


def killed(m, t):
    """A machine goes in the middle of training: the job ends, and the others go on from what was saved."""
    long = t.train(None, 2, 60)
    metrics = m.work + '/killed'
    p = m.mpirun(['1:1', '2:1'], t.words(2, 2000, '--metrics', metrics, '--save', m.work + '/long', '--save-every', '5'))
    for _ in range(SOON * 20):
        if os.path.exists(m.work + '/long/latest') and len(os.listdir(m.work + '/long')) > 3:
            break
        time.sleep(0.05)
    m.kill(2)
    start = time.monotonic()
    status, _, err = end(p)
    check('machine killed while training', None if status not in (None, 0) else 'status %s after %.0f s: %s' % (status, time.monotonic() - start, err))
    with open(m.work + '/long/latest') as f:
        step = int(f.read().strip().replace('global_step', ''))
    more = max(60, step + 3)
    if more > 60:
        long = t.train(None, 2, more)
    attempt('and resumed on the others', lambda: losses_differ(t.train(['1:1', '3:1'], 2, more, '--load', m.work + '/long'), long, step))


def main():
    a = argparse.ArgumentParser()
    a.add_argument('--bin', default='build/bin')
    a.add_argument('--some', action='store_true')
    a.add_argument('fixtures')
    a.add_argument('names', nargs='+')
    a = a.parse_args()
    b = os.path.abspath(a.bin)
    why = missing() or (None if os.path.exists(os.path.join(b, '../lib/libckpt-mpi.so')) else 'no libckpt-mpi.so')
    if why:
        print('machines: 0 passed, 0 failed: skipped, %s' % why)
        return 0
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as work, Machines(3, work) as m:
        for name in a.names:
            source, training = source_of(os.path.join(a.fixtures, name))
            conversions(m, b, name, os.path.abspath(source), training, a.some)
        gone(m, b, os.path.abspath(source_of(os.path.join(a.fixtures, a.names[0]))[0]))
        trainings(m, b, a.some)
    print('machines: %d passed, %d failed' % (one_host.passed, len(one_host.failed)))
    return 1 if one_host.failed else 0


if __name__ == '__main__':
    sys.exit(main())
