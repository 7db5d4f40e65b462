# SPDX-License-Identifier: Apache-2.0
"""safe_open beside safetensors' own, and over what safetensors cannot open."""
import unittest

import ckpt
from help import Case, fixture, has, needs_numpy, needs_torch

TIED = fixture('z1_bf16_w3_groups', 'ckpt')
ST = fixture('safetensors_dtypes', 'model.safetensors')


class SafeOpen(Case):
    @needs_torch
    @unittest.skipUnless(has('safetensors'), 'safetensors is not here')
    def test_as_theirs(self):
        import safetensors
        import torch
        with ckpt.safe_open(ST, framework='pt', device='cpu') as mine, safetensors.safe_open(ST, framework='pt') as theirs:
            self.assertEqual(mine.metadata(), theirs.metadata())
            self.assertEqual(list(mine.keys()), sorted(theirs.keys()))
            n = 0
            for name in theirs.keys():
                try:
                    want, part = theirs.get_tensor(name), theirs.get_slice(name)
                except Exception:  # types that this safetensors does not have
                    continue
                if mine.get_slice(name).get_dtype().startswith('F4'):
                    continue
                got = mine.get_tensor(name)
                self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), name)
                self.assertEqual((mine.get_slice(name).get_shape(), mine.get_slice(name).get_dtype()),
                                 (list(part.get_shape()), part.get_dtype()), name)
                if want.ndim and want.numel():
                    raw = [bytes(x.contiguous().view(torch.uint8).numpy()) for x in (got, want, mine.get_slice(name)[1:], want[1:])]
                    self.assertEqual((raw[0], raw[2]), (raw[1], raw[3]), name)
                n += 1
            self.assertGreater(n, 10)

    @needs_numpy
    def test_numpy_of_a_run(self):
        with ckpt.safe_open(fixture('z3_bf16_w5_odd', 'ckpt'), framework='np') as f:
            self.assertIn('emb.weight', f.keys())
            self.assertEqual(f.get_slice('emb.weight')[2:4, 1].shape, (2,))
            self.assertIsNone(f.metadata())
        with self.assertRaises(ckpt.ClosedError):
            f.get_tensor('emb.weight')

    @needs_numpy
    def test_tied(self):
        """A tied name is no key, as in the file; asked for, it is its owner's."""
        names = ckpt.open(TIED).names()
        with ckpt.safe_open(TIED, framework='np') as f:
            tied = sorted(set(names) - set(f.keys()))
            self.assertTrue(tied)
            self.assertEqual([n for n in names if n not in tied], f.offset_keys())
            self.assertIsNotNone(ckpt.open(TIED)[tied[0]].owner)
            self.assertGreater(f.get_tensor(tied[0]).size, 0)

    def test_refused(self):
        for options in ({'framework': 'jax'}, {'framework': 'np', 'device': 'cuda:0'}):
            with self.assertRaises(ckpt.UsageError):
                ckpt.safe_open(ST, **options)
