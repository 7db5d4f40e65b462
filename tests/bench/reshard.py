#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure resharding: a whole training state rewritten for another number of ranks, and plans of very large ones.

  reshard.py --bin build/bin --gen build/gen_zero [--size 1.4] [--repeat 3] [--script] [--no-run] [--work DIR]

`ckpt reshard` of a ZeRO-3 checkpoint, weights and moments, from 4 ranks to 3, beside `cp -r` of the same folder with
`sync` of the copy; the two take turns, a first round does not count.  With --script also the universal checkpoint, by our
ds_to_universal and by DeepSpeed's: its way to another world.  Then --dry-run of sparse checkpoints: plans without payload; and `ckpt ls`
of one with 1000 parameters on each of 1024 ranks.
"""
import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench import SIZES, clear, measure, once, row, tree_bytes

# shape: layers, width, vocabulary, ranks before and after
SHAPES = {'7B': (32, 4096, 32000, 8, 6), '70B': (80, 8192, 128256, 64, 48), '1T': (128, 25600, 128256, 1024, 512)}


def generate(a, folder, args):
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([a.gen, '--stage', '3', '--dtype', 'bf16'] + args + [folder], check=True, stdout=subprocess.DEVNULL)


def whole_state(a, work):
    src, out, copy = (os.path.join(work, x) for x in ('src', 'out', 'copy'))
    generate(a, src, ['--world', '4'] + SIZES[a.size])
    reshard = [os.path.join(a.bin, 'ckpt'), 'reshard', '-q', '--world', '3', src, out]
    (ours, mem), (three, mem3), (cp, _) = measure(
        [(reshard, clear(out)), (reshard[:5] + ['--stage', '1'] + reshard[5:], clear(out)),
         (['sh', '-c', 'cp -r "$1" "$2" && find "$2" -type f -exec sync {} +', 'sh', src, copy], clear(copy))], a.repeat)
    print('\n### Resharding a whole state: ZeRO-3, bf16, %.2f GB, 4 -> 3 ranks, median of %d\n' % (tree_bytes(src) / 1e9, a.repeat))
    row(['what', 's', 'peak MiB', 'beside cp'])
    row(['---'] * 4)
    row(['ckpt reshard --world 3', '%.2f' % ours, mem, '%.2f' % (ours / cp)])
    row(['ckpt reshard --world 3 --stage 1', '%.2f' % three, mem3, '%.2f' % (three / cp)])
    row(['cp -r of the source, sync', '%.2f' % cp, '', '1.00'])
    for d in (out, copy):
        shutil.rmtree(d, ignore_errors=True)
    if a.script:
        universal(a, src, cp)
    shutil.rmtree(src, ignore_errors=True)


def universal(a, src, cp):
    """The other way to another world: once each."""
    tag, out = os.path.join(src, 'global_step4'), os.path.join(src, 'universal')
    args = ['--input_folder', tag, '--output_folder', out, '--inject_missing_state']
    jobs = [('our ds_to_universal', [os.path.join(a.bin, 'ds_to_universal')] + args)]
    if importlib.util.find_spec('deepspeed') is not None and importlib.util.find_spec('torch') is not None:
        jobs.append(('DeepSpeed\'s ds_to_universal', [sys.executable, '-m', 'deepspeed.checkpoint.ds_to_universal'] + args))
    for name, cmd in jobs:
        seconds, mem = once(cmd, clear(out), dict(os.environ, DS_ACCELERATOR='cpu'))
        row([name, '%.2f' % seconds, mem, '%.2f' % (seconds / cp)])
    shutil.rmtree(out, ignore_errors=True)


def plans(a, work):
    print('\n### Planning without payload (sparse files, `ckpt reshard --dry-run`, stage 3)\n')
    row(['shape', 'ranks', 'bytes planned', 's', 'peak MiB'])
    row(['---'] * 5)
    for name in a.shapes.split(','):
        layers, width, vocab, before, after = SHAPES[name]
        src = os.path.join(work, 'plan')
        generate(a, src, ['--sparse', '--world', str(before), '--layers', str(layers), '--width', str(width), '--vocab', str(vocab)])
        size = tree_bytes(src)
        [(seconds, mem)] = measure([([os.path.join(a.bin, 'ckpt'), 'reshard', '-q', '--dry-run', '--world', str(after), src,
                                      os.path.join(work, 'nothing')], None)], a.repeat)
        row(['%s (%d layers, width %d)' % (name, layers, width), '%d -> %d' % (before, after), '%.3g TB' % (size / 1e12),
             '%.2f' % seconds, mem])
        shutil.rmtree(src, ignore_errors=True)


def opening(a, work):
    src = os.path.join(work, 'many')
    generate(a, src, ['--sparse', '--world', '1024', '--layers', '83', '--width', '256', '--vocab', '1024'])
    [(seconds, mem)] = measure([([os.path.join(a.bin, 'ckpt'), 'ls', src], None)], a.repeat)
    print('\n`ckpt ls` of 1024 ranks with 1000 parameters each (2048 files): %.2f s, %s MiB' % (seconds, mem))
    shutil.rmtree(src, ignore_errors=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--gen', default='build/gen_zero')
    p.add_argument('--size', default='1.4', choices=list(SIZES), help='GB of the weights; the state is three times that')
    p.add_argument('--shapes', default='70B,1T', help='of %s' % ', '.join(SHAPES))
    p.add_argument('--repeat', type=int, default=3)
    p.add_argument('--script', action='store_true', help='also the universal checkpoints; DeepSpeed takes minutes')
    p.add_argument('--no-run', action='store_true', help='plans only')
    p.add_argument('--work', default=None, help='folder on the disk to measure (default: the temporary folder)')
    a = p.parse_args()
    work = tempfile.mkdtemp(dir=a.work)
    model = [x.split(':')[1].strip() for x in open('/proc/cpuinfo') if x.startswith('model name')][:1]
    print('%s, %d processors; page cache warm; load %.1f' % (''.join(model) or platform.machine(), os.cpu_count(), os.getloadavg()[0]))
    try:
        if not a.no_run:
            whole_state(a, work)
        plans(a, work)
        opening(a, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    main()
