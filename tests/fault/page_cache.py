#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run leaves in the page cache, and when it begins to write.

  page_cache.py --bin build/bin --gen build/gen_zero --work FOLDER_ON_A_DISK

With CKPT_CACHE=let-go: files that were not cached before are not afterwards, inputs that were stay, the output is on the disk and
not in the cache; with keep, and by default for a run that is small beside the memory, it stays.  The bytes are the same.  And most
of an output is on its way to the disk before the last sync, seen by strace where that is installed.
"""
import argparse
import ctypes
import filecmp
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile

passed, failed = 0, 0
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def check(label, problem):
    global passed, failed
    if problem:
        failed += 1
        print('FAIL %s: %s' % (label, problem))
    else:
        passed += 1


def cached(paths):
    """Which part of some files is in the page cache."""
    there = pages = 0
    for path in paths:
        size = os.path.getsize(path)
        with open(path, 'rb') as f:
            at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, f.fileno(), 0)
        n = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        seen = ctypes.create_string_buffer(n)
        if libc.mincore(at, size, seen) != 0:
            raise OSError(ctypes.get_errno(), 'mincore')
        libc.munmap(at, size)
        there += sum(x & 1 for x in seen.raw[:n])
        pages += n
    return there / pages


def forget(paths):
    """Onto the disk and out of the page cache."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm(paths):
    for path in paths:
        with open(path, 'rb') as f:
            while f.read(1 << 22):
                pass


def all_files(folder):
    return [os.path.join(d, x) for d, _, names in os.walk(folder) for x in names]


def between(what, low, high):
    return None if low <= what <= high else '%.0f %% is cached, expected %.0f to %.0f' % (100 * what, 100 * low, 100 * high)


def convert(a, source, out, how):
    env = dict(os.environ)
    env.pop('CKPT_CACHE', None)
    if how:
        env['CKPT_CACHE'] = how
    p = subprocess.run([a.bin + '/ckpt', 'convert', source, out, '--to', 'safetensors', '--force', '--json'], capture_output=True, text=True, env=env)
    if p.returncode:
        sys.exit('ckpt: %s' % p.stderr)
    return json.loads(p.stdout)['report']['page_cache']


def caches(a, source, work):
    """The four cases."""
    inputs, out, other = [f for f in all_files(source) if os.path.getsize(f) > 1 << 20], work + '/out.safetensors', work + '/other'
    forget(inputs)
    said = convert(a, source, out, 'let-go')
    check('said', None if said == 'let go' else said)
    check('cold inputs go', between(cached(inputs), 0, 0.15))
    check('the output goes', between(cached([out]), 0, 0.15))
    warm(inputs)
    convert(a, source, other, 'let-go')
    check('warm inputs stay', between(cached(inputs), 0.95, 1))
    check('same bytes', None if filecmp.cmp(out, other, shallow=False) else 'they differ')
    p = subprocess.run([a.bin + '/ckpt', 'verify', source], capture_output=True, text=True, env=dict(os.environ, CKPT_CACHE='let-go'))
    check('verify leaves warm files', p.stderr if p.returncode else between(cached(inputs), 0.95, 1))
    forget(inputs)
    p = subprocess.run([a.bin + '/ckpt', 'verify', source], capture_output=True, text=True, env=dict(os.environ, CKPT_CACHE='let-go'))
    check('verify lets go', p.stderr if p.returncode else between(cached(inputs), 0, 0.15))
    for how in ('keep', None):
        forget(inputs + [out])
        said = convert(a, source, out, how)
        check('%s: said' % how, None if said == 'kept' else said)
        # moments are not read
        check('%s: inputs' % how, between(cached(inputs), 0.3, 1))
        check('%s: output' % how, between(cached([out]), 0.8, 1))
    p = subprocess.run([a.bin + '/ckpt', 'ls', source], capture_output=True, text=True, env=dict(os.environ, CKPT_CACHE='maybe'))
    check('a wrong word', None if p.returncode == 2 and 'CKPT_CACHE=maybe' in p.stderr else p.stderr)


def early(a, source, work):
    """Ranges that are written back before the first fsync of the file."""
    if not shutil.which('strace'):
        print('strace is not installed: when writing begins was not looked at')
        return
    out, log = work + '/early.safetensors', work + '/log'
    p = subprocess.run(['strace', '-f', '-o', log, '-e', 'trace=sync_file_range,fsync', a.bin + '/ckpt', 'convert', '--no-sandbox', '-q', source, out, '--to',
                        'safetensors'], capture_output=True, text=True)
    if p.returncode:
        print('strace does not work here: %s' % p.stderr.strip()[-200:])
        return
    covered = set()
    for line in open(log):
        # folders and the journal are synced when the run begins
        if 'fsync(' in line and covered:
            break
        m = re.search(r'sync_file_range\(\d+, (\d+), (\d+)', line)
        if m:
            covered.update(range(int(m.group(1)) >> 20, (int(m.group(1)) + int(m.group(2))) >> 20))
    part = len(covered) / (os.path.getsize(out) >> 20)
    check('on its way before the last sync', None if part > 0.9 else '%.0f %%' % (100 * part))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--gen', default='build/gen_zero')
    p.add_argument('--work', default='.')
    a = p.parse_args()
    a.bin = os.path.abspath(a.bin)
    with tempfile.TemporaryDirectory(dir=a.work) as work:
        probe = work + '/probe'
        with open(probe, 'wb') as f:
            f.write(bytes(1 << 20))
        forget([probe])
        if cached([probe]) > 0.1:
            print('page cache: 0 passed, 0 failed: skipped, the build folder is on a file system that lives in memory')
            return 0
        source = work + '/run'
        subprocess.run([a.gen, '--stage', '3', '--world', '2', '--dtype', 'bf16', '--layers', '4', '--width', '512', '--vocab', '25000', source], check=True,
                       stdout=subprocess.DEVNULL)
        caches(a, source, work)
        early(a, source, work)
    print('page cache: %d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
