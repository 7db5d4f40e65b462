#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files read and written, held against what gguf and llama.cpp made of the same weights.

    gguf.py --bin build/bin FIXTURES

Every tensor of a file by its stored bytes and, where the gguf package has an algorithm, by its values; every file that llama.cpp
wrote comes out of a conversion to GGUF as it went in.
"""
import argparse
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from readers import read_safetensors

passed, failed = 0, []


def verdict(name, problem):
    global passed
    if problem:
        failed.append(name)
        print('FAIL %s: %s' % (name, problem))
    else:
        passed += 1


def ckpt(a, *args):
    return subprocess.run([os.path.join(a.bin, 'ckpt'), *args], capture_output=True, timeout=300)


def same_file(a, path, out):
    """From GGUF to GGUF nothing changes: keys, types, order, padding."""
    p = ckpt(a, 'convert', '-q', path, out)
    if p.returncode:
        return p.stderr.decode()
    with open(path, 'rb') as f, open(out, 'rb') as g:
        return '' if f.read() == g.read() else 'another file'


def stored(a, path, tensors):
    """Types, shapes and bytes as they are in the file."""
    p = ckpt(a, 'ls', '--json', path)
    if p.returncode:
        return p.stderr.decode()
    got = {t['name']: t for t in json.loads(p.stdout)['tensors']}
    if list(got) != list(tensors):
        return 'has %s' % list(got)
    for name, w in tensors.items():
        t = got[name]
        if t['dtype'] != w['type'] or t['shape'] != w['ne'][::-1]:
            return '%s is %s %s' % (name, t['dtype'], t['shape'])
        raw = ckpt(a, 'cat', '--raw', path, name).stdout
        if hashlib.sha256(raw).hexdigest() != w['sha256_raw']:
            return '%s has other bytes' % name
    return ''


def dequantized(a, path, tensors, out):
    p = ckpt(a, 'convert', '-q', '--dtype', 'f32', path, out)
    if p.returncode:
        return p.stderr.decode()
    got, _ = read_safetensors(out)
    for name, w in tensors.items():
        if 'dequantized_f32' in w and got[name][2] != w['dequantized_f32']:
            return '%s has other values' % name
    return ''


def types(a, folder, tmp):
    with open(os.path.join(folder, 'expected.json')) as f:
        files = json.load(f)['files']
    for name, tensors in files.items():
        path = os.path.join(folder, name)
        verdict('%s stored' % name, stored(a, path, tensors))
        verdict('%s values' % name, dequantized(a, path, tensors, os.path.join(tmp, name + '.safetensors')))
    verdict('big-endian', stored(a, os.path.join(folder, 'big_endian.gguf'), files['big_endian.gguf']))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('fixtures')
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        types(a, os.path.join(a.fixtures, 'gguf_types'), tmp)
        for path in sorted(glob.glob(os.path.join(a.fixtures, 'gguf_*', '*.gguf'))):
            if os.path.basename(path) != 'big_endian.gguf':
                verdict('again ' + path, same_file(a, path, os.path.join(tmp, path.replace('/', '_'))))
    print('gguf: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
