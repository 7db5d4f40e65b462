# SPDX-License-Identifier: Apache-2.0
"""The defaults of the library, of the program and of the package are the same: a program in C that sets nothing, `ckpt convert`
without options, ckpt.convert and ckpt.view refuse values that overflow, and write the same files into a model folder."""
import ctypes as c
import json
import os
import struct
import subprocess

import ckpt
from ckpt import _lib
from help import BIN, Case, fixture


def by_library(source, target, form, dtype):
    """ckpt_convert with a zeroed target but for format, path and dtype, and without options; the code."""
    lib = _lib.lib()
    lib.ckpt_convert.restype = c.c_int
    lib.ckpt_convert.argtypes = (c.c_void_p, c.POINTER(_lib.Target), c.c_void_p, c.c_void_p, c.POINTER(_lib.Err))
    err, handle = _lib.Err(), c.c_void_p()
    if lib.ckpt_open(c.byref(handle), source.encode(), None, c.byref(err)) != 0:
        return err.code
    wanted = _lib.Target(size=c.sizeof(_lib.Target), format=form.encode(), path=target.encode(),
                         dtype=lib.ckpt_dtype_parse(dtype.encode()) if dtype else 0)
    code = lib.ckpt_convert(handle, c.byref(wanted), None, None, c.byref(err))
    lib.ckpt_map_free(handle)
    return code


def by_program(source, target, form, dtype):
    """`ckpt convert`; the status."""
    command = [os.path.join(BIN, 'ckpt'), 'convert', source, target, '--to', form] + (['--dtype', dtype] if dtype else [])
    return subprocess.run(command, capture_output=True, check=False).returncode


def by_package(source, target, form, dtype):
    """ckpt.convert; the code of its error."""
    try:
        ckpt.convert(source, target, to=form, dtype=dtype)
    except ckpt.CkptError as x:
        return x.code
    return 0


WAYS = {'library': by_library, 'program': by_program, 'package': by_package}


class Defaults(Case):
    def test_overflow(self):
        folder = self.scratch()
        source = os.path.join(folder, 'big.safetensors')
        head = json.dumps({'w': {'dtype': 'F32', 'shape': [3], 'data_offsets': [0, 12]}}).encode()
        with open(source, 'wb') as f:
            f.write(struct.pack('<Q', len(head)) + head + struct.pack('<3f', 1, 1e30, 7e4))
        doubt = ckpt.DoubtError.code
        self.assertEqual(_lib.lib().ckpt_err_status(doubt), 9)
        for name, way in WAYS.items():
            target = os.path.join(folder, name + '.safetensors')
            self.assertEqual(way(source, target, 'safetensors', 'f16'), 9 if name == 'program' else doubt, name)
            self.assertFalse(os.path.exists(target), name)
        with ckpt.view(source, 'safetensors', dtype='f16') as v, self.assertRaises(ckpt.DoubtError):
            v.read(next(iter(v.files)), 0)

    def test_side_files(self):
        folder, source, got = self.scratch(), fixture('peft_gpt2_conv1d', 'base'), {}
        for name, way in WAYS.items():
            target = os.path.join(folder, name)
            self.assertEqual(way(source, target, 'hf', None), 0, name)
            got[name] = {f: open(os.path.join(target, f), 'rb').read() for f in sorted(os.listdir(target))}
        with ckpt.view(source, 'hf') as v:
            got['view'] = {f: None for f in sorted(v.files)}
        self.assertIn('config.json', got['library'])
        self.assertIn('generation_config.json', got['library'])
        self.assertEqual(got['program'], got['library'])
        self.assertEqual(got['package'], got['library'])
        self.assertEqual(list(got['view']), list(got['library']))

    def test_whole_dict(self):
        """Moments never become weights of a model: the program and the package take the model, the library asks which tensors."""
        folder, source = self.scratch(), fixture('whole_dicts', 'tutorial.pt')
        for name, way in WAYS.items():
            target = os.path.join(folder, name)
            self.assertEqual(way(source, target, 'hf', None), ckpt.UsageError.code if name == 'library' else 0, name)
            self.assertEqual(os.path.exists(target), name != 'library', name)
        self.assertEqual([t for t in ckpt.open(os.path.join(folder, 'program')) if 'exp_avg' in t], [])
        with self.assertRaises(ckpt.UsageError):
            ckpt.view(source, 'hf')
