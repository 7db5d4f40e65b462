# SPDX-License-Identifier: Apache-2.0
"""Views: the files of a conversion, read without being written, are those that it writes."""
import io
import os
import threading
import zipfile

import ckpt
from help import Case, fixture, has

Z3 = fixture('z3_bf16_w5_odd', 'ckpt')


def tree(folder):
    """The files below a folder."""
    return {os.path.relpath(os.path.join(at, n), folder): os.path.join(at, n) for at, _, names in os.walk(folder) for n in names}


class Views(Case):
    def test_files_are_those_of_convert(self):
        out = os.path.join(self.scratch(), 'out')
        ckpt.convert(Z3, out, to='hf', dtype='bf16')
        with ckpt.view(Z3, 'hf', dtype='bf16') as v:
            written = tree(out)
            self.assertEqual(v.files, {n: os.path.getsize(p) for n, p in written.items()})
            for name, path in written.items():
                with open(path, 'rb') as f:
                    want = f.read()
                self.assertEqual(v.read(name), want)
                self.assertEqual((v.read(name, 7, 5), v.read(name, len(want)), v.read(name, len(want) - 2, 99)),
                                 (want[7:12], b'', want[-2:]))
            self.assertGreater(v.counts.held, 0)
            self.assertEqual(v.counts.bad, 0)
            self.assertIn('hf', repr(v))

    def test_training_state(self):
        out = os.path.join(self.scratch(), 'run')
        ckpt.reshard(Z3, out, world=2, stage=2)
        with ckpt.view(Z3, 'zero', world=2, stage=2, to_tag='again') as v:
            names = set(v.files)
            self.assertEqual({n.replace('again', 'global_step4') for n in names}, set(tree(out)) | (names & {'latest'}))
            self.assertEqual(v.read('latest').strip(), b'again')
            name = next(n for n in names if n.endswith('model_states.pt'))
            self.assertIsNone(zipfile.ZipFile(io.BytesIO(v.read(name))).fp.close())

    def test_file_object(self):
        with ckpt.view(Z3, 'safetensors', name='m.safetensors') as v:
            self.assertEqual(list(v.files), ['m.safetensors'])
            want = v.read('m.safetensors')
            with v.open('m.safetensors') as f:
                self.assertIsInstance(f, io.RawIOBase)
                self.assertTrue(f.readable() and f.seekable() and not f.writable())
                self.assertEqual((f.read(8), f.tell(), f.seek(-3, os.SEEK_END), f.read()), (want[:8], 8, len(want) - 3, want[-3:]))
                self.assertEqual((f.read(1), f.seek(len(want) + 5), f.read(3), f.seek(2), f.seek(3, os.SEEK_CUR)),
                                 (b'', len(want) + 5, b'', 2, 5))
                room = bytearray(10)
                self.assertEqual((f.readinto(room), bytes(room)), (10, want[5:15]))
                self.assertIn('m.safetensors', repr(f))
                with self.assertRaises(ValueError):
                    f.seek(-1)
                with self.assertRaises(ValueError):
                    f.seek(0, 7)
                self.assertEqual(io.BufferedReader(v.open('m.safetensors')).read(), want)
            with self.assertRaises(ValueError):
                f.read(1)
            with self.assertRaises(TypeError):
                v.read_into('m.safetensors', b'read-only')

    def test_refusals(self):
        with self.assertRaisesRegex(ckpt.UsageError, 'not a known format'):
            ckpt.view(Z3, 'nonsense')
        with self.assertRaisesRegex(ckpt.UsageError, "did you mean 'world'"):
            ckpt.view(Z3, 'zero', wordl=2)
        with self.assertRaises(ckpt.UsageError):
            ckpt.view(Z3, 'hf', objects='maybe')
        with self.assertRaises(ckpt.UsageError):
            ckpt.view(Z3, 'torch', world=2)
        with self.assertRaises(ckpt.MissingError):
            ckpt.view('/no/such', 'hf')
        with ckpt.open(Z3) as m, self.assertRaises(ckpt.UsageError):
            ckpt.view(m, 'hf', tag='x')
        with self.assertRaisesRegex(ckpt.UnsupportedError, 'layout map'):
            ckpt.view(fixture('gguf_llama_deep', 'hf'), 'gguf')
        with ckpt.view(Z3, 'torch') as v:
            self.assertEqual(list(v.files), ['model.pt'])
            with self.assertRaisesRegex(ckpt.MissingError, "nearest is 'model.pt'"):
                v.open('modal.pt')
            with self.assertRaises(ckpt.UsageError):
                v.read('model.pt', -1, 2)

    def test_lifetime(self):
        model = ckpt.open(Z3)
        v = ckpt.view(model, 'safetensors')
        model.close()  # the view keeps what it needs
        f = v.open('model.safetensors')
        self.assertEqual(len(f.read(8)), 8)
        v.close()
        v.close()
        self.assertTrue(v.closed)
        with self.assertRaises(ckpt.ClosedError):
            f.read(8)
        kept = ckpt.view(Z3, 'safetensors').open('model.safetensors')  # which keeps its view
        self.assertEqual(len(kept.read(8)), 8)
        with ckpt.view(Z3, 'safetensors') as v:
            pid = os.fork()
            if pid == 0:
                try:
                    v.read('model.safetensors', 0, 1)
                except ckpt.ClosedError:
                    os._exit(0)
                os._exit(1)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_damage(self):
        folder = self.copy('z3_bf16_w5_odd', 'ckpt')
        with ckpt.open(folder) as m:
            e = m['emb.weight'].extents[0]
        with open(e.file, 'r+b') as f:
            f.seek(e.offset)
            byte = f.read(1)[0]
            f.seek(e.offset)
            f.write(bytes((byte ^ 1,)))
        with ckpt.view(folder, 'safetensors', check_first=True) as v:
            with self.assertRaisesRegex(ckpt.FormatError, 'CRC-32'):
                v.read('model.safetensors')
            self.assertEqual(v.counts.bad, 1)

    def test_threads(self):
        with ckpt.view(Z3, 'safetensors', jobs=2) as v:
            want, got = v.read('model.safetensors'), {}

            def read(at):
                got[at] = v.read('model.safetensors', at, 100)

            threads = [threading.Thread(target=read, args=(at,)) for at in range(0, len(want), 100)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(b''.join(got[at] for at in sorted(got)), want)

    def test_stream(self):
        out = os.path.join(self.scratch(), 'm.pt')
        ckpt.convert(Z3, out)
        with ckpt.view(Z3, 'torch', name='m.pt') as v:
            pieces = []
            v.stream('m.pt', pieces.append)
            with open(out, 'rb') as f:
                self.assertEqual(b''.join(pieces), f.read())

        class Mine(Exception):
            pass

        def stop(_):
            raise Mine

        with ckpt.view(Z3, 'torch') as v, self.assertRaises(Mine):
            v.stream('model.pt', stop)

    def test_torch(self):
        if not has('torch'):
            self.skipTest('torch is not here')
        import torch
        model = fixture('gguf_llama_deep', 'hf')
        with ckpt.view(model, 'torch', dtype='f32') as v, ckpt.open(model) as m, v.open('model.pt') as f:
            loaded = torch.load(f)
            self.assertTrue(torch.equal(loaded['lm_head.weight'], m['lm_head.weight'].torch('f32')))
            self.assertEqual(set(loaded), set(m))
