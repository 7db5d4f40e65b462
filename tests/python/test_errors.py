# SPDX-License-Identifier: Apache-2.0
"""What is refused, and how it is said: classes, paths, codes; closed and forked handles; threads; time and memory."""
import os
import pickle
import threading
import time

import ckpt
from ckpt import _lib
from help import Case, fixture, generated


class Errors(Case):
    def test_classes(self):
        z3 = fixture('z3_bf16_w5_odd', 'ckpt')
        text = os.path.join(self.scratch(), 'x.txt')
        with open(text, 'w') as f:
            f.write('no checkpoint\n' * 40)
        for kind, base, code, call in (
                (ckpt.MissingError, LookupError, -6, lambda: ckpt.open('/no/such/file')),
                (ckpt.FormatError, ckpt.CkptError, -3, lambda: ckpt.open(text)),
                (ckpt.MissingError, LookupError, -6, lambda: ckpt.open(z3, tag='no such tag')),
                (ckpt.UsageError, ValueError, -2, lambda: ckpt.open(z3, check='some')),
                (ckpt.UsageError, ValueError, -2, lambda: ckpt.open(z3)['emb.weight'].tobytes('float7')),
                (ckpt.UnsupportedError, ckpt.CkptError, -4, lambda: ckpt.open(z3)['emb.weight'].tobytes('i64')),
                (ckpt.MissingTensorError, KeyError, -6, lambda: ckpt.open(z3)['emb'])):
            with self.assertRaises(kind) as got:
                call()
            self.assertIsInstance(got.exception, base)
            self.assertEqual((got.exception.code, got.exception.status),
                             (code, _lib.lib().ckpt_err_status(code)), str(got.exception))
            self.assertNotIn("\\'", str(got.exception))
            self.assertNotIn('--tag', str(got.exception))
            again = pickle.loads(pickle.dumps(got.exception))
            self.assertEqual((type(again), str(again), again.code, again.path), (kind, str(got.exception), code, got.exception.path))

    def test_every_code_has_its_class(self):
        from ckpt import errors
        lib = _lib.lib()
        for code in range(-1, -40, -1):
            known = code in errors.CLASSES
            self.assertEqual(known, lib.ckpt_err_text(code) != lib.ckpt_err_text(-1000), code)
            if known:
                self.assertEqual(errors.CLASSES[code].status, lib.ckpt_err_status(code))

    def test_place(self):
        folder = self.copy('hf_trainer_llama_z3_bf16_w2', 'ckpt')
        part = os.path.join(folder, 'global_step4', 'bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt')
        with ckpt.open(folder) as m:
            name = next(n for n, t in m.items() if len(t.extents) > 1)
            at = m[name].extents[1].offset
        with open(part, 'r+b') as f:
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes((byte ^ 4,)))
        with ckpt.open(folder) as m:
            with self.assertRaisesRegex(ckpt.FormatError, 'CRC-32') as got:
                m[name].tobytes()
            self.assertEqual((got.exception.path, got.exception.tensor), (part, name))
            m[name][:1].tobytes()  # a part is not checked
        with ckpt.open(folder, check='none') as m:
            m[name].tobytes()
        with ckpt.open(folder, check='all') as m:
            with self.assertRaises(ckpt.FormatError):
                m[name][-1:].tobytes()

    def test_unsafe(self):
        class Bad:
            def __reduce__(self):
                return os.system, ('true',)
        path = os.path.join(self.scratch(), 'bad.pkl')
        with open(path, 'wb') as f:
            pickle.dump(Bad(), f)
        with self.assertRaises(ckpt.UnsafeError):
            ckpt.open(path)

    def test_closed(self):
        m = ckpt.open(fixture('z3_bf16_w5_odd', 'ckpt'))
        t = m['emb.weight']
        m.close()
        m.close()
        self.assertTrue(m.closed)
        for call in (t.tobytes, lambda: m['gate'], lambda: t[0], lambda: t.extents,
                     lambda: m.facts, lambda: m.tree, lambda: list(m), lambda: m.known, lambda: t.role):
            with self.assertRaisesRegex(ckpt.ClosedError, 'closed'):
                call()
        self.assertIn('closed', repr(m))
        self.assertEqual(t.shape, (23, 7))

    def test_fork(self):
        m = ckpt.open(fixture('z3_bf16_w5_odd', 'ckpt'))
        t = m['emb.weight']
        want = t.tobytes()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            said = b'nothing'
            try:
                try:
                    t.tobytes()
                except ckpt.ClosedError as x:
                    said = b'refused' if 'before a fork' in str(x) else b'other'
                del t
                m.close()
                with ckpt.open(fixture('z3_bf16_w5_odd', 'ckpt')) as again:
                    said += b' same' if again['emb.weight'].tobytes() == want else b' other'
            finally:
                os.write(write, said)
                os._exit(0)
        os.close(write)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(os.read(read, 100), b'refused same')
        os.close(read)
        self.assertEqual(t.tobytes(), want)

    def test_no_library(self):
        out = self.python('''
import ckpt
try:
    ckpt.open("x")
except ckpt.CkptError as e:
    print("told", "CKPT_LIBRARY" in str(e))''', CKPT_LIBRARY='/no/such/libckpt.so')
        self.assertEqual(out.strip(), 'told True')


