#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's samples: every command of its indented blocks is run, in their order and one folder, and must print what stands there.

    readme.py [--update] --bin build/bin

Times, speeds and free space are made equal first.  --update writes what was printed into README instead.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
README = os.path.join(ROOT, 'README.md')
FIXTURES = os.path.join(ROOT, 'tests', 'fixtures')
SAMPLE = re.compile(r'^    \$ (.*)\n((?:    (?!\$ ).*\n)*)', re.M)
VARIES = ((r' in [0-9.]+ m?s \([0-9.]+ [KMGT]?B/s\)', ' in TIME'), (r'[0-9.]+ [KMGT]?B free', 'SPACE free'))


def prepare(folder):
    """The checkpoints that the samples speak of; rotten has a bit changed in a tensor of the second rank."""
    for name, fixture in ('checkpoint-4', 'hf_trainer_llama_z3_bf16_w2'), ('run', 'z1_bf16_w2_tags'):
        shutil.copytree(os.path.join(FIXTURES, fixture, 'ckpt'), os.path.join(folder, name))
    subprocess.run(['chmod', '-R', 'u+w', folder], check=True)
    os.remove(os.path.join(folder, 'run', 'global_step2', 'bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt'))
    shutil.copytree(os.path.join(folder, 'checkpoint-4'), os.path.join(folder, 'rotten'))
    part = os.path.join(folder, 'rotten', 'global_step4', 'bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt')
    with open(part, 'r+b') as f:
        at = f.read().index(b'/data/3') + 512
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes((byte ^ 4,)))


def equal(text):
    for what, by in VARIES:
        text = re.sub(what, by, text)
    return text


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--update', action='store_true')
    p.add_argument('--bin', required=True)
    a = p.parse_args()
    env = dict(os.environ, PATH=os.path.abspath(a.bin) + ':' + os.environ['PATH'], LC_ALL='C', NO_COLOR='1')
    text = open(README, encoding='utf-8').read()
    out, at, passed, failed = '', 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        for m in SAMPLE.finditer(text):
            printed = subprocess.run(m[1], shell=True, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
            found = ''.join('    %s\n' % line for line in printed.splitlines())
            same = equal(found) == equal(m[2])
            passed, failed = passed + same, failed + (not same)
            out, at = out + text[at:m.start(2)] + (m[2] if same else found), m.end()
            if not same:
                print('README: $ %s\n  %s\n%s  where stands\n%s' % (m[1], 'prints', found, m[2]))
    if a.update:
        open(README, 'w', encoding='utf-8').write(out + text[at:])
    print('readme: %d passed, %d failed' % (passed, failed))
    return 1 if failed and not a.update else 0


sys.exit(main())
