# SPDX-License-Identifier: Apache-2.0
"""Operations: convert, reshard, merge, verify, diff, doctor; progress, cancelling, errors."""
import hashlib
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

import ckpt
from ckpt import _run
from help import BIN, Case, fixture, generated, has

Z3 = fixture('z3_bf16_w5_odd', 'ckpt')


class Operations(Case):
    def test_convert(self):
        out = os.path.join(self.scratch(), 'm.safetensors')
        report = ckpt.convert(Z3, out, to='safetensors')
        self.assertEqual((report.report['elements'], report['files'][0]['path']), (405, os.path.basename(out)))
        self.assertTrue(ckpt.diff(Z3, out).equal)
        with ckpt.open(Z3) as a, ckpt.open(out) as b:
            self.assertFalse(ckpt.diff(a, b))
        with self.assertRaisesRegex(ckpt.UsageError, 'exists already; use force=True') as got:
            ckpt.convert(Z3, out)
        self.assertEqual(got.exception.path, out)
        ckpt.convert(Z3, out, force=True, dtype='bf16', include=['emb.*', 'gate'])
        with ckpt.open(out) as m:
            self.assertEqual({n: t.dtype for n, t in m.items()}, {'emb.weight': 'BF16', 'gate': 'BF16'})
        with self.assertRaisesRegex(ckpt.UsageError, 'did you mean --dtype'):
            ckpt.convert(Z3, out, dtpye='f32')
        with self.assertRaises(ckpt.MissingError):
            ckpt.convert('/no/such', out)
        dry = os.path.join(self.scratch(), 'dry.pt')
        self.assertTrue(ckpt.convert(Z3, dry, dry_run=True)['dry_run'])
        self.assertFalse(os.path.exists(dry))

    def test_manifest(self):
        """The hash of a tensor is that of its bytes, verify uses the manifest, and a changed value is an error."""
        out = os.path.join(self.scratch(), 'm.safetensors')
        ckpt.convert(Z3, out, manifest=True)
        m = ckpt.manifest(out, write=False)
        self.assertEqual(m.path, out + '.manifest.json')
        with ckpt.open(out) as opened:
            for name, t in opened.items():
                h = m.tensors[name]
                self.assertEqual((h.dtype, h.shape), (t.dtype, tuple(t.shape)))
        with open(out, 'rb') as f:
            data = bytearray(f.read())
        self.assertEqual(m.files['m.safetensors'].sha256, hashlib.sha256(data).hexdigest())
        start = 8 + int.from_bytes(data[:8], 'little')
        header = json.loads(bytes(data[8:start]))
        stored = {n: h['data_offsets'] for n, h in header.items() if n != '__metadata__'}
        for name, (a, b) in stored.items():
            self.assertEqual(m.tensors[name].sha256, hashlib.sha256(data[start + a:start + b]).hexdigest(), name)
        self.assertEqual(ckpt.verify(out)['findings'], [])
        data[-1] ^= 1
        with open(out, 'wb') as f:
            f.write(data)
        with self.assertRaises(ckpt.DigestError) as got:
            ckpt.verify(out)
        self.assertEqual(got.exception.status, 8)
        self.assertTrue(any(f.text.startswith('tensor ') for f in got.exception.findings))
        again = ckpt.manifest(out, output=os.path.join(self.scratch(), 'again.json'))
        self.assertEqual([n for n in stored if again.tensors[n] != m.tensors[n]],
                         [n for n in stored if stored[n][1] == len(data) - start])

    def test_sign(self):
        """Keys and certificates, and what was changed since."""
        keys, model = fixture('model_signing'), os.path.join(self.scratch(), 'm')
        shutil.copytree(os.path.join(keys, 'model'), model)
        key, public = (os.path.join(keys, 'p256.' + n) for n in ('key', 'pub'))
        signed = ckpt.sign(model, key)
        self.assertEqual((signed.signature, signed.files), (os.path.join(model, 'model.sig'), 3))
        self.assertRegex(signed.signer, 'key [0-9a-f]{64}$')
        checked = ckpt.verify_signature(model, key=public)
        self.assertEqual({**signed, 'findings': []}, checked)
        with self.assertRaisesRegex(ckpt.UsageError, 'exists already'):
            ckpt.sign(model, key)
        ckpt.sign(model, os.path.join(keys, 'good.key'), cert=os.path.join(keys, 'good.chain'), force=True)
        self.assertEqual(ckpt.verify_signature(model, cert=os.path.join(keys, 'good.root')).signer, 'certificate CN=good release')
        with self.assertRaisesRegex(ckpt.DigestError, 'signed with a certificate'):
            ckpt.verify_signature(model, key=public)
        os.rename(os.path.join(model, 'more-notes.txt'), os.path.join(model, 'notes.txt'))
        with self.assertRaises(ckpt.DigestError) as got:
            ckpt.verify_signature(model, cert=os.path.join(keys, 'good.root'))
        self.assertEqual([f.text for f in got.exception.findings], ['notes.txt was renamed: the signature has it as more-notes.txt'])
        one = os.path.join(model, 'model.safetensors')
        self.assertEqual(ckpt.sign(one, key).signature, one + '.sig')
        self.assertEqual(ckpt.verify_signature(one, key=public).files, 1)
        with self.assertRaises(ckpt.UsageError):
            ckpt.verify_signature(one)
        with self.assertRaises(FileNotFoundError):
            ckpt.sign(one, '/no/such')

    def test_prove(self):
        folder = self.scratch()
        out, merged, run = (os.path.join(folder, n) for n in ('m.safetensors', 'merged.safetensors', 'run'))
        ckpt.convert(Z3, out, dtype='f16', exclude='*bias*')
        proof = ckpt.prove(out, Z3, exclude='*bias*')
        self.assertTrue(proof.proved)
        self.assertEqual(proof.command[:4], ['ckpt', 'convert', Z3, out])
        self.assertEqual(proof.command[-2:], ['--dtype', 'F16'])
        self.assertFalse(proof.differences)
        proof = ckpt.prove(out, Z3)
        self.assertFalse(proof.proved)
        self.assertEqual({d['what'] for d in proof.differences}, {'missing'})
        copy = os.path.join(folder, 'copy.safetensors')
        shutil.copyfile(out, copy)
        ckpt.merge([out, out], merged)
        self.assertIn('rounding', ckpt.prove(merged, [out, out]).tolerance)
        self.assertTrue(ckpt.prove(merged, {out: 0.5, copy: 0.5}, method='linear', tolerance=0).proved)
        with self.assertRaises(ckpt.UsageError):
            ckpt.prove(merged, {out: 0.5}, method='linear')
        ckpt.reshard(Z3, run, world=2, stage=2)
        self.assertEqual(ckpt.prove(run, Z3).command[-4:], ['--world', '2', '--stage', '2'])
        with self.assertRaises(ckpt.MissingError):
            ckpt.prove(out, '/no/such')

    def test_sizes_are_bytes(self):
        """A number is a size in bytes, however small, as in transformers and DeepSpeed."""
        out = os.path.join(self.scratch(), 'm')
        ckpt.convert(Z3, out, to='hf', max_shard_size=600)
        self.assertGreater(len([f for f in os.listdir(out) if f.endswith('.safetensors')]), 2)
        ckpt.convert(Z3, out, to='hf', force=True, max_shard_size=0)
        self.assertEqual(len([f for f in os.listdir(out) if f.endswith('.safetensors')]), 1)

    def test_names_like_options(self):
        folder = self.scratch()
        before = os.getcwd()
        os.chdir(folder)
        try:
            ckpt.convert(Z3, '--force.pt', to='torch')
            self.assertEqual(os.listdir('.'), ['--force.pt'])
        finally:
            os.chdir(before)

    def test_reshard_merge_verify_doctor(self):
        folder = self.scratch()
        run, merged = os.path.join(folder, 'run'), os.path.join(folder, 'merged.safetensors')
        report = ckpt.reshard(Z3, run, world=2, stage=2)
        self.assertEqual(report['folder'], 'global_step4')
        self.assertTrue(ckpt.diff(Z3, run, optimizer=True).equal)
        verified = ckpt.verify(run)
        self.assertGreater(verified.records_checked, 10)
        self.assertEqual(verified.findings, [])
        health = ckpt.doctor(run)
        self.assertEqual((health.ok, [(t.name, t.health, t.world, t.stage) for t in health.tags]),
                         (True, [('global_step4', 'whole', 2, 2)]))
        ckpt.merge({Z3: 1, run: 3}, merged, method='linear')
        found = ckpt.diff(Z3, merged, tolerance=1e-6)
        self.assertTrue(found.equal, found)
        with open(os.path.join(run, 'latest'), 'w') as f:
            f.write('nowhere')
        ill = ckpt.doctor(run)
        self.assertFalse(ill.ok)
        self.assertIn('nowhere', ill.reason)
        self.assertTrue(ckpt.doctor(run, fix_latest=True).ok)
        with self.assertRaises(ckpt.MissingError):
            ckpt.doctor(folder + '/none')

    def test_verify_says_all(self):
        folder = self.copy('hf_trainer_llama_z3_bf16_w2', 'ckpt')
        with ckpt.open(folder) as m:
            e = next(t for t in m.values() if t.extents).extents[0]
        with open(e.file, 'r+b') as f:
            f.seek(e.offset)
            byte = f.read(1)[0]
            f.seek(e.offset)
            f.write(bytes((byte ^ 1,)))
        with self.assertRaises(ckpt.FormatError) as got:
            ckpt.verify(folder)
        self.assertTrue(any('CRC-32' in f.text and f.severity == 'error' for f in got.exception.findings))
        p = subprocess.run([os.path.join(BIN, 'ckpt'), 'verify', folder], capture_output=True, check=False)
        self.assertEqual(p.returncode, got.exception.status)
        self.assertEqual(got.exception.path, e.file)

    def test_diff_tied(self):
        out, folder = os.path.join(self.scratch(), 'dcp'), fixture('map_mcore_gpt2', 'hf')
        ckpt.convert(folder, out, to='dcp')
        for pair in (out, folder), (folder, out):
            found = ckpt.diff(*pair)
            self.assertTrue(found.equal)
            self.assertEqual(found.tied, {'lm_head.weight': 'transformer.wte.weight'})

    def values(self, run, tag, name):
        """The floats of a tensor, by the program."""
        words = [os.path.join(BIN, 'ckpt'), 'cat', '--raw', '--dtype', 'f32', '-t', tag, run, name]
        data = subprocess.run(words, capture_output=True, check=True).stdout
        return struct.unpack('<%df' % (len(data) // 4), data)

    def test_diff_stats(self):
        run = fixture('z1_bf16_w2_tags', 'ckpt')
        found = ckpt.diff(run, run, tag_a='first', tag_b='global_step2', stats=True)
        words = [os.path.join(BIN, 'ckpt'), 'diff', '--stats', '--json', '--tag-a', 'first', '--tag-b', 'global_step2', run, run]
        want = json.loads(subprocess.run(words, capture_output=True, check=False).stdout)['groups']
        self.assertEqual([(g.name, g.tensors, g.elements, g.elements_different, g.nan_b) for g in found.groups],
                         [(g['name'], g['tensors'], g['elements'], g['elements_different'], g['nan_b']) for g in want])
        for g, w in zip(found.groups, want):
            self.assertAlmostEqual(g.relative_error, w['relative_error'], delta=1e-12)
            self.assertAlmostEqual(g.cosine, w['cosine'], delta=1e-12)
        g, x, y = found.groups[0], self.values(run, 'first', 'emb.weight'), self.values(run, 'global_step2', 'emb.weight')
        aa, bb, ab = (math.fsum(p * q for p, q in zip(*pair)) for pair in ((x, x), (y, y), (x, y)))
        dd = math.fsum((p - q) ** 2 for p, q in zip(x, y))
        self.assertAlmostEqual(g.relative_error, math.sqrt(dd / aa), delta=1e-15)
        self.assertAlmostEqual(g.cosine, ab / math.sqrt(aa * bb), delta=1e-15)
        self.assertEqual(g.max_abs, max(abs(p - q) for p, q in zip(x, y)))
        self.assertEqual(ckpt.diff(run, run).groups, [])

    def test_diff_tags(self):
        run = fixture('z1_bf16_w2_tags', 'ckpt')
        tags = [t.name for t in ckpt.doctor(run).tags]
        self.assertGreater(len(tags), 1)
        self.assertFalse(ckpt.diff(run, run, tag_a=tags[0], tag_b=tags[1]).equal)
        self.assertFalse(ckpt.diff(run, run, tag=tags[0], tag_b=tags[1]).equal)
        self.assertTrue(ckpt.diff(run, run, tag=tags[0], tag_b=tags[0]).equal)
        with self.assertRaises(ckpt.UsageError), ckpt.open(run) as m:
            ckpt.diff(m, run, tag_a=tags[0])

    def test_diff(self):
        folder = self.copy('z1_bf16_w2_tags', 'ckpt')
        found = ckpt.diff(folder, Z3)
        self.assertTrue({'only in A', 'only in B'} <= {d.what for d in found})
        found = ckpt.diff(Z3, Z3, include='emb.*')
        self.assertEqual(found, [])
        with self.assertRaises(ckpt.UsageError), ckpt.open(Z3) as m:
            ckpt.diff(m, Z3, include='emb.*')


class Progress(Case):
    def test_called_and_ends(self):
        calls = []
        ckpt.verify(Z3, progress=lambda done, total: calls.append((done, total)))
        self.assertTrue(calls and calls[-1][0] == calls[-1][1] > 0)
        calls = []
        ckpt.convert(Z3, os.path.join(self.scratch(), 'm.pt'), progress=lambda *at: calls.append(at))
        self.assertEqual(calls[-1], (100, 100))
        calls = []
        ckpt.diff(Z3, Z3, progress=lambda *at: calls.append(at))
        self.assertTrue(calls and calls[-1][0] == calls[-1][1] > 0)
        self.assertEqual(calls, sorted(calls))
        ckpt.verify(Z3, progress=has('tqdm'))
        self.assertEqual((_run._percent('converting  45% 1.2 GB of 3.0 GB, 1.0 GB/s, 0:02 left'), _run._percent('ckpt: reading 45% x')),
                         (45, None))

    def test_callback_stops(self):
        class Mine(Exception):
            pass
        for x in Mine('a'), KeyboardInterrupt():
            def stop(done, total):
                raise x
            with self.assertRaises(type(x)) as got:
                ckpt.verify(Z3, progress=stop)
            self.assertIs(got.exception, x)
        with self.assertRaises(Mine):
            ckpt.doctor(Z3, deep=True, progress=lambda *at: (_ for _ in ()).throw(Mine()))

    def interrupted(self, call, undo):
        """Ctrl-C while a call is under way, sooner each time until it comes in time; False: never.  undo() says whether the call was done all the same."""
        for delay in (0.2, 0.1, 0.05, 0.02, 0.01):
            timer = threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            try:
                call()
                timer.join()
                time.sleep(0.01)
            except KeyboardInterrupt:
                timer.join()
                if not undo():
                    return True
            undo()
        return False

    def test_ctrl_c(self):
        old = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, old)
        source = generated(self, '--stage', '2', '--world', '2', '--layers', '4', '--width', '512')
        folder = self.scratch()
        out = os.path.join(folder, 'out.safetensors')

        def undo():
            there = os.path.exists(out)
            if there:
                os.remove(out)
            return there
        try:
            self.assertTrue(self.interrupted(lambda: ckpt.convert(source, out, jobs=1), undo))
        except KeyboardInterrupt:
            self.fail('it came late')
        self.assertEqual(os.listdir(folder), [])
        self.assertTrue(self.interrupted(lambda: ckpt.verify(source, jobs=1), bool))
        self.assertTrue(self.interrupted(lambda: ckpt.diff(source, source), bool))
        with ckpt.open(source) as m:  # all is as before
            self.assertGreater(len(m['wpe.weight'][:1].tobytes()), 0)

    def test_ctrl_c_while_the_library_works(self):
        """In a child that was started with SIGINT ignored, as in the background, while C waits in a callback."""
        code = '''
import os, signal, sys, threading
import ckpt
seen = threading.Event()

def handler(*args):
    seen.set()
    signal.default_int_handler(*args)

def progress(done, total):
    if not seen.is_set():
        os.kill(os.getpid(), signal.SIGINT)
        seen.wait()

signal.signal(signal.SIGINT, handler)
call = getattr(ckpt, sys.argv[1])
try:
    call(*sys.argv[2:], progress=progress)
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
print(len(ckpt.open(sys.argv[2])))
'''
        for words in ('verify', Z3), ('diff', Z3, Z3), ('doctor', Z3):
            p = subprocess.run([sys.executable, '-c', code, *words], capture_output=True, text=True, check=False, timeout=300,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
            self.assertEqual(p.stdout.split('\n')[:2], ['interrupted', '19'], (words, p.stdout, p.stderr))

    def test_in_threads(self):
        failed = []

        def work():
            try:
                ckpt.verify(Z3)
                ckpt.diff(Z3, Z3)
            except Exception as x:
                failed.append(x)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])
