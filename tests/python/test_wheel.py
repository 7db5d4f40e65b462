# SPDX-License-Identifier: Apache-2.0
"""The wheel: the same bytes each time, a tag that holds, and an installation that finds all it needs beside itself."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import ckpt
from help import BIN, Case, HERE, ROOT, fixture

PARTS = [os.path.join(BIN, '..', 'wheel', n) for n in ('libckpt.so.0', 'ckpt')]
IN_TREE = os.path.dirname(os.path.dirname(os.path.abspath(ckpt.__file__))) == os.path.join(ROOT, 'tools', 'python')


@unittest.skipUnless(IN_TREE and all(map(os.path.exists, PARTS)), 'no parts of a wheel are built')
class Wheel(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.made = cls.wheel('a')

    @classmethod
    def wheel(cls, name):
        out = os.path.join(cls.folder, name)
        subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'python', 'wheel.py'), '--library', PARTS[0], '--program', PARTS[1],
                        '--out', out], check=True, capture_output=True)
        return glob.glob(os.path.join(out, '*.whl'))[0]

    def test_same_bytes(self):
        def whole(path):
            with open(path, 'rb') as f:
                return os.path.basename(path), f.read()
        self.assertEqual(whole(self.made), whole(self.wheel('b')))

    @unittest.skipUnless(shutil.which('objdump'), 'objdump is not here')
    def test_tag_is_true(self):
        path = self.made
        folder = self.scratch()
        with zipfile.ZipFile(path) as z:
            self.assertIsNone(z.testzip())
            self.assertEqual(set(z.namelist()) - {z.namelist()[-1]},
                             {line.split(',')[0] for line in z.read(next(n for n in z.namelist() if n.endswith('/RECORD'))).decode()
                              .splitlines()} - {z.namelist()[-1]})
            z.extractall(folder)
        asked, needed, there = set(), set(), set(os.listdir(os.path.join(folder, 'ckpt', 'bin')))
        for f in glob.glob(os.path.join(folder, 'ckpt', 'bin', '*')):
            out = subprocess.run(['objdump', '-T', '-p', f], capture_output=True, text=True, check=True).stdout
            asked |= {tuple(map(int, v)) for v in re.findall(r'GLIBC_(\d+)\.(\d+)', out)}
            needed |= set(re.findall(r'NEEDED +(\S+)', out))
        self.assertIn('manylinux_%d_%d_' % max(asked), os.path.basename(path))
        self.assertEqual({n for n in needed - there if not n.startswith(('libc.so', 'libm.so', 'ld-linux'))}, set())

    def test_installed(self):
        venv = os.path.join(self.scratch(), 'venv')
        made = subprocess.run([sys.executable, '-m', 'venv', venv], capture_output=True, text=True, check=False)
        if made.returncode:
            self.skipTest('this python3 makes no virtual environments')
        env = {k: v for k, v in os.environ.items() if not k.startswith(('CKPT_', 'PYTHON'))}
        env['PIP_NO_INDEX'] = env['PIP_DISABLE_PIP_VERSION_CHECK'] = '1'
        folder = self.scratch()

        def run(name, *args, status=0):
            p = subprocess.run([os.path.join(venv, 'bin', name), *args], capture_output=True, text=True, cwd=folder, env=env, check=False)
            self.assertEqual(p.returncode, status, p.stderr)
            return p.stdout + p.stderr
        run('pip', 'install', '--no-index', self.made)
        found = run('python', '-c', 'import ckpt, sys; from ckpt import _lib, _run; _lib.lib(); print(ckpt.__file__, _run.program()); '
                    'print([l.split()[-1] for l in open("/proc/self/maps") if ".so" in l and "/ckpt/bin/" in l])')
        self.assertEqual(found.count(venv), 2 + found.count('/ckpt/bin/') - 1, found)
        self.assertIn('ckpcrypto.so', found)
        run('zero_to_fp32', fixture('z3_bf16_w5_odd', 'ckpt'), 'out', '--safe_serialization')
        self.assertEqual(os.listdir(os.path.join(folder, 'out')), ['model.safetensors'])
        self.assertIn('Llama', run('ckpt', 'maps'))
        self.assertIn('zero_to_torch', run('zero_to_torch', '--help'))
        run('ds_to_universal', '--nonsense', status=2)
        said = run('python', os.path.join(HERE, 'run.py'), '--package', 'installed', '--bin', BIN, 'test_open')
        self.assertRegex(said, r'python: \d+ passed, 0 failed')
        run('pip', 'uninstall', '-y', 'libckpt')
        self.assertFalse(os.path.exists(os.path.join(venv, 'bin', 'zero_to_fp32')))
