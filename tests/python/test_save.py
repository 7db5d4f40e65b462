# SPDX-License-Identifier: Apache-2.0
"""Arrays in memory become files of any format, and the same arrays come back."""
import array
import os
import struct
import unittest

import ckpt
from help import Case, fixture, has, needs_numpy, needs_torch

Z3 = fixture('z3_bf16_w5_odd', 'ckpt')


class Save(Case):
    def test_buffers(self):
        room = bytearray(struct.pack('<6f', *range(6)))
        arrays = {'w': memoryview(room).cast('f', (2, 3)), 'read only': b'\x01\x02\x03', 'i': array.array('q', [-1, 7]),
                  'empty': array.array('d'), 'gaps': memoryview(array.array('h', range(9)))[::2]}
        for name in ('a.safetensors', 'a.npz', 'a.pt'):
            path = os.path.join(self.scratch(), name)
            report = ckpt.save(arrays, path)
            self.assertEqual(report.files, [{'path': name, 'bytes': os.path.getsize(path)}])
            with ckpt.open(path) as m:
                self.assertEqual({n: (t.dtype, t.shape, t.tobytes()) for n, t in m.items()}, {
                    'w': ('F32', (2, 3), bytes(room)), 'read only': (m['read only'].dtype, (3,), b'\x01\x02\x03'),
                    'i': ('I64', (2,), struct.pack('<2q', -1, 7)), 'empty': ('F64', (0,), b''),
                    'gaps': ('I16', (5,), struct.pack('<5h', 0, 2, 4, 6, 8))})

    def test_metadata_and_dtype(self):
        path = os.path.join(self.scratch(), 'm.safetensors')
        report = ckpt.save({'w': array.array('d', [1, 1e300])}, path, dtype='bf16', metadata={'step': '7'}, allow_overflow=True)
        self.assertEqual((report.tensors, report.inf), (1, 1))
        with ckpt.open(path) as m:
            self.assertEqual((m.metadata['step'], m['w'].dtype, m['w'].tobytes()), ('7', 'BF16', b'\x80\x3f\x80\x7f'))

    def test_tensors_of_a_checkpoint(self):
        path = os.path.join(self.scratch(), 'part.safetensors')
        with ckpt.open(Z3) as m:
            ckpt.save({'rows': m['emb.weight'][2:4], 'w': m['emb.weight']}, path)
            with ckpt.open(path) as back:
                self.assertEqual((back['rows'].shape, back['rows'].tobytes()), ((2, 7), m['emb.weight'][2:4].tobytes()))
                self.assertEqual(back['w'].tobytes(), m['emb.weight'].tobytes())

    def test_refusals(self):
        folder = self.scratch()
        path, w = os.path.join(folder, 'x.safetensors'), array.array('f', [1])
        for bad, what, error in (({'w': 7}, "array 'w': expected an array", ckpt.UsageError),
                                 ({'w': memoryview(b'abcd').cast('c')}, "array 'w': .*format", ckpt.DtypeError),
                                 ({7: w}, 'the name of an array', ckpt.UsageError),
                                 ({'a\0b': w}, 'zero bytes', ckpt.UsageError)):
            with self.assertRaisesRegex(error, what):
                ckpt.save(bad, path)
        with self.assertRaisesRegex(ckpt.UsageError, 'use to='):
            ckpt.save({'w': w}, os.path.join(folder, 'x'))
        with self.assertRaisesRegex(ckpt.UsageError, 'not a known format'):
            ckpt.save({'w': w}, path, to='nonsense')
        with self.assertRaisesRegex(ckpt.UsageError, "did you mean 'max_shard_size'"):
            ckpt.save({'w': w}, path, max_shard_siz=1)
        with self.assertRaises(ckpt.UsageError):
            ckpt.save({'w': w}, path, metadata={'step': 7})
        with self.assertRaises(ckpt.DoubtError):
            ckpt.save({'w': array.array('d', [1e300])}, path, dtype='f32')
        with self.assertRaises(ckpt.DoubtError):
            ckpt.save({'w': array.array('f', [float('nan')])}, path, strict=True)
        self.assertEqual(os.listdir(folder), [])
        ckpt.save({'w': w}, path)
        with self.assertRaisesRegex(ckpt.UsageError, 'use force=True'):
            ckpt.save({'w': w}, path)
        ckpt.save({'w': array.array('f', [2])}, path, force=True)
        with ckpt.open(path) as m:
            self.assertEqual(m['w'].tobytes(), struct.pack('<f', 2))

    @needs_torch
    def test_no_values_in_torch(self):
        import torch
        with self.assertRaisesRegex(ckpt.UnsupportedError, "array 'w': a tensor on the device meta"):
            ckpt.save({'w': torch.empty(2, device='meta')}, os.path.join(self.scratch(), 'x.safetensors'))

    @needs_numpy
    def test_masked(self):
        import numpy
        with self.assertRaisesRegex(ckpt.UsageError, "array 'w': a masked array"):
            ckpt.save({'w': numpy.ma.masked_array([1.0, 2.0], [0, 1])}, os.path.join(self.scratch(), 'x.safetensors'))

    def test_cancel(self):
        folder = self.scratch()

        def stop(done, total):
            raise KeyError((done, total))
        with self.assertRaises(KeyError):
            ckpt.save({'w': array.array('f', bytes(4 << 20))}, os.path.join(folder, 'w.npz'), progress=stop)
        self.assertEqual([n for n in os.listdir(folder) if not n.startswith('.')], [])

    @needs_numpy
    def test_numpy(self):
        import numpy
        a = numpy.arange(24, dtype='f4').reshape(2, 3, 4)
        arrays = {'a': a, 'turned': a.T, 'part': a[:, 1], 'big': a.astype('>f4'), 'one': numpy.float64(3), 'yes': numpy.array([True]),
                  'half': a.astype('f2'), 'none': numpy.zeros((0, 2), 'i4')}
        path = os.path.join(self.scratch(), 'n.npz')
        ckpt.save(arrays, path)
        with numpy.load(path) as back:
            self.assertEqual(set(back), set(arrays))
            for name, value in arrays.items():
                self.assertTrue(numpy.array_equal(back[name], value), name)
                self.assertEqual(back[name].shape, numpy.shape(value))
        for bad in (numpy.array(['text']), numpy.array([{}], object), numpy.zeros(1, 'f4,i4'), numpy.zeros(1, numpy.longdouble)):
            with self.assertRaisesRegex(ckpt.UsageError, "array 'x'"):
                ckpt.save({'x': bad}, path, force=True)

    @needs_torch
    def test_torch(self):
        import torch
        w = torch.arange(12, dtype=torch.float32).reshape(3, 4)
        arrays = {'w': w, 'turned': w.T, 'bf16': w.bfloat16(), 'fp8': w.to(torch.float8_e4m3fn), 'leaf': torch.nn.Parameter(w[0]),
                  'conj': (w + 1j * w).conj(), 'scalar': torch.tensor(5), 'bool': w > 3}
        path = os.path.join(self.scratch(), 't.pt')
        ckpt.save(arrays, path)
        back = torch.load(path, weights_only=True)
        for name, value in arrays.items():
            self.assertEqual(back[name].dtype, value.dtype, name)
            self.assertEqual(back[name].shape, value.shape)
            self.assertTrue(torch.equal(back[name].resolve_conj().float() if name == 'fp8' else back[name].resolve_conj(),
                                        value.detach().float() if name == 'fp8' else value.detach().resolve_conj()), name)
        with self.assertRaisesRegex(ckpt.UnsupportedError, 'to_dense'):
            ckpt.save({'s': torch.eye(2).to_sparse()}, path, force=True)

    @unittest.skipUnless(has('numpy') and has('ml_dtypes'), 'ml_dtypes is not here')
    def test_types_of_ml_dtypes(self):
        import ml_dtypes
        import numpy
        path = os.path.join(self.scratch(), 'm.safetensors')
        ckpt.save({'w': numpy.array([1, 2], ml_dtypes.bfloat16)}, path)
        with ckpt.open(path) as m:
            self.assertEqual((m['w'].dtype, m['w'].tobytes()), ('BF16', b'\x80\x3f\x00\x40'))


if __name__ == '__main__':
    unittest.main()
