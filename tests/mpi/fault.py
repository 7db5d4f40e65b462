#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ckpt under mpirun when something goes wrong: every end comes soon, leaves nothing under a final name, and a rerun of the same
command, by the same or another number of processes, gives what one process gives.

  fault.py --bin build/bin --gen build/gen_zero --shim build/ioshim.so [--some] [--kills 100]

Ranks killed at random moments, stopped, stopped and continued; no space on one rank's disk; a damaged record that one rank
reads; SIGTERM; ranks that were not started alike.  Without mpirun or the MPI plugin nothing is run, and the closing line says so.
"""
import argparse
import glob
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_mpi as one_host
from run_mpi import ENV, MPIRUN, check, plain, same

SOON = 60  # seconds that an end may take on a loaded machine; most take one or two


class Case:
    """A command, what one process makes of it, and where it is tried."""

    def __init__(self, work, b, name, words):
        self.out = os.path.join(work, name, 'out')
        self.want = os.path.join(work, name + '.want')
        self.words = [b + '/ckpt', *words[:2], self.out, *words[2:]]
        one = subprocess.run([w if w != self.out else self.want for w in self.words], capture_output=True, text=True)
        assert one.returncode == 0, one.stderr
        self.name = name

    def start(self, n, wrap=(), env=()):
        os.makedirs(os.path.dirname(self.out), exist_ok=True)
        return subprocess.Popen(MPIRUN + [str(n), *wrap] + self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=dict(ENV, CKPT_TEST_CASE=self.out, **dict(env)))

    def end(self, p):
        """Status, text and seconds; None: it hangs."""
        t = time.monotonic()
        try:
            out, err = p.communicate(timeout=SOON)
        except subprocess.TimeoutExpired:
            p.kill()
            return None, 'still running after %d s' % SOON
        return p.returncode, plain(out + err) + '\n%.1f s' % (time.monotonic() - t)

    def there(self):
        """Something has a final name; hidden are what a killed run leaves for the next."""
        return os.path.isfile(self.out) or os.path.isdir(self.out) and any(not x.startswith('.') for x in os.listdir(self.out))

    def wrong(self):
        """What is wrong with the output after a failure: something has a final name and is not what it will be."""
        if not self.there():
            return None
        if not os.path.isdir(self.out) or not any(x.startswith('.') for x in os.listdir(self.out)):
            return same(self.want, self.out)
        # killed between the renames: each that was made is of a whole file, and the next run makes the others
        for name in os.listdir(self.out):
            problem = None if name.startswith('.') else same(os.path.join(self.want, name), os.path.join(self.out, name))
            if problem:
                return problem
        return None

    def rubbish(self):
        here = os.path.dirname(self.out)
        return [x for x in os.listdir(here) if x != 'out']

    def again(self, n):
        """The same command to its end; None, or what is wrong, and how many files were kept."""
        if self.there() and not same(self.want, self.out):
            return None
        p = self.start(n)
        status, text = self.end(p)
        # the ranks that lived may have made the last renames meanwhile
        if status == 2 and 'exists already' in text and not same(self.want, self.out):
            return None
        if status != 0:
            return 'rerun by %d: status %s: %s' % (n, status, text)
        return same(self.want, self.out) or (self.rubbish() and 'left: %s' % self.rubbish()) or None

    def clean(self):
        shutil.rmtree(os.path.dirname(self.out), ignore_errors=True)


def processes(case, n):
    """Process numbers of the ranks that are there, by rank."""
    found = {}
    for d in glob.glob('/proc/[0-9]*'):
        try:
            with open(d + '/environ', 'rb') as f:
                env = f.read().split(b'\0')
            with open(d + '/comm') as f:
                name = f.read().strip()
        except OSError:
            continue
        if b'CKPT_TEST_CASE=' + case.out.encode() in env and name == 'ckpt':
            rank = [x for x in env if x.startswith(b'OMPI_COMM_WORLD_RANK=')]
            if rank:
                found[int(rank[0].split(b'=')[1])] = int(d[6:])
    return found


def wait_stopped(case, rank):
    """The process number of a rank once it has stopped; None if it has not within 60 s."""
    for _ in range(600):
        pid = processes(case, 3).get(rank)
        try:
            with open('/proc/%s/stat' % pid) as f:
                if f.read().rsplit(')', 1)[1].split()[0] == 'T':
                    return pid
        except OSError:
            pass
        time.sleep(0.1)
    return None


def seconds(case, n):
    t = time.monotonic()
    case.end(case.start(n))
    case.clean()
    return time.monotonic() - t


def kills(cases, times, seed):
    rng = random.Random(seed)
    hit, whole, kept = 0, 0, 0
    lasts = {c.name: seconds(c, 3) for c in cases}
    for i in range(times):
        c, n = cases[i % len(cases)], 2 + i % 3
        p = c.start(n)
        time.sleep(rng.uniform(0.15, 1.0) * lasts[c.name])
        ranks = processes(c, n)
        victim = rng.choice(sorted(ranks)) if ranks else None
        if victim is not None:
            try:
                os.kill(ranks[victim], signal.SIGKILL)
                hit += 1
            except ProcessLookupError:
                pass
        status, text = c.end(p)
        label = 'kill %d: %s by %d, rank %s' % (i, c.name, n, victim)
        problem = text if status is None else c.wrong()
        if not problem and status == 0 and not os.path.exists(c.out):
            problem = 'status 0 and no output'
        whole += c.there()
        journal = [os.path.join(d, f) for d, _, names in os.walk(os.path.dirname(c.out)) for f in names if f == 'journal']
        kept += sum(sum(1 for _ in open(j, errors='replace')) > 1 for j in journal)
        check(label, problem or c.again(1 + rng.randrange(4)))
        c.clean()
    print('kills: %d of %d hit a running process, %d came after the end, %d left a journal with finished files' % (hit, times, whole, kept))


def stops(case, shim):
    """A rank that stops: the others say which, and end; one that goes on in time does no harm."""
    for rank in (1, 0):
        p = case.start(3, env={'CKPT_MPI_LIMIT': '2'}.items(), wrap=only(rank, shim, 'pwrite', 'stop', 2))
        status, text = case.end(p)
        # Rank 0 cannot say it of itself; any other may
        check('stop rank %d' % rank, None if status and 'rank %d' % rank in text and 'has not responded' in text and not case.there()
              else 'status %s: %s' % (status, text))
        check('after stop %d' % rank, case.again(2))
        case.clean()
    p = case.start(3, wrap=only(1, shim, 'pwrite', 'stop', 2))
    # on a busy machine the call can come late, and a signal sent before it would leave the rank stopped for good
    stopped = wait_stopped(case, 1)
    if stopped:
        time.sleep(1)
        os.kill(stopped, signal.SIGCONT)
    status, text = case.end(p)
    check('stop and go on', same(case.want, case.out) if status == 0 else 'status %s: %s' % (status, text))
    case.clean()


def only(rank, shim, op, kind, nth):
    """A wrapper: one rank's nth call of a kind goes wrong."""
    return ['sh', '-c', '[ $OMPI_COMM_WORLD_RANK != %d ] || export LD_PRELOAD=%s IOSHIM_OP=%s IOSHIM_KIND=%s IOSHIM_NTH=%d IOSHIM_PATH=/out; exec "$@"'
            % (rank, shim, op, kind, nth), 'sh']


