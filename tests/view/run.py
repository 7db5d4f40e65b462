#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of views held against written ones: every fixture that converts, to every format.

  run.py --bin build/bin --view build/view_files [--some] [--ranges N] FIXTURES_FOLDER [NAME...]

What `ckpt convert` and `ckpt reshard` write is read by view_files whole, in random ranges by four threads and around every
boundary, and then streamed: equal but for the checksums of torch archives, which streams have too.  --some: a few formats of each.
"""
import argparse
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from turns import mine  # noqa: E402

WEIGHTS = [('safetensors', []), ('torch', []), ('npz', []), ('hf', []), ('hf', ['dtype=fp16']), ('hf-bin', ['shard=9000']),
           ('hf-sharded', ['world=3']), ('gguf', [])]
TRAINING = [('zero', ['stage=1', 'world=3']), ('zero', ['stage=3', 'world=2']), ('zero', ['stage=2', 'world=1']), ('universal', []), ('dcp', ['world=2']),
            ('fsdp-ranks', ['world=2'])]
OPTION = {'dtype': '--dtype', 'stage': '--stage', 'world': '--world', 'shard': '--max-shard-size'}
passed, failed = 0, []


def source_of(folder):
    """The checkpoint of a fixture."""
    for name in ('ckpt', 'model', 'checkpoint', 'run'):
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    inside = [os.path.join(folder, x) for x in sorted(os.listdir(folder)) if not x.endswith(('.json', '.md', '.py'))]
    return inside[0] if len(inside) == 1 else None


def write(b, source, to, form, words):
    """The same by the program; None: it does not convert to that."""
    out = os.path.join(to, {'safetensors': 'o.safetensors', 'torch': 'o.pt', 'npz': 'o.npz', 'gguf': 'o.gguf'}.get(form, 'out'))
    options = [y for w in words for y in (OPTION[w.split('=')[0]], w.split('=')[1])]
    verb = 'reshard' if (form, words) in TRAINING else 'convert'
    options += ['--to', form] if form != 'zero' else []
    options += ['--map', 'none'] if form.startswith(('hf', 'gguf')) else []
    p = subprocess.run([b + '/ckpt', verb, source, out, '-q', '--allow-overflow', *options], capture_output=True, text=True)
    return out if p.returncode == 0 else None


def one(a, name, source, form, words, more):
    global passed
    with tempfile.TemporaryDirectory(dir=a.tmp) as to:
        out = write(os.path.abspath(a.bin), source, to, form, words)
        if not out:
            return
        words = words + (['shard=5000000000'] if form.startswith('hf') and 'shard=9000' not in words and form != 'hf-sharded' else [])
        p = subprocess.run([a.view, source, out, form, *words, *more], capture_output=True, text=True)
    if p.returncode == 0 and ' files' in p.stdout:
        passed += 1
    else:
        failed.append(name)
        print('FAIL %s to %s %s: %s %s' % (name, form, ' '.join(words + more), p.returncode, (p.stdout + p.stderr)[:600]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--view', default='build/view_files')
    p.add_argument('--some', action='store_true')
    p.add_argument('--ranges', type=int, default=2500)
    p.add_argument('--tmp')
    p.add_argument('fixtures')
    p.add_argument('names', nargs='*')
    a = p.parse_args()
    todo = WEIGHTS + TRAINING
    cases = [(n, name, k) for n, name in enumerate(a.names or sorted(os.listdir(a.fixtures))) for k in range(len(todo))]
    for n, name, k in cases if a.some or a.names else mine(cases):
        source = source_of(os.path.join(a.fixtures, name)) if os.path.isdir(os.path.join(a.fixtures, name)) else None
        form, words = todo[k]
        if not source or (a.some and (n + k) % 4):
            continue
        # reshard makes training state of a file alone, which the library's callers do themselves
        if os.path.isfile(source) and (form, words) in TRAINING:
            continue
        more = ['ranges=%d' % (a.ranges if k % 4 == n % 4 else min(a.ranges, 200))]
        # little memory, so that blocks go; records checked first
        one(a, name, source, form, words, more + (['memory=1000000', 'jobs=3'] if k % 3 == 1 else ['first=1'] if k % 3 == 2 else []))
    print('view: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
