#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files read and written, held against what gguf and llama.cpp made of the same weights.

    gguf.py --bin build/bin FIXTURES

Every tensor of a file by its stored bytes and, where the gguf package has an algorithm, by its values; every file that llama.cpp
wrote comes out of a conversion to GGUF as it went in.  Model folders become files of every type of llama.cpp's converter and of its
quantizer: each tensor's type and bytes, and every key, the tokenizer's too; back again, the tensors are those of the folder.
"""
import argparse
import glob
import hashlib
import json
import os
import struct
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


NAMES = ('UINT8', 'INT8', 'UINT16', 'INT16', 'UINT32', 'INT32', 'FLOAT32', 'BOOL', 'STRING', 'ARRAY', 'UINT64', 'INT64', 'FLOAT64')
CODES = 'BbHhIif?__QqdD'
TYPES = {0: ('F32', 1, 4), 1: ('F16', 1, 2), 30: ('BF16', 1, 2), 2: ('Q4_0', 32, 18), 3: ('Q4_1', 32, 20), 6: ('Q5_0', 32, 22),
         7: ('Q5_1', 32, 24), 8: ('Q8_0', 32, 34), 10: ('Q2_K', 256, 84), 11: ('Q3_K', 256, 110), 12: ('Q4_K', 256, 144),
         13: ('Q5_K', 256, 176), 14: ('Q6_K', 256, 210), 39: ('MXFP4', 32, 17)}


class Reader:
    """A GGUF file, read by the format's description alone."""

    def __init__(self, path):
        with open(path, 'rb') as f:
            self.data = f.read()
        self.at = 4
        assert self.data[:4] == b'GGUF' and self.number('I') == 3
        n_tensors, n_keys = self.number('Q'), self.number('Q')
        self.keys, self.tensors = {}, {}
        for _ in range(n_keys):
            name = self.text()
            self.keys[name] = self.value(self.number('I'))
        infos = []
        for _ in range(n_tensors):
            name = self.text()
            ne = [self.number('Q') for _ in range(self.number('I'))]
            infos.append((name, ne, TYPES[self.number('I')], self.number('Q')))
        align = self.keys.get('general.alignment', ('', 32))[1]
        base = expected = (self.at + align - 1) // align * align
        for name, ne, (dtype, per, size), offset in infos:
            n = 1
            for i in ne:
                n *= i
            assert base + offset == expected, 'another place'
            self.tensors[name] = (dtype, ne, self.data[expected:expected + n // per * size])
            end = (expected + n // per * size + align - 1) // align * align
            assert not any(self.data[expected + n // per * size:end]), 'padding'
            expected = end
        assert expected == len(self.data), 'another size'

    def number(self, code):
        v = struct.unpack_from('<' + code, self.data, self.at)[0]
        self.at += struct.calcsize('<' + code)
        return v

    def text(self):
        n = self.number('Q')
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 9:
            kind, n = self.number('I'), self.number('Q')
            return 'ARRAY/' + NAMES[kind], [self.value(kind)[1] for _ in range(n)]
        return NAMES[kind], self.text() if kind == 8 else self.number(CODES[kind])


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


def same_key(got, want):
    if got is None or got[0] != want['type']:
        return False
    value = want['value']
    if isinstance(value, dict):
        text = json.dumps(got[1], ensure_ascii=False).encode()
        return len(got[1]) == value['n'] and hashlib.sha256(text).hexdigest() == value['sha256_json']
    return got[1] == value


def model(path, want, keys):
    got = Reader(path)
    if set(got.tensors) != set(want['tensors']):
        return 'other tensors: %s' % sorted(set(got.tensors) ^ set(want['tensors']))[:4]
    for name, w in want['tensors'].items():
        dtype, ne, raw = got.tensors[name]
        if (dtype, ne) != (w['type'], w['ne']):
            return '%s is %s %s' % (name, dtype, ne)
        if hashlib.sha256(raw).hexdigest() != w['sha256_raw']:
            return '%s has other bytes' % name
    for name, w in keys.items():
        # the folder's name, which is not the one that was recorded
        if name != 'general.name' and not same_key(got.keys.get(name), w):
            return 'key %s is %s' % (name, str(got.keys.get(name))[:100])
    return ''.join('key %s' % k for k in got.keys if k not in keys)


def models(a, folder, tmp):
    """Every output type from the Hugging Face folder, and F32 back to it."""
    with open(os.path.join(folder, 'expected.json')) as f:
        files = json.load(f)['files']
    source = os.path.join(folder, 'hf')
    for kind, want in files.items():
        out = os.path.join(tmp, kind + '.gguf')
        dtype = kind.replace('convert_', '').replace('pure_', '').lower()
        name = '%s %s' % (os.path.basename(folder), kind)
        p = ckpt(a, 'convert', '-q', source, out, '--dtype', dtype)
        if 'error' in want:
            verdict(name, '' if p.returncode == 3 and not os.path.exists(out) else 'exit %d' % p.returncode)
            continue
        keys = dict(files['convert_F32']['kv'], **want.get('kv_changed', {}))
        verdict(name, p.stderr.decode() if p.returncode else model(out, want, keys))
    back, forth = os.path.join(tmp, 'back.safetensors'), os.path.join(tmp, 'forth.safetensors')
    p = ckpt(a, 'convert', '-q', os.path.join(tmp, 'convert_F32.gguf'), back, '--map', 'gguf:hf')
    q = ckpt(a, 'convert', '-q', '--dtype', 'f32', source, forth)
    if p.returncode or q.returncode:
        verdict(folder + ' back', (p.stderr + q.stderr).decode())
        return
    got, _ = read_safetensors(back)
    want, _ = read_safetensors(forth)
    # what GGUF does not have is left out, and prefixes that mean nothing
    verdict(folder + ' back', ''.join(n for n in got if not any(
        w.endswith(n) and tuple(want[w]) == tuple(got[n]) for w in want)))


def digest(tensors):
    """Of every tensor: name, type, shape, bytes."""
    h = hashlib.sha256()
    for name, (dtype, ne, raw) in sorted(tensors.items()):
        h.update(('%s %s %s\n' % (name, dtype, ne)).encode() + raw)
    return h.hexdigest()


def importance(a, fixtures, tmp):
    """Models quantized by importance matrices in both forms, and proved."""
    with open(os.path.join(fixtures, 'imatrix', 'expected.json')) as f:
        files = json.load(f)['files']
    out = os.path.join(tmp, 'weighed.gguf')
    for name, want in files.items():
        matrix, source = os.path.join(fixtures, 'imatrix', name), os.path.join(fixtures, want['model'], 'hf')
        for kind, expected in want['types'].items():
            p = ckpt(a, 'convert', '-qf', source, out, '--dtype', kind.lower(), '--imatrix', matrix)
            q = ckpt(a, 'verify', '-q', out, '--made-from', source, '--imatrix', matrix)
            got = Reader(out)
            lost = [k for k, v in want['keys'].items() if k != 'quantize.imatrix.file' and list(got.keys.get(k, ())) != v]
            verdict('%s %s' % (name, kind), p.stderr.decode() if p.returncode else
                    'other tensors' if digest(got.tensors) != expected else
                    'not proved: %s' % q.stdout.decode() if q.returncode else ''.join(lost))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('fixtures')
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        types(a, os.path.join(a.fixtures, 'gguf_types'), tmp)
        for folder in sorted(glob.glob(os.path.join(a.fixtures, 'gguf_*', 'hf'))):
            with tempfile.TemporaryDirectory() as mine:
                models(a, os.path.dirname(folder), mine)
        importance(a, a.fixtures, tmp)
        for path in sorted(glob.glob(os.path.join(a.fixtures, 'gguf_*', '*.gguf'))):
            if os.path.basename(path) != 'big_endian.gguf':
                verdict('again ' + path, same_file(a, path, os.path.join(tmp, path.replace('/', '_'))))
    print('gguf: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
