#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GB/s of F32 that one core quantizes, beside ggml's reference quantizers where CKPT_GGML names libggml-base.so.

    quant.py [--bin build/bin] [--mib 64] [TYPE...]

Ours is the processor's time of a whole conversion with one thread, files in memory and all, less that of the same file unchanged.
"""
import argparse
import ctypes
import json
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile

TYPES = {'q4_0': (32, 18), 'q4_1': (32, 20), 'q5_0': (32, 22), 'q5_1': (32, 24), 'q8_0': (32, 34),
         'q2_k': (256, 84), 'q3_k': (256, 110), 'q4_k': (256, 144), 'q5_k': (256, 176), 'q6_k': (256, 210)}


def seconds(who):
    r = resource.getrusage(who)
    return r.ru_utime + r.ru_stime


def ours(bin_, source, out, *options):
    before = seconds(resource.RUSAGE_CHILDREN)
    subprocess.run([os.path.join(bin_, 'ckpt'), 'convert', '-qf', '-j', '1', '--no-fsync', '--map', 'none', source, out, *options],
                   check=True, stderr=subprocess.DEVNULL)
    return seconds(resource.RUSAGE_CHILDREN) - before


def ggml(lib, name, data, n):
    per, size = TYPES[name]
    out = ctypes.create_string_buffer(n // per * size)
    fn = getattr(lib, 'quantize_row_%s_ref' % name.replace('_k', '_K'))
    before = seconds(resource.RUSAGE_SELF)
    fn(data, out, ctypes.c_int64(n))
    return seconds(resource.RUSAGE_SELF) - before, out.raw


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--mib', type=int, default=64)
    p.add_argument('types', nargs='*')
    a = p.parse_args()
    path = os.environ.get('CKPT_GGML')
    lib = ctypes.CDLL(path) if path else None
    n = a.mib << 18
    draw = random.Random(1)
    some = struct.pack('<65536f', *(draw.gauss(0, 0.02) for _ in range(65536)))
    data = some * (n // 65536)
    with tempfile.TemporaryDirectory(dir='/dev/shm') as tmp:
        source, out = os.path.join(tmp, 'x.safetensors'), os.path.join(tmp, 'x.gguf')
        head = json.dumps({'x.weight': {'dtype': 'F32', 'shape': [n // 1024, 1024], 'data_offsets': [0, 4 * n]}}).encode()
        with open(source, 'wb') as f:
            f.write(struct.pack('<Q', len(head)) + head + data)
        rest = ours(a.bin, source, out)
        for name in a.types or TYPES:
            took = ours(a.bin, source, out, '--dtype', name + ':*') - rest
            line = '%-5s ' % name + ('%6.3f GB/s' % (4 * n / 1e9 / took) if took > 5e-3 else 'as a copy  ')
            if lib:
                theirs, blocks = ggml(lib, name, data, n)
                with open(out, 'rb') as f:
                    same = blocks == f.read()[-len(blocks):]
                line += '   ggml %6.3f GB/s   %s' % (4 * n / 1e9 / max(theirs, 1e-3), 'equal' if same else 'DIFFERENT')
            print(line, flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
