# SPDX-License-Identifier: Apache-2.0
"""Opening: the truth of fixtures through the package, parts against the whole, the tree, facts, extents, errors of use."""
import gc
import json
import os
import pickle
import random
import struct
import subprocess

import ckpt
from help import BIN, Case, FIXTURES, expected, fixture, has, needs_numpy, needs_torch, newer, sha
from readers import ST

# what the fixtures' "weights" are of: an export's dtypes and names, which these open with
WEIGHTS = ('hf_trainer_llama_z3_bf16_w2', 'old0316_z1_fp16_w2', 'z0_fp16_w2_fused', 'z1_bf16_w2_fp32acc', 'z1_bf16_w2_tags',
           'z1_bf16_w3_groups', 'z2_bf16_w2_muon', 'z3_bf16_w5_odd', 'rl_verl_fsdp1_w2',
           'rl_fsdp1_shardedtensor_w3', 'old0126_z2_fp16_w3')
TENSORS = ('dcp_mesh2d_w4', 'hf_bert_sharded', 'safetensors_dtypes')


def torch_name(dtype):
    return ST[dtype][0] if dtype in ST else {'C128': 'complex128', 'C32': 'complex32'}[dtype]


def parts(shape, rng):
    """An index at random: integers, slices with steps, an ellipsis; negative numbers too."""
    out = []
    for n in shape:
        if n and rng.random() < 0.2:
            out.append(rng.randrange(-n, n))
        else:
            out.append(slice(*(rng.choice((None, rng.randint(-n - 1, n + 1))) for _ in range(2)), rng.choice((None, 1, 2, 3, 7))))
    if rng.random() < 0.2:
        del out[rng.randrange(len(out) + 1):]
        out.append(Ellipsis)
    return tuple(out)


def taken(shape, index):
    """The elements of a row-major tensor that an index takes, by Python's own slices alone: their numbers, and the shape."""
    index = list(index)
    if Ellipsis in index:
        index[-1:] = [slice(None)] * (len(shape) - len(index) + 1)
    numbers, out = [0], []
    for n, i in zip(shape, index):
        picked = range(n)[i] if isinstance(i, slice) else [range(n)[i]]
        numbers = [at * n + k for at in numbers for k in picked]
        if isinstance(i, slice):
            out.append(len(picked))
    return numbers, tuple(out)


class Truth(Case):
    def same(self, t, want, what):
        dtype = want['dtype'].replace('torch.', '')
        dtype = ST[dtype][0] if dtype in ST else dtype
        held = torch_name(t.dtype)
        # an export may widen what is kept in 16 bits, as the script does with frozen parameters and buffers
        data = t.tobytes() if held == dtype else t.tobytes(dtype)
        self.assertEqual((tuple(want['shape']), want['sha256']), (t.shape, sha(data)), what)

    def test_weights(self):
        for name in WEIGHTS:
            e = expected(name)
            with ckpt.open(fixture(name, e.get('checkpoint') or 'ckpt'), tag=e['tag'] if e.get('tag') != e.get('latest') else None) as m:
                for k, want in e['weights'].items():
                    if name == 'old0126_z2_fp16_w3' and m[k].role == 'buffer':
                        continue  # that release's script made floats of them
                    self.same(m[k], want, '%s: %s' % (name, k))

    def test_tensors(self):
        for name in TENSORS:
            e = expected(name)
            path = fixture(name, 'ckpt') if os.path.isdir(fixture(name, 'ckpt')) else fixture(name)
            if name.startswith('safetensors'):
                path = fixture(name, 'model.safetensors')
            with ckpt.open(path) as m:
                for k, want in e['tensors'].items():
                    if k in (e.get('tied') or {}):
                        continue  # such folders leave them out
                    if m[k].dtype == 'F4':
                        self.assertEqual(want['sha256'], sha(m[k].tobytes()))
                    else:
                        self.same(m[k], want, '%s: %s' % (name, k))

    def test_every_fixture_opens(self):
        n = 0
        for name in sorted(os.listdir(FIXTURES)):
            path = fixture(name, 'ckpt')
            if not os.path.isdir(path):
                continue
            with ckpt.open(path, optimizer=True) as m:
                self.assertEqual(len(m), len(list(m)), name)
                for t in m.values():
                    if not t.extents:
                        continue
                    self.assertTrue(all(os.path.exists(f) for f, _ in t.where), name)
                    self.assertEqual(len(t.tobytes()), t.nbytes, '%s: %s' % (name, t.name))
                n += 1
                self.assertIsNotNone(m.tree)
        self.assertGreater(n, 20)


