# SPDX-License-Identifier: Apache-2.0
"""What the fault tests share: counting verdicts, running a program, and what is in files and folders."""
import hashlib
import os
import resource
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from turns import mine  # noqa: E402

passed, failed = 0, 0


def verdict(label, problem):
    global passed, failed
    if problem:
        failed += 1
        if failed <= 20:
            print('FAIL %s: %s' % (label, problem))
    else:
        passed += 1


def turns(some, way, ways, calls):
    """Numbers of the calls that are to fail in this way: all, of which CI takes a third at a time, or each in one way."""
    return [n for n in range(1, calls + 1) if n % ways == way] if some else list(mine(range(1, calls + 1)))


def cpu_seconds():
    """What ended child processes have computed: unlike the clock it does not know what else runs."""
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def content(path):
    if not os.path.exists(path):
        return None
    with open(path, 'rb') as f:
        return hashlib.sha256(f.read()).hexdigest()


def run(cmd, env=None, limit=None):
    def setup():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    # without a function to call first, Python need not copy itself for each process
    p = subprocess.run(cmd, capture_output=True, text=True, env=dict(os.environ, **(env or {})),
                       preexec_fn=None if limit is None else setup, timeout=600)
    return p.returncode, p.stderr.strip()


def tree(folder):
    """Everything in a folder: what is in files, where links lead, that folders are there."""
    found = {}
    for top, dirs, files in os.walk(folder):
        for name in dirs + files:
            path = os.path.join(top, name)
            key = os.path.relpath(path, folder)
            if os.path.islink(path):
                found[key] = 'link to ' + os.readlink(path)
            else:
                found[key] = 'folder' if os.path.isdir(path) else content(path)
    return found


def differs(now, want):
    """The first thing in which two trees differ, as text; None if they do not."""
    for key in sorted(set(now) | set(want)):
        if now.get(key) != want.get(key):
            return '%s is %s' % (key, 'missing' if key not in now else 'left' if key not in want else 'different')
    return None
