#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversion from a cold cache beside `cp` and sync of the same bytes: shards on a disk, caches dropped before each run.

  cold.py --bin build/bin --gen build/gen_zero [--sizes 1.4,6] [--rounds 3] --work FOLDER_ON_A_DISK

Programs take turns.  `cp` reads and writes what ours reads and writes: as many bytes as the weights in fp32 have.  Needs root, for
the caches.  A last part, warm: two processes by mpirun beside two threads of one.
"""
import argparse
import mmap
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench import fill

SIZES = {'0.1': ['--layers', '4', '--width', '512', '--vocab', '25000'],
         '1.4': ['--layers', '24', '--width', '1024', '--vocab', '50257'],
         '6': ['--layers', '48', '--width', '1600', '--vocab', '50257']}
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', PMIX_MCA_gds='hash')


def timed(cmd):
    """Seconds and MiB resident of a command, and what it printed."""
    start = time.monotonic()
    p = subprocess.run(['/usr/bin/time', '-f', 'peak %M'] + cmd, capture_output=True, text=True, env=ENV)
    seconds = time.monotonic() - start
    if p.returncode:
        sys.exit('%s: %s' % (' '.join(cmd), p.stderr))
    return seconds, int(re.search(r'peak (\d+)', p.stderr).group(1)) // 1024, p.stdout


def cold():
    os.sync()
    with open('/proc/sys/vm/drop_caches', 'w') as f:
        f.write('3')


def touch():
    """Use all memory that is free, once: what a virtual machine has not used yet costs ten times as much when it is used first, and
    whoever comes first would be charged."""
    cold()
    with open('/proc/meminfo') as f:
        free = int(re.search(r'MemAvailable: *(\d+) kB', f.read()).group(1)) * 1024
    page = b'\1' * (1 << 20)
    with mmap.mmap(-1, free // 10 * 9) as m:
        for _ in range(len(m) >> 20):
            m.write(page)


def row(name, runs, base=None):
    least, middle = min(s for s, _, _ in runs), statistics.median(s for s, _, _ in runs)
    print('%-28s %6.2f s  (median %6.2f)  %5d MiB%s' % (name, least, middle, max(m for _, m, _ in runs),
                                                        '  %.2f x cp, medians %.2f' % (least / base[0], middle / base[1]) if base else ''))
    return least, middle


def size(a, name, work):
    src, out, copy = work + '/run', work + '/out.safetensors', work + '/copy'
    subprocess.run([a.gen, '--stage', '3', '--world', '4', '--dtype', 'bf16'] + SIZES[name] + [src], check=True, stdout=subprocess.DEVNULL)
    convert = [a.bin + '/ckpt', 'convert', src, out, '--to', 'safetensors', '--force']
    ways = {'cp, sync': ['sh', '-c', 'cp %s/whole %s && sync %s' % (work, copy, copy)],
            'ckpt convert': convert, '  --memory 32MiB': convert + ['--memory', '32MiB']}
    timed(convert)
    os.rename(out, work + '/whole')
    runs = {w: [] for w in ways}
    for _ in range(a.rounds):
        for w, cmd in ways.items():
            for path in (out, copy):
                if os.path.exists(path):
                    os.unlink(path)
            cold()
            runs[w].append(timed(cmd))
    bytes_in = sum(os.path.getsize(os.path.join(d, f)) for d, _, names in os.walk(src) for f in names)
    print('cold: %.2f GB of shards, %.2f GB of weights out, %d rounds' % (bytes_in / 1e9, os.path.getsize(work + '/whole') / 1e9, a.rounds))
    base = row('cp, sync', runs['cp, sync'])
    for w in list(ways)[1:]:
        row(w, runs[w], base)
    if shutil.which('mpirun'):
        two(a, convert)
    shutil.rmtree(src)


def two(a, convert):
    """Seconds of the run itself, as it says, and of the command with mpirun's own start and end."""
    words = {'two threads': convert + ['--jobs', '2', '--json'],
             'two processes': ['mpirun', '-q', '--bind-to', 'core', '-n', '2'] + convert + ['--json']}
    runs = {w: [] for w in words}
    for _ in range(2 * a.rounds):
        for w, cmd in words.items():
            os.sync()
            fill(os.path.dirname(convert[2]))
            seconds, peak, text = timed(cmd)
            runs[w].append((float(re.search(r'"seconds": ([0-9.]+)', text).group(1)), peak, seconds))
    for w, r in runs.items():
        print('warm, %-16s %6.2f s of the run (median %6.2f), %.2f s of the command (least)' % (
            w, min(x[0] for x in r), statistics.median(x[0] for x in r), min(x[2] for x in r)))


def main():
    a = argparse.ArgumentParser()
    a.add_argument('--bin', default='build/bin')
    a.add_argument('--gen', default='build/gen_zero')
    a.add_argument('--sizes', default='1.4,6')
    a.add_argument('--rounds', type=int, default=3)
    a.add_argument('--work', required=True)
    a = a.parse_args()
    a.bin, a.gen = os.path.abspath(a.bin), os.path.abspath(a.gen)
    os.makedirs(a.work, exist_ok=True)
    touch()
    for name in a.sizes.split(','):
        with tempfile.TemporaryDirectory(dir=a.work) as work:
            size(a, name, work)


if __name__ == '__main__':
    main()