class Parts(Case):
    def one(self, t, rng, n):
        size = t.nbytes // t.size if t.size else 1
        whole = t.tobytes()
        for _ in range(n):
            index = parts(t.shape, rng)
            numbers, shape = taken(t.shape, index)
            part = t[index]
            self.assertEqual(part.shape, shape, (t, index))
            self.assertEqual(part.tobytes(), b''.join(whole[i * size:(i + 1) * size] for i in numbers), (t, index))
            if len(shape) > 0 and all(shape):  # a part of a part
                again = parts(shape, rng)
                inner, shape = taken(shape, again)
                self.assertEqual(part[again].shape, shape)
                self.assertEqual(part[again].tobytes(), b''.join(whole[numbers[i] * size:(numbers[i] + 1) * size] for i in inner))

    def test_at_random(self):
        rng = random.Random(11)
        for path in (fixture('z3_bf16_w5_odd', 'ckpt'), fixture('z1_bf16_w3_groups', 'ckpt'), fixture('dcp_mesh2d_w4', 'ckpt'),
                     fixture('torch_views', 'zip.pt'), fixture('torch_dtypes', 'legacy.pt'), fixture('tp2_z1_w4', 'ckpt'),
                     fixture('numpy_npz')):
            if os.path.basename(path) == 'numpy_npz':
                path = next(os.path.join(path, f) for f in sorted(os.listdir(path)) if f.endswith('.npz'))
            with ckpt.open(path) as m:
                for t in m.values():
                    if t.dtype != 'F4':
                        self.one(t, rng, 6)

    def test_wrong_indices(self):
        t = ckpt.open(fixture('z3_bf16_w5_odd', 'ckpt'))['emb.weight']
        for index in (23, -24, (0, 0, 0), (..., ...)):
            with self.assertRaises(IndexError):
                t[index]
        for index in ('a', 1.0, True, None, [1, 2]):
            with self.assertRaises(TypeError):
                t[index]
        with self.assertRaisesRegex(ckpt.UsageError, 'step above 0'):
            t[::-1]
        self.assertEqual((len(t), t[5:3].shape, t[5:3].tobytes()), (23, (0, 7), b''))

    @needs_numpy
    def test_numpy(self):
        import numpy
        with ckpt.open(fixture('z3_bf16_w5_odd', 'ckpt')) as m:
            t = m['emb.weight']
            w = t.numpy()
            self.assertEqual(w.tobytes(), t.tobytes())
            self.assertTrue(numpy.array_equal(t[2:5, ::2].numpy(), w[2:5, ::2]))
            self.assertTrue(numpy.array_equal(numpy.asarray(t[3]), w[3]))
            self.assertEqual((t[3, 1].numpy().shape, t[3, 1].item()), ((), float(w[3, 1])))
            self.assertTrue(numpy.array_equal(t.numpy(numpy.float64), w.astype('f8')))
            self.assertTrue(numpy.array_equal(t.numpy('f16'), w.astype('f2')))
            w[:] = 0  # an array of its own
            self.assertNotEqual(t.numpy().tobytes(), w.tobytes())
        with ckpt.open(fixture('torch_dtypes', 'zip.pt')) as m:
            t = m['bfloat16']
            self.assertEqual(t.bits().tobytes(), t.tobytes())
            self.assertEqual(t.bits().dtype, numpy.uint16)
            wide = (t.bits().astype('u4') << 16).view('f4')
            self.assertEqual(wide.tobytes(), t.numpy('f32').tobytes())
            if has('ml_dtypes'):
                self.assertEqual(t.numpy().dtype.name, 'bfloat16')
            else:
                with self.assertRaisesRegex(ckpt.DtypeError, r"ml_dtypes.*numpy\('f32'\).*torch\(\).*bits"):
                    t.numpy()
            self.assertTrue(numpy.array_equal(m['complex64'].numpy().tobytes(), m['complex64'].tobytes()))

    @newer('torch._utils._rebuild_tensor_v3')
    def test_torch(self):
        import torch
        whole = torch.load(fixture('torch_dtypes', 'zip.pt'), weights_only=False)
        with ckpt.open(fixture('torch_dtypes', 'zip.pt')) as m:
            for name, t in m.items():
                mine = t.torch()
                self.assertEqual((mine.dtype, mine.shape), (whole[name].dtype, whole[name].shape), name)
                if mine.numel():
                    self.assertEqual(bytes(mine.reshape(-1).view(torch.uint8).numpy()),
                                     bytes(whole[name].contiguous().reshape(-1).view(torch.uint8).numpy()), name)
            self.assertEqual(m['float32'].torch(torch.bfloat16).dtype, torch.bfloat16)


