#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proofs by `ckpt verify --made-from`: of files by other programs and by ckpt, and of flipped bits in them.

  made_from.py --bin build/bin [--flips N] [-v] FIXTURES_FOLDER

Each case is proved first, and the printed command is run: its output must be proved, too.  Then N random bits of tensors, over all
cases, are flipped one by one, each in place: every one must be found.  Checksums of torch archives are made anew, so that only
the comparison finds a flip.  Where sums may be rounded in another way, a flip changes the largest bits of a value.
"""
import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib


def sources(f):
    """Name, how to make it (None: the fixture's file by another program), the fixture or output, options of the proof."""
    z3, llama, tied = f + '/z3_bf16_w5_odd/ckpt', f + '/gguf_llama_deep/hf', f + '/peft_tied_head'
    return [
        ('llama.cpp, F16', None, f + '/gguf_bert/F16.gguf', [f + '/gguf_bert/hf']),
        ('llama.cpp, Q4_0', None, llama[:-2] + 'Q4_0.gguf', [llama]),
        ('llama.cpp, Q5_0', None, f + '/gguf_mixtral/Q5_0.gguf', [f + '/gguf_mixtral/hf']),
        ('Meta to transformers', None, f + '/map_meta_s1/hf', [f + '/map_meta_s1/meta']),
        ('Meta to transformers, two files', None, f + '/map_meta_llama2_s2/hf', [f + '/map_meta_llama2_s2/meta']),
        ("Megatron's converter, GPT-2", None, f + '/map_mcore_gpt2/megatron.safetensors', [f + '/map_mcore_gpt2/hf']),
        ("Megatron's converter, Mixtral", None, f + '/map_mcore_mixtral/megatron.safetensors', [f + '/map_mcore_mixtral/hf']),
        ('peft', None, tied + '/merged', [tied + '/base', '--adapter', tied + '/adapter']),
        ('peft, Conv1D', None, f + '/peft_gpt2_conv1d/merged', [f + '/peft_gpt2_conv1d/base', '--adapter', f + '/peft_gpt2_conv1d/adapter']),
        ('a cast', ['convert', z3, 'o.safetensors', '--dtype', 'f16'], 'o.safetensors', [z3]),
        ('torch', ['convert', z3, 'o.pt'], 'o.pt', [z3]),
        ('npz', ['convert', z3, 'o.npz', '--dtype', 'f32'], 'o.npz', [z3]),
        ('Q4_K_M', ['convert', llama, 'o.gguf', '--dtype', 'q4_k_m'], 'o.gguf', [llama]),
        ('Q8_0', ['convert', llama, 'o8.gguf', '--dtype', 'q8_0'], 'o8.gguf', [llama]),
        ('fp8', ['convert', llama, 'fp8', '--to', 'hf', '--quantize', 'fp8-block:16x16'], 'fp8', [llama, '--quantize', 'fp8-block:16x16']),
        ('hf-bin', ['convert', llama, 'weights', '--to', 'hf-bin', '--dtype', 'bf16'], 'weights', [llama]),
        ('ZeRO 2', ['reshard', z3, 'run', '--world', '2', '--stage', '2'], 'run', [z3]),
        ('ZeRO 3', ['reshard', z3, 'run3', '--world', '3'], 'run3', [z3]),
        ('DCP', ['reshard', z3, 'out', '--to', 'dcp', '--world', '2'], 'out', [z3]),
        ('universal', ['reshard', z3, 'uni', '--to', 'universal'], 'uni', [z3]),
        ('fsdp-ranks', ['reshard', z3, 'ranks', '--to', 'fsdp-ranks', '--world', '2'], 'ranks', [z3]),
        ('linear', ['merge', tied + '/base:0.3', tied + '/merged:0.9', '-o', 'mean'], 'mean',
         [tied + '/base:0.3', '--made-from', tied + '/merged:0.9']),
        ('slerp', ['merge', tied + '/base', tied + '/merged', '-o', 'between', '--method', 'slerp', '--t', '0.3'], 'between',
         [tied + '/base', '--made-from', tied + '/merged', '--method', 'slerp', '--t', '0.3']),
        ('DARE', ['merge', tied + '/merged', '-o', 'dare', '--method', 'dare_ties', '--base', tied + '/base', '--density', '0.5',
                  '--seed', '3'], 'dare',
         [tied + '/merged', '--method', 'dare_ties', '--base', tied + '/base', '--density', '0.5', '--seed', '3']),
    ]


# ---- the bytes of tensors ----

def safetensors(path):
    with open(path, 'rb') as f:
        n, = struct.unpack('<Q', f.read(8))
        header = json.loads(f.read(n))
    return [(8 + n + x['data_offsets'][0], x['data_offsets'][1] - x['data_offsets'][0], x['dtype'])
            for name, x in header.items() if name != '__metadata__' and x['data_offsets'][1] > x['data_offsets'][0]]


def gguf(path, ckpt):
    """The tensors are at the end, each at a multiple of 32."""
    tensors = json.loads(subprocess.run([ckpt, 'ls', '--json', path], capture_output=True).stdout)['tensors']
    at = os.path.getsize(path) - sum((t['bytes'] + 31) // 32 * 32 for t in tensors)
    out = []
    for t in tensors:
        out.append((at, t['bytes'], t['dtype']))
        at += (t['bytes'] + 31) // 32 * 32
    return out


def archive(path):
    """Records of tensors, with the record's start and size to make its checksum anew."""
    out = []
    with zipfile.ZipFile(path) as z, open(path, 'rb') as f:
        for i in z.infolist():
            f.seek(i.header_offset + 26)
            n, more = struct.unpack('<HH', f.read(4))
            start = i.header_offset + 30 + n + more
            if '/data/' in i.filename and i.file_size:
                if z.read(i) != struct.pack('<2i', 0, 1):  # a mesh's list of ranks: no tensor of the checkpoint
                    out.append((start, i.file_size, None, i))
            elif i.filename.endswith('.npy'):
                f.seek(start)
                head = f.read(12)
                skip = 10 + struct.unpack('<H', head[8:10])[0]
                if i.file_size > skip:
                    out.append((start + skip, i.file_size - skip, None, i))
    return out


def places(out, ckpt):
    """(file, start, bytes, dtype, record) of each piece of a tensor."""
    found = []
    for at, _, names in sorted(os.walk(out)) if os.path.isdir(out) else [('', [], [out])]:
        for name in sorted(names):
            path = os.path.join(at, name)
            if name.endswith('.safetensors'):
                found += [(path, *x, None) for x in safetensors(path)]
            elif name.endswith('.gguf'):
                found += [(path, *x, None) for x in gguf(path, ckpt)]
            elif zipfile.is_zipfile(path):
                found += [(path, *x) for x in archive(path)]
            elif name.endswith('.distcp'):
                found += distcp(path)
    return found


def distcp(path):
    """Archives one after the other."""
    with open(path, 'rb') as f:
        data = f.read()
    out, at = [], 0
    while True:
        end = data.find(b'PK\5\6', at)
        if end < 0:
            return out
        end += 22 + struct.unpack('<H', data[end + 20:end + 22])[0]
        with tempfile.TemporaryFile() as f:
            f.write(data[at:end])
            f.seek(0)
            with zipfile.ZipFile(f) as z:
                for i in z.infolist():
                    n, more = struct.unpack('<HH', data[at + i.header_offset + 26:at + i.header_offset + 30])
                    if '/data/' in i.filename and i.file_size:
                        out.append((path, at + i.header_offset + 30 + n + more, i.file_size, None, i))
        at = end


class Flip:
    """One flipped bit, until the end of the block."""

    def __init__(self, place, at, bit):
        self.path, self.start, self.n, _, self.record = place
        self.at, self.bit = self.start + at, bit

    def __enter__(self):
        with open(self.path, 'rb') as f:
            self.before = f.read()
        after = bytearray(self.before)
        after[self.at] ^= 1 << self.bit
        if self.record and self.record.CRC:
            i = self.record
            whole = after[self.start + self.n - i.file_size:self.start + self.n]
            old, new = struct.pack('<I', i.CRC), struct.pack('<I', zlib.crc32(bytes(whole)))
            name = i.filename.encode()
            spot = -1
            while (spot := self.before.find(old, spot + 1)) >= 0:  # in the local and the central header, and behind the data
                if name in self.before[spot - 60:spot + 80] or self.before[spot - 4:spot] == b'PK\7\x08':
                    after[spot:spot + 4] = new
        with open(self.path, 'r+b') as f:
            f.write(after)

    def __exit__(self, *_):
        with open(self.path, 'r+b') as f:
            f.write(self.before)


def values_of(place):
    """The largest value of a tensor of floats, and a function from an index to its value."""
    path, start, n, dtype, _ = place
    with open(path, 'rb') as f:
        f.seek(start)
        data = f.read(n)
    size = 4 if dtype == 'F32' else 2
    get = {'F32': lambda b: struct.unpack('<f', b)[0], 'F16': lambda b: struct.unpack('<e', b)[0],
           'BF16': lambda b: struct.unpack('<f', b'\0\0' + b)[0]}[dtype]
    return size, [abs(get(data[i:i + size])) for i in range(0, n, size)]


def choose(rng, found, rounded):
    """A place, a byte in it and a bit.  Rounded: the sign or the exponent of a value that is not small."""
    place = rng.choice(found)
    if not rounded:
        return place, rng.randrange(place[2]), rng.randrange(8)
    size, values = values_of(place)
    large = [i for i, v in enumerate(values) if v > max(values) / 16]
    return place, rng.choice(large) * size + size - 1, rng.choice((0, 1, 7))


# ---- the test ----

def prove(ckpt, out, words):
    p = subprocess.run([ckpt, 'verify', '--json', out, '--made-from', *words], capture_output=True, text=True)
    try:
        return p.returncode, json.loads(p.stdout).get('made_from', {}), p.stdout + p.stderr
    except ValueError:
        return p.returncode, {}, p.stdout + p.stderr


def again(ckpt, command, name):
    """Run the printed command with another output; how it is proved."""
    path = 'again' + os.path.splitext(name)[1]
    words = [path if w == command[0] else w for w in command[1]]
    shutil.rmtree('again', ignore_errors=True)
    if os.path.exists(path):
        os.remove(path)
    p = subprocess.run([ckpt, *words[1:], '-q', '--no-fsync'], capture_output=True, text=True)
    return path if p.returncode == 0 else None, p.stderr


def case(ckpt, rng, name, make, out, words, flips, fail):
    if make:
        p = subprocess.run([ckpt, *make, '-q', '--no-fsync'], capture_output=True, text=True)
        if p.returncode:
            return fail(name, 'is not made: ' + p.stderr)
    else:
        copy = 'theirs' + os.path.splitext(out)[1]
        shutil.rmtree(copy, ignore_errors=True)
        (shutil.copytree if os.path.isdir(out) else shutil.copy)(out, copy)
        subprocess.run(['chmod', '-R', 'u+w', copy], check=True)
        out = copy
    status, proof, text = prove(ckpt, out, words)
    if status or not proof.get('proved'):
        return fail(name, 'is not proved: %d %s' % (status, text[-800:]))
    path, said = again(ckpt, (out, proof['command']), out)
    if not path:
        return fail(name, 'its command fails: %s: %s' % (' '.join(proof['command']), said))
    status, _, text = prove(ckpt, path, words)
    if status:
        return fail(name, 'the output of its command is not proved: %s: %s' % (' '.join(proof['command']), text[-800:]))
    # the map of fsdp-ranks has the buffers of one rank, and a rank's file cannot be read alone; ZeRO's last rank holds padding
    unread = {'ranks': 'model_world_size_2_rank_1', 'run': 'pp_rank_1_mp', 'run3': 'pp_rank_2_mp'}.get(out, '\0')
    found = [x for x in places(out, ckpt) if unread not in x[0]]
    if not found:
        return fail(name, 'no tensor found to flip')
    n = 0
    for _ in range(flips):
        place, at, bit = choose(rng, found, bool(proof['tolerance']))
        with Flip(place, at, bit):
            status, proof_now, text = prove(ckpt, out, words)
        if status == 0:
            fail(name, 'a flip is not found: %s, byte %d of %s, bit %d' % (place[0], at, place[1:4], bit))
        n += status != 0
    return n


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--flips', type=int, default=1000)
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('fixtures')
    a = p.parse_args()
    ckpt, rng, failed = os.path.abspath(a.bin) + '/ckpt', random.Random(a.seed), []

    def fail(name, why):
        failed.append(name)
        print('FAIL %s: %s' % (name, why))
        return 0

    cases, found = sources(os.path.abspath(a.fixtures)), 0
    with tempfile.TemporaryDirectory(dir='/dev/shm' if os.path.isdir('/dev/shm') else None) as folder:
        os.chdir(folder)
        for i, (name, *rest) in enumerate(cases):
            n = a.flips // len(cases) + (i < a.flips % len(cases))
            got = case(ckpt, rng, name, *rest, n, fail)
            if a.verbose:
                print('%s: %d of %d' % (name, got, n))
            found += got
        os.chdir('/')
    print('made_from: %d passed, %d failed; %d of %d flips found' % (len(cases) - len(set(failed)), len(set(failed)), found, a.flips))
    return 1 if failed or found < a.flips else 0


sys.exit(main())
