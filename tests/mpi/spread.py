#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ckpt --local-target: what is written goes to the disks of several machines, here namespaces with a host name and a folder of
their own.

  spread.py --bin build/bin --gen build/gen_zero --shim build/ioshim.so [--machines 3] [--kills 4] FIXTURES_FOLDER NAME...

Each machine gets its ranks' files, byte by byte those of one process, and all get what is of no rank; sources are shared or
local.  Hosts by name, ranks that do not fit, a machine on which the output exists, or has no space, ranks killed at random
moments: nothing has a final name anywhere, and a rerun gives what it should.
"""
import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_mpi as one_host
from fault import only, processes
from local import deal, prepare
from run_mpi import ENV, check, same, source_of

RANK = re.compile(r'zero_pp_rank_(\d+)_|__(\d+)_0\.distcp|_world_size_\d+_rank_(\d+)\.pt')


def files(folder):
    """Paths below a folder."""
    return sorted(os.path.relpath(os.path.join(d, x), folder) for d, _, names in os.walk(folder) for x in names)


def rank_of(path):
    """Whose file it is; universal checkpoints have one of rank 0 for all."""
    found = None if 'universal/' in path else RANK.search(os.path.basename(path))
    return int(next(g for g in found.groups() if g is not None)) if found else None


class Job:
    """A command by processes that are machines: WORK/mK is machine K's WORK/here."""

    def __init__(self, work, machines, words, world, hosts=None):
        self.work, self.machines, self.words = work, machines, words
        self.place = hosts or [r * machines // world for r in range(world)]
        self.want, self.out = work + '/want', work  # out: how its processes are found

    def one(self, words):
        """What one process makes of it."""
        shutil.rmtree(self.want, ignore_errors=True)
        return subprocess.run([w.replace('OUT', self.want + '/out') for w in words], capture_output=True, text=True)

    def start(self, n=None, wrap=()):
        words = [w.replace('OUT', 'here/out') for w in self.words]
        return subprocess.Popen(['mpirun', '-q', '--oversubscribe', '--bind-to', 'none', '-n', str(n or self.machines), self.work + '/wrap', *wrap] + words,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(ENV, CKPT_TEST_CASE=self.work), cwd=self.work)

    def end(self, p):
        try:
            out, err = p.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            p.kill()
            return None, 'still running'
        return p.returncode, out + err

    def wrong(self, hidden=False):
        """What machine has what it should not have, or not what it should; hidden: which may have a run's own things."""
        want = files(self.want + '/out')
        for k in range(self.machines):
            mine = [x for x in want if k in self.place and (rank_of(x) is None or self.place[rank_of(x)] == k)]
            here = '%s/m%d/out' % (self.work, k)
            have = [x for x in files(here) if not hidden or '.ckpt-' not in x]
            if have != mine:
                return 'machine %d: too much: %s, missing: %s' % (k, sorted(set(have) - set(mine)), sorted(set(mine) - set(have)))
            for x in mine:
                if same(os.path.join(self.want, 'out', x), os.path.join(here, x)):
                    return '%s on machine %d differs' % (x, k)
        return None

    def there(self):
        """A file with a final name, on any machine."""
        for k in range(self.machines):
            found = [x for x in files('%s/m%d/out' % (self.work, k)) if '.ckpt-' not in x]
            if found:
                return 'machine %d has %s' % (k, found)
        return None

    def left(self):
        """Anything at all."""
        found = [k for k in range(self.machines) if os.path.exists('%s/m%d/out' % (self.work, k))]
        return 'left on machines %s' % found if found else None

    def clean(self):
        for k in range(self.machines):
            shutil.rmtree('%s/m%d/out' % (self.work, k), ignore_errors=True)


def attempt(label, job, words):
    one = job.one(words)
    if one.returncode:
        return check(label, 'one process: status %d: %s' % (one.returncode, one.stderr))
    status, text = job.end(job.start())
    check(label, 'status %s: %s' % (status, text) if status else job.wrong())
    return None


def fixture(b, name, source, training, work, machines):
    """Ranks' files from shared and from local shards; and files that are of no rank."""
    for local in (False, True):
        deal(source, work, machines)
        at = 'here/ckpt' if local else source
        flags = ['--local-target'] + (['--local'] if local else [])
        todo = [('hf', ['convert', source, 'OUT', '--to', 'hf', '--max-shard-size', '8KB'], 1)]
        if training:
            todo += [('zero1', ['reshard', source, 'OUT', '--world', str(2 * machines), '--stage', '1'], 2 * machines),
                     ('zero3', ['reshard', source, 'OUT', '--world', str(machines), '--stage', '3'], machines),
                     ('dcp', ['reshard', source, 'OUT', '--to', 'dcp', '--world', str(machines)], machines),
                     ('ranks', ['reshard', source, 'OUT', '--to', 'fsdp-ranks', '--world', str(machines)], machines),
                     ('universal', ['convert', source, 'OUT', '--to', 'universal'], 1)]
        for what, words, world in todo:
            job = Job(work, machines, [b + '/ckpt'] + [at if w == source else w for w in words] + flags, world)
            if world == 1:
                job.place = list(range(machines))  # every machine gets all
            attempt('%s %s, %s source' % (name, what, 'local' if local else 'shared'), job, [b + '/ckpt'] + words)
            if what == 'zero1' and not one_host.failed:
                back = Job(work, machines, [b + '/ckpt', 'diff', '--local', source, 'here/out'], 1)
                # the source is the same on all machines
                status, text = back.end(back.start())
                check('%s diff of what was spread' % name, None if status == 0 else 'status %s: %s' % (status, text))
            job.clean()


def hosts(b, source, work, machines):
    """A hostfile: machines with unequal numbers of ranks, or none; wrong ones."""
    words, last = [b + '/ckpt', 'reshard', source, 'OUT', '--world', '5', '--stage', '2'], machines - 1

    def told(text, *more):
        with open(work + '/hosts', 'w') as f:
            f.write(text)
        return Job(work, machines, words + ['--local-target', '--hostfile', work + '/hosts', *more], 5, [last, last, last, 0, 0])

    job = told('m%d slots=3\nm0 slots=2\n' % last)
    attempt('hostfile', job, words)
    job.clean()
    for label, text, says, status in (('too few slots', 'm0 slots=2\n', 'the hosts have 2', 2), ('no such host', 'm0 slots=4\nnowhere slots=1\n', 'nowhere', 5),
                                      ('no hostfile', 'm0 4 slots\n', 'hosts', None)):
        got, out = told(text).end(told(text).start())
        check('hostfile: ' + label, (None if (got == status or status is None and got) and says in out else 'status %s: %s' % (got, out)) or job.left())
    job = Job(work, machines, words + ['--local-target'], 5)
    got, out = job.end(job.start())
    check('ranks that do not fit', (None if got == 2 and 'not a multiple' in out else 'status %s: %s' % (got, out)) or job.left())
    job.words.append('--dry-run')
    got, out = job.end(job.start())
    check('the same, by --dry-run', None if got == 2 and 'not a multiple' in out else 'status %s: %s' % (got, out))
    for i in range(3):  # who comes first makes the folder: each time another
        together = Job(work, machines, [w.replace('OUT', work + '/together/a/b') for w in words] + ['--world', str(machines), '--local-target'], machines)
        got, out = together.end(together.start())
        check('one folder for all machines, %d' % i, 'status %s: %s' % (got, out) if got != 2 or 'a folder of its own' not in out
              else 'left' if os.path.exists(work + '/together') else None)
        shutil.rmtree(work + '/together', ignore_errors=True)
    one = subprocess.run([w.replace('OUT', work + '/alone') for w in words] + ['--local-target'], capture_output=True, text=True)
    check('one process', None if one.returncode == 0 and 'no effect' in one.stderr else one.stderr)


def failures(b, source, shim, work, machines, kills):
    words = [b + '/ckpt', 'reshard', source, 'OUT', '--world', str(4 * machines), '--stage', '2', '--jobs', '1']
    job = Job(work, machines, words + ['--local-target'], 4 * machines)
    job.one(words)
    for op, nth in (('pwrite', 3), ('fsync', 2)):
        status, out = job.end(job.start(wrap=only(1, shim, op, 'ENOSPC', nth)))
        check('no space on machine 1, %s %d' % (op, nth), (None if status == 7 and 'No space left' in out else 'status %s: %s' % (status, out)) or job.left())
        job.clean()
    # the last step of one machine fails: the others take theirs back
    status, out = job.end(job.start(wrap=only(1, shim, 'rename', 'ENOSPC', 1)))
    check('machine 1 cannot rename', (None if status == 7 else 'status %s: %s' % (status, out)) or job.there())
    job.clean()
    tag = os.listdir(job.want + '/out')
    tag = next(x for x in tag if os.path.isdir(os.path.join(job.want, 'out', x)))
    os.makedirs('%s/m1/out/%s' % (work, tag))
    status, out = job.end(job.start())
    check('it exists on machine 1', (None if status == 2 and 'exists already' in out else 'status %s: %s' % (status, out)) or job.there())
    job.clean()
    killing(job, kills)


def killing(job, kills):
    rng, hit = random.Random(7), 0
    t = time.monotonic()
    job.end(job.start())
    last = time.monotonic() - t
    job.clean()
    for i in range(kills):
        p = job.start()
        time.sleep(rng.uniform(0.3, 1.0) * last)
        ranks = processes(job, job.machines)
        victim = rng.choice(sorted(ranks)) if ranks else None
        if victim is not None:
            try:
                os.kill(ranks[victim], signal.SIGKILL)
                hit += 1
            except ProcessLookupError:
                pass
        status, out = job.end(p)
        problem = out if status is None else job.wrong() if status == 0 else None
        # what has a name after a failure is whole: of a machine that was killed when all had agreed
        if status and job.there() and not problem:
            problem = next((x for x in whole_or_none(job)), None)
        # killed when all had their names: hidden things may be left, for `ckpt clean`
        if not problem and job.wrong(hidden=True):
            status, out = job.end(job.start())
            problem = ('rerun: status %s: %s' % (status, out) if status else None) or job.wrong()
        check('kill %d, rank %s' % (i, victim), problem)
        job.clean()
    print('kills: %d of %d hit a running process' % (hit, kills))


def whole_or_none(job):
    for k in range(job.machines):
        here = '%s/m%d/out' % (job.work, k)
        for x in files(here):
            if '.ckpt-' not in x and same(os.path.join(job.want, 'out', x), os.path.join(here, x)):
                yield 'machine %d: %s differs' % (k, x)


def main():
    a = argparse.ArgumentParser()
    a.add_argument('--bin', default='build/bin')
    a.add_argument('--gen', default='build/gen_zero')
    a.add_argument('--shim', default='build/ioshim.so')
    a.add_argument('--machines', type=int, default=3)
    a.add_argument('--kills', type=int, default=0, help='with this, failures are tried as well')
    a.add_argument('fixtures')
    a.add_argument('names', nargs='+')
    a = a.parse_args()
    b = os.path.abspath(a.bin)
    if not shutil.which('mpirun') or not os.path.exists(os.path.join(b, '../lib/libckpt-mpi.so')):
        print('spread: 0 passed, 0 failed: skipped, no mpirun or no libckpt-mpi.so')
        return 0
    if subprocess.run(['unshare', '-mu', 'hostname', 'm0'], capture_output=True).returncode:
        print('spread: 0 passed, 0 failed: skipped, namespaces are not allowed here')
        return 0
    for name in a.names:
        source, training = source_of(os.path.join(a.fixtures, name))
        with tempfile.TemporaryDirectory() as work:
            prepare(work)
            fixture(b, name, os.path.abspath(source), training, work, a.machines)
            if name == a.names[0] and training:
                hosts(b, os.path.abspath(source), work, a.machines)
    if a.kills:
        with tempfile.TemporaryDirectory() as work:
            prepare(work)
            for k in range(a.machines):
                os.makedirs('%s/m%d' % (work, k))
            subprocess.run([a.gen, '--stage', '3', '--world', '4', '--layers', '12', '--width', '448', '--vocab', '4000', work + '/run'], check=True,
                           stdout=subprocess.DEVNULL)
            failures(b, work + '/run', os.path.abspath(a.shim), work, a.machines, a.kills)
    print('spread: %d passed, %d failed' % (one_host.passed, len(one_host.failed)))
    return 1 if one_host.failed else 0


if __name__ == '__main__':
    sys.exit(main())
