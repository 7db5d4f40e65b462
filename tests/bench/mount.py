#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reading a mounted view beside reading the file it stands for, and pipes beside files.

  mount.py --bin build/bin --gen build/gen_zero [--null build/null_mount] [--size 1.4] [--repeat 3] [--work DIR]

The source is in the page cache, nothing of the view is.  `cat` of the real file from the cache copies each byte once; a view's first
read makes pages of the cache as well, which `cp` from cache to cache does too, and hands them through FUSE, of which null_mount is the
limit: its bytes cost nothing.  A pipe has the limit of `cat file | cat > other`.  Medians.

On a machine with other work, `chrt -f 10` before the command lets all of it run first.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time

from bench import SIZES, fill, row, tree_bytes


def seconds(command):
    start = time.time()
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
    return time.time() - start


class Mount:
    def __init__(self, a, source, *words, null=0):
        self.dir = tempfile.mkdtemp(dir=a.work)
        plugin = os.path.join(a.bin, '..', 'lib', 'libckpt-mount.so')
        command = [a.null, plugin, self.dir, str(null)] if null else [a.bin + '/ckpt', 'mount', '-q', source, self.dir, *words]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        while not os.path.ismount(self.dir) and self.process.poll() is None:
            time.sleep(0.01)

        if null and os.getuid() == 0:
            device = os.stat(self.dir).st_dev
            with open('/sys/class/bdi/%d:%d/read_ahead_kb' % (os.major(device), os.minor(device)), 'w') as f:
                f.write('1024')

    def peak(self):
        with open('/proc/%d/status' % self.process.pid) as f:
            return next(int(x.split()[1]) for x in f if x.startswith('VmHWM')) >> 10

    def end(self):
        self.process.terminate()
        self.process.wait()
        os.rmdir(self.dir)


def reading(a, source, file):
    print('\n### Reading a mounted view: ZeRO-3, bf16, 4 ranks, as fp32 safetensors\n')
    row(['memory', 'GB', 'cat real, GB/s', 'cp cache to cache, GB/s', 'FUSE alone, GB/s', 'cat mounted, GB/s', 'again, GB/s', 'of cat real', 'of cp', 'of FUSE alone',
         'peak MiB'])
    row(['---'] * 11)
    n = os.path.getsize(file) / 1e9
    for memory in ('256MiB', '32MiB'):
        times = []
        for _ in range(a.repeat + 1):
            subprocess.run('cat %s/*/* %s >/dev/null' % (source, file), shell=True, check=True)
            m = Mount(a, source, null=os.path.getsize(file))
            fill(a.work)
            null = seconds('cat %s/model.safetensors' % m.dir)
            m.end()
            m = Mount(a, source, '--to', 'safetensors', '--memory', memory)
            fill(a.work)
            first = seconds('cat %s/model.safetensors' % m.dir)
            again, peak = seconds('cat %s/model.safetensors' % m.dir), m.peak()
            fill(a.work)
            times.append([seconds('cat %s' % file), seconds('cp %s %s.copy' % (file, file)), first, again, peak, null])
            m.end()
            os.remove(file + '.copy')
        real, cp, first, again, peak, null = [statistics.median(t[i] for t in times[1:]) for i in range(6)]
        row([memory, '%.2f' % n, '%.1f' % (n / real), '%.2f' % (n / cp), '%.2f' % (n / null), '%.2f' % (n / first), '%.1f' % (n / again), '%.2f x' % (real / first),
             '%.2f x' % (cp / first), '%.2f x' % (null / first), '%d' % peak])


def piping(a, source, file):
    print('\n### convert into a pipe, beside a file\n')
    row(['GB', 'to a file, s', 'convert to - into cat > file, s', 'cat real into cat > file, s', 'pipe / file', 'pipe / cat'])
    row(['---'] * 6)
    out = file + '.out'
    times = [[seconds('rm -f %s; %s/ckpt convert -q %s %s --to safetensors' % (out, a.bin, source, out)),
              seconds('rm -f %s; %s/ckpt convert -q %s - --to safetensors | cat > %s' % (out, a.bin, source, out)),
              seconds('rm -f %s; cat %s | cat > %s' % (out, file, out))] for _ in range(a.repeat + 1)]
    os.remove(out)
    to_file, pipe, cat = [statistics.median(t[i] for t in times[1:]) for i in range(3)]
    row(['%.2f' % (os.path.getsize(file) / 1e9), '%.2f' % to_file, '%.2f' % pipe, '%.2f' % cat, '%.2f' % (pipe / to_file), '%.2f' % (pipe / cat)])


def listing(a, source):
    print('\n### ls -lR of a mounted target of 1024 ranks\n')
    row(['until mounted, s', 'ls -lR, s', 'files', 'peak MiB'])
    row(['---'] * 4)
    start = time.time()
    m = Mount(a, source, '--to', 'zero', '--world', '1024', '--stage', '3')
    ready = time.time() - start
    ls = seconds('ls -lR %s' % m.dir)
    row(['%.2f' % ready, '%.3f' % ls, sum(len(f) for _, _, f in os.walk(m.dir)), m.peak()])
    m.end()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--gen', default='build/gen_zero')
    p.add_argument('--null', default='build/null_mount')
    p.add_argument('--size', default='1.4')
    p.add_argument('--repeat', type=int, default=3)
    p.add_argument('--work')
    a = p.parse_args()
    a.bin, a.gen, a.null = os.path.abspath(a.bin), os.path.abspath(a.gen), os.path.abspath(a.null)
    own = a.work or tempfile.mkdtemp()
    a.work = own
    os.makedirs(own, exist_ok=True)
    source, file = os.path.join(own, 'source'), os.path.join(own, 'file.safetensors')
    shutil.rmtree(source, ignore_errors=True)
    subprocess.run([a.gen, '--stage', '3', '--world', '4', '--dtype', 'bf16'] + SIZES[a.size] + [source], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([a.bin + '/ckpt', 'convert', '-q', '-f', source, file], check=True)
    print('source: %.2f GB' % (tree_bytes(source) / 1e9))
    reading(a, source, file)
    piping(a, source, file)
    listing(a, source)
    shutil.rmtree(source)
    os.remove(file)


if __name__ == '__main__':
    main()
