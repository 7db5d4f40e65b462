# SPDX-License-Identifier: Apache-2.0
"""README's lines of Python run, and print what their comments say; the package's page names what there is."""
import contextlib
import io
import os
import re
import shutil
import subprocess

import ckpt
from help import Case, ROOT, fixture, has


def sample():
    with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as f:
        text = f.read()
    lines = re.search(r'^    import ckpt\n(?:    .*\n)+', text, re.M)[0]
    return [line[4:] for line in lines.splitlines()]


class Readme(Case):
    def test_sample(self):
        lines = sample()
        if not has('numpy'):
            lines = [line for line in lines if 'numpy()' not in line]
        want = [re.search(r'  # (.*)', line)[1] for line in lines if 'print(' in line]
        folder = self.scratch()
        shutil.copytree(fixture('hf_trainer_llama_z3_bf16_w2', 'ckpt'), os.path.join(folder, 'checkpoint-4'))
        subprocess.run(['chmod', '-R', 'u+w', folder], check=True)
        before, out = os.getcwd(), io.StringIO()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                exec('\n'.join(lines), {})
        finally:
            os.chdir(before)
        self.assertEqual(out.getvalue().splitlines(), want)
        self.assertGreater(len(want), 1)

    def test_page_names_all(self):
        with open(os.path.join(ROOT, 'tools', 'python', 'README.md'), encoding='utf-8') as f:
            page = f.read()
        told = [n for n in ckpt.__all__ if n[0].islower() or n.endswith('Error')]
        self.assertEqual([n for n in told if n not in page and n not in ('DiffersError', 'MissingTensorError')], [])
        with ckpt.open(fixture('z3_bf16_w5_odd', 'ckpt')) as m:
            members = [n for o in (m, m['gate']) for n in dir(o) if not n.startswith('_')]
        self.assertEqual([n for n in members if n not in page and n not in
                          ('keys', 'values', 'get', 'closed', 'path', 'format', 'name', 'ndim', 'read_into')], [])