class Threads(Case):
    def test_many_threads_one_handle(self):
        with ckpt.open(fixture('z1_bf16_w3_groups', 'ckpt')) as m:
            want = {n: t.tobytes() for n, t in m.items()}
            wrong = []

            def work(k):
                try:
                    for _ in range(15):
                        for n, t in m.items():
                            if t.tobytes() != want[n]:
                                wrong.append(n)
                            if t.shape and t.shape[0] > 1 and t[1:].tobytes() != want[n][t.nbytes // t.shape[0]:]:
                                wrong.append(n)
                except Exception as x:
                    wrong.append(x)
            threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(wrong, [])

    def test_close_while_others_read(self):
        for _ in range(20):
            m = ckpt.open(fixture('z1_bf16_w3_groups', 'ckpt'))
            tensors, odd, refused = list(m.values()), [], []

            def work():
                try:
                    while True:
                        for t in tensors:
                            t.tobytes()
                except ckpt.ClosedError:
                    refused.append(1)
                except Exception as x:
                    odd.append(x)
            threads = [threading.Thread(target=work) for _ in range(4)]
            for t in threads:
                t.start()
            time.sleep(0.005)
            m.close()
            for t in threads:
                t.join()
            self.assertEqual((odd, len(refused)), ([], 4))


class Cost(Case):
    def test_import(self):
        # of the processor, and the least of several: what else runs here is no matter
        out = self.python('''
import subprocess, sys
code = "import time; a = time.process_time(); import ckpt; b = time.process_time(); print(b - a); " \\
       "assert not {'numpy', 'torch', 'tqdm'} & set(__import__('sys').modules)"
print(min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(7)))''',
                          PYTHONDONTWRITEBYTECODE='', PYTHONPYCACHEPREFIX=self.scratch())
        self.assertLess(float(out), 0.05)

    def test_slice_of_a_large_one(self):
        folder = generated(self, '--sparse', '--stage', '3', '--world', '4', '--layers', '30', '--width', '1024')
        self.assertGreater(sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(folder) for f in fs), 4e9)
        out = self.python('''
import sys, time, ckpt
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
seconds, grown = [], []
for i in range(4):  # the first part that a fresh handle reads; the least of several: what else runs here is no matter
    with ckpt.open(sys.argv[1]) as m:
        before, a = resident(), time.perf_counter()
        part = m["wte.weight"][100 + i:140:3, 5:900:7]
        n = len(part.tobytes())
        seconds.append(time.perf_counter() - a)
        grown.append(resident() - before)
        assert n == part.nbytes > 0
print(min(seconds), max(grown))''', folder)
        seconds, grown = map(float, out.split())
        self.assertLess(seconds, 0.02)
        self.assertLess(grown, 20 << 20)

    def test_nothing_stays(self):
        out = self.python('''
import sys, ckpt, gc, os
def count():
    return int(open("/proc/self/statm").read().split()[1]) * 4096, len(os.listdir("/proc/self/fd"))
def once():
    m = ckpt.open(sys.argv[1], optimizer=True)
    for t in m.values():
        t.tobytes(); t[...].shape
    m.tree
for _ in range(30): once()
a = count()
for _ in range(150): once()
gc.collect()
b = count()
print(b[0] - a[0], b[1] - a[1])''', fixture('z3_bf16_w5_odd', 'ckpt'))
        grown, files = map(int, out.split())
        self.assertLess(grown, 4 << 20)
        self.assertEqual(files, 0)