class Alone(Case):
    """One of numpy and torch without the other, and neither."""
    CODE = """
import sys
for name in sys.argv[2:]:
    sys.modules[name] = None
import ckpt
t = ckpt.open(sys.argv[1])["emb.weight"][2:5, ::2]
%s
print(bytes(data) == t.tobytes(), t[0, 0].item() == t[0, 0].item())"""

    @needs_numpy
    def test_into(self):
        import numpy
        with ckpt.open(fixture('z3_bf16_w5_odd', 'ckpt')) as m:
            t = m['emb.weight']
            w = t.numpy()
            rows, wide = numpy.full((7, 46), -1.0), numpy.zeros((23, 14), 'f4')
            t.into(rows[:, ::2].T)
            self.assertTrue(numpy.array_equal(rows[:, ::2].T, w) and (rows[:, 1::2] == -1).all())
            t[:, 3].into(wide[:, 5])
            self.assertTrue(numpy.array_equal(wide[:, 5], w[:, 3]) and (numpy.delete(wide, 5, 1) == 0).all())
            for index, out in ((numpy.s_[::2], numpy.empty((12, 7))), (numpy.s_[4:9], numpy.empty((5, 7), 'f4')[::-1]),
                               (numpy.s_[4:9], numpy.empty((5, 7), '>f4')), (numpy.s_[2, 1], numpy.empty((), 'f2')),
                               (numpy.s_[0:0], numpy.empty((0, 7)))):
                self.assertIs(t[index].into(out), out)
                self.assertTrue(numpy.array_equal(out, w[index].astype(out.dtype)))
            for bad in (numpy.empty((7, 23)), [1.0], numpy.broadcast_to(numpy.zeros(7), (23, 7))):
                with self.assertRaises(ckpt.UsageError):
                    t.into(bad)

    @needs_numpy
    def test_numpy_alone(self):
        self.assertEqual(self.python(self.CODE % 'data = t.numpy().tobytes()', fixture('z3_bf16_w5_odd', 'ckpt'), 'torch').split(), ['True'] * 2)

    @needs_torch
    def test_torch_alone(self):
        code = self.CODE % 'data = bytes(t.torch().view(__import__("torch").uint8).flatten().tolist())'
        self.assertEqual(self.python(code, fixture('z3_bf16_w5_odd', 'ckpt'), 'numpy').split(), ['True'] * 2)

    def test_neither(self):
        code = self.CODE % """
data = t.tobytes()
for call in t.numpy, t.torch, t.bits:
    try:
        call()
        raise SystemExit("was there")
    except ImportError:
        pass"""
        self.assertEqual(self.python(code, fixture('z3_bf16_w5_odd', 'ckpt'), 'numpy', 'torch').split(), ['True'] * 2)


