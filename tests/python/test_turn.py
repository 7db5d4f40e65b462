# SPDX-License-Identifier: Apache-2.0
"""The lock by which ranks take turns: in a folder of this user alone, so that nobody else can hold it."""
import fcntl
import os
import shutil
import tempfile
import threading
import unittest
from unittest import mock

from help import Case


class Turn(Case):
    def setUp(self):
        import ckpt.deepspeed
        self.ours = ckpt.deepspeed
        self.tmp = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.tmp, True)
        self.own = os.path.join(self.tmp, 'ckpt-%d' % os.getuid())
        for patch in (mock.patch.dict(os.environ, {'HOME': os.path.join(self.tmp, 'home')}), mock.patch('tempfile.tempdir', self.tmp)):
            patch.start()
            self.addCleanup(patch.stop)
        os.environ.pop('XDG_RUNTIME_DIR', None)

    def test_folder(self):
        self.assertEqual(self.ours._private_folder(), self.own)
        self.assertEqual(os.stat(self.own).st_mode & 0o777, 0o700)
        runtime = os.path.join(self.tmp, 'runtime')
        os.mkdir(runtime, 0o700)
        os.environ['XDG_RUNTIME_DIR'] = runtime
        self.assertEqual(self.ours._private_folder(), runtime)
        # one that others can open is nobody's
        os.chmod(runtime, 0o755)
        self.assertEqual(self.ours._private_folder(), self.own)

    def test_planted(self):
        """What another user can plant: a file, a link, a folder that is open to all."""
        home = os.path.join(self.tmp, 'home', '.cache', 'ckpt')
        os.mkdir(os.path.join(self.tmp, 'x'), 0o700)
        for plant in (lambda: os.mkdir(self.own, 0o777) or os.chmod(self.own, 0o777), lambda: open(self.own, 'w').close(),
                      lambda: os.symlink('x', self.own)):
            plant()
            self.assertEqual(self.ours._private_folder(), home)
            os.rmdir(self.own) if os.path.isdir(self.own) and not os.path.islink(self.own) else os.unlink(self.own)

    def test_none(self):
        os.mkdir(self.own, 0o755)
        os.chmod(self.own, 0o755)
        open(os.path.join(self.tmp, 'home'), 'w').close()
        with self.assertRaisesRegex(Exception, 'XDG_RUNTIME_DIR'):
            self.ours._private_folder()

    def test_turns(self):
        """Two of one user wait for each other."""
        out, order = os.path.join(self.tmp, 'out'), []

        def second():
            with self.ours._turn(out):
                order.append(2)
        with self.ours._turn(out):
            t = threading.Thread(target=second)
            t.start()
            t.join(.3)
            order.append(1)
        t.join(10)
        self.assertEqual(order, [1, 2])
        (name,) = os.listdir(self.own)
        with open(os.path.join(self.own, name), 'r+') as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)


if __name__ == '__main__':
    unittest.main()
