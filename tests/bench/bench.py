#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the main job: consolidate ZeRO checkpoints of several sizes and worlds.

  bench.py --bin build/bin --gen build/gen_zero [--sizes 0.1,1.4,6] [--worlds 2,8,64,1024] [--repeat 3] [--work DIR]

Figures: wall seconds (median of --repeat, the programs taking turns), peak resident MiB (the floor of about 13 MiB is what this Python
itself had at the fork).  Beside ours: `cp` of the same output bytes followed by `sync` of the copy, and
DeepSpeed's zero_to_fp32.py when this Python can import it.  The page cache is warm: every input was written or read just before.
"""
import argparse
import datetime
import importlib.util
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = {'0.1': ['--layers', '4', '--width', '512', '--vocab', '25000'],
         '1.4': ['--layers', '24', '--width', '1024', '--vocab', '50257'],
         '6': ['--layers', '48', '--width', '1600', '--vocab', '50257']}
SCRIPT = ('import sys; from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict as c; '
          'c(sys.argv[1], sys.argv[2], safe_serialization=False)')


def once(cmd, before=None, env=None):
    """Wall seconds and peak resident MiB of one run."""
    if before:
        before()
    t = time.time()
    p = subprocess.Popen(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
    err = p.stderr.read()
    _, status, usage = os.wait4(p.pid, 0)
    seconds = time.time() - t
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        sys.exit('%s: exit %d: %s' % (' '.join(cmd), p.returncode, err.decode()[-2000:]))
    return seconds, usage.ru_maxrss // 1024


def measure(jobs, repeat):
    """Run the jobs (command, before) in turn, a first round that does not count and then `repeat` rounds: what disturbs the disk
    disturbs them alike.  Medians of the seconds, maxima of the memory."""
    runs = [[once(cmd, before) for cmd, before in jobs] for _ in range(repeat + 1)][1:]
    return [(statistics.median(r[i][0] for r in runs), max(r[i][1] for r in runs)) for i in range(len(jobs))]


def fill(folder, hole={}):
    """Occupy the free memory, but for 400 MiB, with clean pages of the cache: those of a file that is one hole.  A virtual machine gives
    memory that is free for two seconds back to its host, and at its next use a page then costs ten times as much: without this a program
    pays for what was removed before it."""
    f = hole.setdefault(folder, tempfile.TemporaryFile(dir=folder, buffering=0))
    buf = bytearray(1 << 22)
    with open('/proc/meminfo') as info:
        free = int(info.read().split('MemFree:')[1].split()[0]) - (400 << 10)
    f.truncate(f.tell() + (max(free, 0) << 10))
    while f.readinto(buf):
        pass


def clear(path):
    def go():
        shutil.rmtree(path, ignore_errors=True)
        subprocess.run(['sync', '-f', os.path.dirname(path)])
        fill(os.path.dirname(path))
    return go


def tree_bytes(folder):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(folder) for f in fs)


def row(cells):
    print('| ' + ' | '.join(str(c) for c in cells) + ' |', flush=True)


def by_size(a, work):
    real = importlib.util.find_spec('deepspeed') is not None and importlib.util.find_spec('torch') is not None
    print('\n### Consolidating ZeRO-3, bf16, 4 ranks\n')
    row(['output', 'shards', 'ours, s', 'ours, peak MiB', 'ours --memory 32MiB: s', 'peak MiB', 'cp + sync, s', 'ours / cp', 'script, s',
         'script, peak MiB', 'script / ours'])
    row(['---'] * 11)
    for size in filter(None, a.sizes.split(',')):
        src, out, copy = (os.path.join(work, x) for x in ('src', 'out', 'copy'))
        shutil.rmtree(src, ignore_errors=True)
        subprocess.run([a.gen, '--stage', '3', '--world', '4', '--dtype', 'bf16'] + SIZES[size] + [src], check=True,
                       stdout=subprocess.DEVNULL)
        tool = os.path.join(a.bin, 'zero_to_fp32')
        (small, small_mem), (ours, mem), (cp, _) = measure(
            [([tool, '--quiet', '--memory', '32MiB', src, out], clear(out)), ([tool, '--quiet', src, out], clear(out)),
             (['sh', '-c', 'cp -r "$1" "$2" && find "$2" -type f -exec sync {} +', 'sh', out, copy], clear(copy))], a.repeat)
        n, m = tree_bytes(out), tree_bytes(src)
        shutil.rmtree(copy, ignore_errors=True)
        ds, ds_mem = '-', '-'
        if real and size in a.script_sizes.split(','):
            ds, ds_mem = once([sys.executable, '-c', SCRIPT, src, copy], clear(copy), dict(os.environ, DS_ACCELERATOR='cpu'))
        row(['%.2f GB' % (n / 1e9), '%.2f GB' % (m / 1e9), '%.2f' % ours, mem, '%.2f' % small, small_mem, '%.2f' % cp,
             '%.2f' % (ours / cp), ds if ds == '-' else '%.2f' % ds, ds_mem, ds if ds == '-' else '%.1f' % (ds / ours)])
        for d in (src, out, copy):
            shutil.rmtree(d, ignore_errors=True)


def by_world(a, work):
    print('\n### Cost per rank: ZeRO-3, bf16, tiny shards (148 tensors)\n')
    row(['ranks', 'files', 'ckpt ls, s', 'peak MiB', 'ckpt info, s', 'zero_to_fp32, s', 'peak MiB', 'us per tensor and rank'])
    row(['---'] * 8)
    for world in a.worlds.split(','):
        src, out = os.path.join(work, 'src'), os.path.join(work, 'out')
        shutil.rmtree(src, ignore_errors=True)
        subprocess.run([a.gen, '--stage', '3', '--world', world, '--dtype', 'bf16', '--layers', '12', '--width', '64', '--vocab',
                        '512', src], check=True, stdout=subprocess.DEVNULL)
        (ls, ls_mem), (info, _), (conv, mem) = measure(
            [([os.path.join(a.bin, 'ckpt'), 'ls', '-q', src], None), ([os.path.join(a.bin, 'ckpt'), 'info', src], None),
             ([os.path.join(a.bin, 'zero_to_fp32'), '--quiet', src, out], clear(out))], a.repeat)
        row([world, 2 * int(world), '%.3f' % ls, ls_mem, '%.3f' % info, '%.3f' % conv, mem,
             '%.2f' % (conv * 1e6 / 148 / int(world))])


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--gen', default='build/gen_zero')
    p.add_argument('--sizes', default='0.1,1.4,6')
    p.add_argument('--script-sizes', default='0.1,1.4')
    p.add_argument('--worlds', default='2,8,64,1024')
    p.add_argument('--repeat', type=int, default=3)
    p.add_argument('--work', default=None, help='folder on the disk to measure (default: the temporary folder)')
    a = p.parse_args()
    work = tempfile.mkdtemp(dir=a.work)
    model = [x.split(':')[1].strip() for x in open('/proc/cpuinfo') if x.startswith('model name')][:1]
    print('%s; %s, %d processors; %s; page cache warm; median of %d' %
          (datetime.date.today(), ''.join(model) or platform.machine(), os.cpu_count(), platform.system(), a.repeat))
    try:
        by_size(a, work)
        by_world(a, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    main()