class Tree(Case):
    def test_values(self):
        with ckpt.open(fixture('z3_bf16_w5_odd', 'ckpt')) as m:
            tree = m.tree
            self.assertEqual(tree['model_states']['global_steps'], 4)
            self.assertEqual(tree['model_states']['ds_config'], expected('z3_bf16_w5_odd')['ds_config'])
            self.assertEqual(m.tree_at('model_states.ds_version'), '0.19.8')
            self.assertEqual(m.facts['stage'], 3)
            self.assertEqual((m.known.stage, m.known.world, m.known.step, m.known.tag), (3, 5, 4, 'global_step4'))
            self.assertEqual(m['out.weight'].owner, 'emb.weight')
            self.assertEqual(sum(m.files.values()), sum(os.path.getsize(f) for f in m.files))
            scaler = m.tree_at('optim_states.optimizer_state_dict.loss_scaler')
            self.assertEqual(scaler.cls, 'deepspeed.runtime.fp16.loss_scaler.LossScaler')
            self.assertEqual(scaler.state['cur_scale'], 1.0)

    def test_python_values(self):
        shared = [[1], {'k': 2}]
        value = {'big': 1 << 70, 'nan': float('inf'), 'tuple': (1, 'x', (None,)), 3: 'key', ('a', 1): 'tuple key', 'set': {4},
                 'bytes': b'\0\1' * 600, 'one': shared, 'two': shared, '$dollar': 5, 'text': 'ä\n"'}
        value['self'] = value
        path = os.path.join(self.scratch(), 'x.pkl')
        with open(path, 'wb') as f:
            pickle.dump(value, f, 2)
        with ckpt.open(path) as m:
            got = m.tree
        for k in ('big', 'nan', 'tuple', 3, ('a', 1), 'set', '$dollar', 'text'):
            self.assertEqual(got[k], value[k])
        self.assertIs(got['one'], got['two'])
        self.assertIs(got['self'], got)
        self.assertEqual((len(got['bytes']), got['bytes'].length), (1024, 1200))

    def test_as_the_program(self):
        for name in ('z1_bf16_w3_groups', 'tp2_z1_w4', 'fsdp2_mp_w2'):
            p = subprocess.run([os.path.join(BIN, 'ckpt'), 'info', '--json', fixture(name, 'ckpt')], capture_output=True, check=True)
            with ckpt.open(fixture(name, 'ckpt')) as m:
                self.assertEqual(m.facts, json.loads(p.stdout)['facts'])


class Extents(Case):
    def test_bytes_lie_there(self):
        n = 0
        for name in ('z3_bf16_w5_odd', 'dcp_mesh2d_w4'):
            with ckpt.open(fixture(name, 'ckpt')) as m:
                for t in m.values():
                    whole, width = t.tobytes(), t.nbytes // max(1, t.size)
                    for e in t.extents:
                        if e.offset is None:
                            continue
                        with open(e.file, 'rb') as f:
                            f.seek(e.offset)
                            first = f.read(width)
                        at = e.start[0]
                        if not e.flat:
                            at = 0
                            for k, i in zip(t.shape, e.start):
                                at = at * k + i
                        self.assertEqual(first, whole[at * width:(at + 1) * width], (name, t.name, e))
                        n += 1
        self.assertGreater(n, 50)


class Numbers(Case):
    def test_item(self):
        with ckpt.open(fixture('torch_dtypes', 'zip.pt')) as m:
            self.assertEqual(m['scalar_i64'].item(), struct.unpack('<q', m['scalar_i64'].tobytes())[0])
            self.assertEqual(m['int8'][0].item(), struct.unpack('<b', m['int8'].tobytes()[:1])[0])
            self.assertIsInstance(m['bool'][0, 0].item(), bool)
            self.assertEqual(m['complex64'][1].item(), complex(*struct.unpack_from('<2f', m['complex64'].tobytes(), 8)))
            self.assertEqual(m['complex32'][1].item(), complex(*struct.unpack_from('<2e', m['complex32'].tobytes(), 4)))
            self.assertEqual(m['bfloat16'][0, 0].item(), struct.unpack('<f', m['bfloat16'].tobytes('f32')[:4])[0])
            with self.assertRaises(ckpt.UsageError):
                m['float32'].item()


class Kept(Case):
    def test_tensor_keeps_its_checkpoint(self):
        t = ckpt.open(fixture('z3_bf16_w5_odd', 'ckpt'))['emb.weight']
        part = t[1:3]
        want = t.tobytes()
        gc.collect()
        self.assertEqual(part.tobytes(), want[28:84])
        del t
        gc.collect()
        self.assertEqual(part.tobytes(), want[28:84])
