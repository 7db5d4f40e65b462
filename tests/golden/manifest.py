#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A manifest finds every changed bit: random flips in files of safetensors, GGUF, DCP, npz, model folders and training runs.

    manifest.py [--flips N] --bin build/bin FIXTURES

Each output is written with --manifest.  A flip is one bit of one file of it, which is then verified, and flipped back; verify
must fail with a hash that does not match, and name the file.  A flip in the values of a tensor must name a tensor, too.
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KINDS = (('m.safetensors', 'hf_bert_sharded', []), ('m.gguf', 'hf_bert_sharded', []), ('m.npz', 'hf_bert_sharded', []),
         ('z.npz', 'hf_bert_sharded', ['--compress']), ('m.pt', 'hf_bert_sharded', []), ('dcp', 'hf_bert_sharded', ['--to', 'dcp']),
         ('hf', 'hf_bert_sharded', ['--to', 'hf', '--max-shard-size', '12K']), ('zero', 'z1_bf16_w2_fp32acc/ckpt', ['--to', 'zero']))


def flip(path, bit):
    """Change one bit of a file in place."""
    with open(path, 'r+b') as f:
        f.seek(bit // 8)
        byte = f.read(1)[0]
        f.seek(bit // 8)
        f.write(bytes((byte ^ 1 << bit % 8,)))


def place(out):
    """The folder of the files that a manifest lists."""
    for at, _, names in os.walk(out):
        if 'ckpt-manifest.json' in names:
            return at
    return os.path.dirname(out)


class Flips:
    """Flips in one output."""

    def __init__(self, ckpt, out, words):
        self.ckpt, self.out = ckpt, out
        made = subprocess.run(words + [out, '--manifest', '-q'], capture_output=True, text=True)
        if made.returncode:
            sys.exit('%s: %s' % (out, made.stderr))
        folder = place(out)
        hashes = ckpt.manifest(out, write=False)
        self.files = [(os.path.join(folder, n), h.n_bytes) for n, h in hashes.files.items() if h.n_bytes]

    def verify(self):
        """The findings of a check that fails by a hash, or because a flip made a pickle unsafe; None: it passed."""
        try:
            self.ckpt.verify(self.out)
        except (self.ckpt.DigestError, self.ckpt.UnsafeError) as x:
            return [f.text for f in x.findings]
        return None

    def one(self, rng):
        """Whether a random flip was found and its file named; and whether a tensor was named."""
        path, size = rng.choices(self.files, [n for _, n in self.files])[0]
        bit = rng.randrange(8 * size)
        flip(path, bit)
        found = self.verify() or []
        flip(path, bit)
        named = any(t.startswith(path + ': has the SHA-256') for t in found)
        if not named:
            print('FAIL %s: bit %d of %s: %s' % (self.out, bit, path, found))
        return named, any(t.startswith('tensor ') for t in found)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('--flips', type=int, default=5000)
    p.add_argument('fixtures')
    a = p.parse_args()
    os.environ.setdefault('CKPT_LIBRARY', os.path.abspath(os.path.join(a.bin, '..', 'lib', 'libckpt.so.0')))
    sys.path.insert(0, os.path.join(ROOT, 'tools', 'python'))
    import ckpt
    rng = random.Random(7)
    folder = tempfile.mkdtemp()
    found = tensors = failed = 0
    try:
        all_flips = [Flips(ckpt, os.path.join(folder, name), [os.path.join(a.bin, 'ckpt'), 'convert', os.path.join(a.fixtures, fixture)] + words)
                     for name, fixture, words in KINDS]
        for k in range(a.flips):
            named, tensor = all_flips[k % len(all_flips)].one(rng)
            found += named
            tensors += tensor
        # every bit is back
        failed += sum(f.verify() is not None for f in all_flips)
    finally:
        shutil.rmtree(folder)
    failed += found < a.flips or tensors < a.flips // 2
    print('manifest: %d of %d flips found, %d of them in tensors, %d failed' % (found, a.flips, tensors, failed))
    sys.exit(failed > 0)


main()
