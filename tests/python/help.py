# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: fixtures, their truth, scratch folders, and what this interpreter has."""
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FIXTURES = os.path.join(ROOT, 'tests', 'fixtures')
BIN = os.environ['CKPT_TEST_BIN']
sys.path.insert(0, os.path.join(ROOT, 'tests', 'golden'))


def has(name):
    return importlib.util.find_spec(name) is not None


needs_numpy = unittest.skipUnless(has('numpy'), 'numpy is not here')
needs_torch = unittest.skipUnless(has('torch'), 'torch is not here')
needs_deepspeed = unittest.skipUnless(has('torch') and has('deepspeed'), 'DeepSpeed is not here')


def newer(*names):
    """Decorates tests of what older releases of torch lack: functions and classes, by their names."""
    def there(name):
        module, _, item = name.rpartition('.')
        try:
            return hasattr(importlib.import_module(module), item)
        except ImportError:
            return False
    return unittest.skipUnless(all(there(name) for name in names), 'torch is not here, or too old')


def fixture(name, *more):
    return os.path.join(FIXTURES, name, *more)


def expected(name):
    with open(fixture(name, 'expected.json'), encoding='utf-8') as f:
        return json.load(f)


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Case(unittest.TestCase):
    """A test with a folder of its own, in memory where there is one."""

    def scratch(self):
        folder = tempfile.mkdtemp(dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None)
        self.addCleanup(shutil.rmtree, folder, True)
        return folder

    def copy(self, name, *more):
        """A copy of a fixture's folder that may be changed."""
        to = os.path.join(self.scratch(), 'copy')
        shutil.copytree(fixture(name, *more), to)
        subprocess.run(['chmod', '-R', 'u+w', to], check=True)
        return to

    def python(self, code, *args, **env):
        """Run a program text in a fresh interpreter; what it printed."""
        p = subprocess.run([sys.executable, '-c', code, *args], capture_output=True, text=True, timeout=300, env={**os.environ, **env},
                           check=False)
        self.assertEqual(p.returncode, 0, p.stderr[-2000:])
        return p.stdout


def generated(case, *options):
    """A ZeRO checkpoint of gen_zero's, of any size; skips the test where that program is not built."""
    gen = os.path.join(BIN, '..', 'gen_zero')
    if not os.path.exists(gen):
        case.skipTest('gen_zero is not built')
    to = os.path.join(case.scratch(), 'gen')
    subprocess.run([gen, *options, to], check=True, capture_output=True)
    return to