def full(case, shim, some):
    """No space left for one rank, by name as of one process."""
    for rank in (0, 2) if some else (0, 1, 2):
        for op, nth in (('pwrite', 3), ('fsync', 1)) if some else (('pwrite', 1), ('pwrite', 3), ('fsync', 1)):
            status, text = case.end(case.start(3, wrap=only(rank, shim, op, 'ENOSPC', nth)))
            problem = None
            if status == 0:
                problem = same(case.want, case.out)  # this rank makes no such call
            elif status != 7 or 'No space left' not in text:
                problem = 'status %s: %s' % (status, text)
            elif os.path.exists(case.out) or case.rubbish():
                problem = 'left: %s' % os.listdir(os.path.dirname(case.out))
            check('%s: ENOSPC, rank %d, %s %d' % (case.name, rank, op, nth), problem)
            case.clean()


def damaged(work, b, source):
    """A bit of a record changes: the text and status of one process."""
    bad = os.path.join(work, 'bad')
    shutil.copytree(source, bad)
    path = sorted(glob.glob(bad + '/*/*optim_states.pt'))[-1]
    with open(path, 'r+b') as f:
        f.seek(os.path.getsize(path) // 2)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 16]))
    words = [b + '/ckpt', 'reshard', bad, work + '/never', '--world', '3']
    one = subprocess.run(words, capture_output=True, text=True)
    many = subprocess.run(MPIRUN + ['3'] + words, capture_output=True, text=True, env=ENV, timeout=SOON)
    check('damaged', None if one.returncode == many.returncode == 3 and plain(one.stderr) == plain(many.stderr) and
          not os.path.exists(work + '/never') else 'status %d, %d: %s' % (one.returncode, many.returncode, many.stderr))
    shutil.rmtree(bad)


def ended(case):
    """SIGTERM and SIGINT to the launcher."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        p = case.start(3)
        while not processes(case, 3) and p.poll() is None:
            time.sleep(0.01)
        time.sleep(0.15)
        p.send_signal(sig)
        status, text = case.end(p)
        check('signal %d' % sig, text if status is None else case.wrong())
        check('after signal %d' % sig, case.again(3))
        case.clean()


def unlike(work, b, source):
    """Ranks that were not started alike, or do not see the same files: refused, by name of the rank, and nothing is written."""
    ckpt = b + '/ckpt'
    for k in 'ab':
        shutil.copytree(source, '%s/%s/run' % (work, k))
    out = work + '/unlike'
    as_rank_1 = lambda there: ['sh', '-c', '[ $OMPI_COMM_WORLD_RANK != 1 ] || %s; exec "$@"' % there, 'sh']
    for label, words, want, text in (
            ('arguments', ['1', ckpt, 'diff', source, source, ':', '-n', '1', ckpt, 'diff', source, work + '/a/run'], 2, "'... %s/a/run'" % work),
            ('verbs', ['1', ckpt, 'ls', source, ':', '-n', '1', ckpt, 'verify', source], 2, 'rank 1 has another command than rank 0'),
            ('maps', ['2', *as_rank_1('export CKPT_MAPS=/else'), ckpt, 'convert', source, out, '--to', 'hf'], 2, 'CKPT_MAPS=/else'),
            ('folders', ['2', *as_rank_1('cd ../b'), ckpt, 'convert', 'run', out, '--to', 'hf'], 7, 'another file under this path'),
            ('folders of --local', ['2', *as_rank_1('cd ../b'), ckpt, 'convert', '--local', 'run', out, '--to', 'hf'], 2, 'working folder'),
            ('files', ['2', *as_rank_1('cd /'), ckpt, 'verify', 'run'], 5, 'No such file'),
            ('limit', ['2', 'env', 'CKPT_MPI_LIMIT=1m', ckpt, 'verify', source], 2, 'CKPT_MPI_LIMIT')):
        p = subprocess.run(MPIRUN + words, capture_output=True, text=True, env=ENV, timeout=SOON, cwd=work + '/a')
        said = p.stdout + p.stderr
        check('unlike ' + label, None if p.returncode == want and text in said and not os.path.exists(out) else
              'status %d: %s' % (p.returncode, said[-600:]))


def main():
    a = argparse.ArgumentParser()
    a.add_argument('--bin', default='build/bin')
    a.add_argument('--gen', default='build/gen_zero')
    a.add_argument('--shim', default='build/ioshim.so')
    a.add_argument('--some', action='store_true', help='fewer ways to fail')
    a.add_argument('--kills', type=int, default=10)
    a.add_argument('--seed', type=int, default=16)
    a = a.parse_args()
    b = os.path.abspath(a.bin)
    if not shutil.which('mpirun') or not os.path.exists(os.path.join(b, '../lib/libckpt-mpi.so')):
        print('faults: 0 passed, 0 failed: skipped, no mpirun or no libckpt-mpi.so')
        return 0
    with tempfile.TemporaryDirectory() as work:
        source = work + '/run'
        subprocess.run([a.gen, '--stage', '3', '--world', '4', '--layers', '12', '--width', '448', '--vocab', '4000', source], check=True,
                       stdout=subprocess.DEVNULL)
        folder = Case(work, b, 'reshard', ['reshard', source, '--world', '24', '--jobs', '1'])
        cases = [folder, Case(work, b, 'hf', ['convert', source, '--to', 'hf', '--max-shard-size', '4MB']),
                 Case(work, b, 'file', ['convert', source, '--to', 'safetensors'])]
        kills(cases, a.kills, a.seed)
        stops(folder, os.path.abspath(a.shim))
        for c in cases[:1] if a.some else cases:
            full(c, os.path.abspath(a.shim), a.some)
        damaged(work, b, source)
        unlike(work, b, source)
        ended(folder)
    print('faults: %d passed, %d failed' % (one_host.passed, len(one_host.failed)))
    return 1 if one_host.failed else 0


if __name__ == '__main__':
    sys.exit(main())
