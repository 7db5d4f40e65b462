# SPDX-License-Identifier: Apache-2.0
"""What tests of many cases share: the command line, a folder to write to, counting, and our programs."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from turns import mine  # noqa: E402,F401


def arguments(*folders):
    """What the command line of such a test says: --bin, -v, a folder for each name, then NAME..."""
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('-v', '--verbose', action='store_true')
    for name in folders:
        p.add_argument(name)
    p.add_argument('only', nargs='*')
    return p.parse_intermixed_args()


def scratch():
    """A folder for what is written on the way, in memory where there is one."""
    return tempfile.TemporaryDirectory(dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None)


class Tally:
    """Counts checks, and says which failed; with verbose also which passed, and the note."""

    def __init__(self, verbose=False):
        self.verbose, self.passed, self.failed, self.start = verbose, 0, 0, time.time()

    def add(self, what, problems, note=''):
        self.passed += not problems
        self.failed += bool(problems)
        if problems:
            more = ' (and %d more)' % (len(problems) - 4) if len(problems) > 4 else ''
            note = ' (%s)' % note if note else ''
            print('FAIL %s: %s%s%s' % (what, '; '.join(problems[:4])[:900], more, note), flush=True)
        elif self.verbose:
            print('%s: %s' % (what, note or 'equal'), flush=True)
        return not problems

    def call(self, what, check, *args):
        """Count check(*args), which gives problems, or problems and a note; an exception is one.  True: passed."""
        try:
            found = check(*args)
        except Exception as x:
            found = ['%s: %s' % (type(x).__name__, x)]
        return self.add(what, *(found if isinstance(found, tuple) else (found,)))

    def end(self, title):
        """Say the sum; the status to exit with."""
        seconds = time.time() - self.start
        print('%s: %d passed, %d failed (%.0f s)' % (title, self.passed, self.failed, seconds), flush=True)
        return 1 if self.failed or not self.passed else 0


def reshard(a, src, dst, world, stage, more=()):
    """`ckpt reshard` of a.bin; the problems, none if it worked."""
    command = [os.path.join(a.bin, 'ckpt'), 'reshard', '-q', src, dst, '-w', str(world), '-s', str(stage), *more]
    p = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    return ['reshard: exit %d: %s' % (p.returncode, p.stderr.strip())] if p.returncode else []


def ckpt(a, *command):
    """ckpt of a.bin, which must end well; what it wrote to its standard output."""
    p = subprocess.run([os.path.join(a.bin, 'ckpt'), *command], capture_output=True, text=True, check=False, timeout=900)
    if p.returncode:
        raise RuntimeError('ckpt %s: exit %d: %s' % (command[0], p.returncode, p.stderr.strip()))
    return p.stdout


def zerotrain(program, options, world, metrics):
    """Losses of the updates of a run of `world` ranks, which must end well; metrics: the file that it writes them to."""
    command = [program, *options, '--metrics', metrics, '--no-shuffle', '--quiet', '--threads', '1', '--force']
    if world > 1:
        command = ['mpirun', '--oversubscribe', '--bind-to', 'none', '-n', str(world)] + command
    env = {**os.environ, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=env, check=False)
    if done.returncode:
        raise RuntimeError('zerotrain: ' + (done.stderr or done.stdout).strip()[-400:])
    with open(metrics, encoding='utf-8') as f:
        rows = [json.loads(line) for line in f if line.strip()]
    return [r['loss'] for r in rows if 'loss' in r]
