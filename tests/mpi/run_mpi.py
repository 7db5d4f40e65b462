#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ckpt under mpirun: what N processes write and say is what one does, byte by byte.

  run_mpi.py --bin build/bin [--ranks 2,3] [--some] FIXTURES_FOLDER [NAME...]

Each fixture: convert to safetensors and to a Hugging Face folder, reshard, zero_to_fp32, ds_to_universal, verify, diff, each
with every number of processes (--some: of the commands one number each, going round).  Without mpirun or the MPI plugin
nothing is run, and the closing line says so.
"""
import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile

passed, failed = 0, []
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', PMIX_MCA_gds=os.environ.get('PMIX_MCA_gds') or 'hash')
MPIRUN = ['mpirun', '-q', '--oversubscribe', '--bind-to', 'none', '-n']


def run(n, *cmd):
    """Status, standard output and error of a command; n > 1: by that many processes."""
    p = subprocess.run((MPIRUN + [str(n)] if n else []) + list(cmd), capture_output=True, text=True, timeout=300, env=ENV)
    return p.returncode, p.stdout, p.stderr


def plain(text):
    """Output without what differs from run to run: times, speeds."""
    text = re.sub(r'(, [^,]*?) in [0-9.:]+ [a-z]+ \([^)]*/s\)', r'\1', text)
    return '\n'.join(x for x in text.splitlines() if not re.match(r'\w+ +\d+% |\w+: \d+ processes sent |-----|mpirun |\[[^\]]*\] plm:rsh|Primary job|a non-zero exit|the job to be|\s*Process name|\s*Exit code|$', x))


def same(a, b):
    """None, or the first path below a and b that differs."""
    if os.path.isfile(a):
        return None if os.path.isfile(b) and filecmp.cmp(a, b, shallow=False) else a
    names = sorted(os.listdir(a)) if os.path.isdir(a) else []
    if not os.path.isdir(b) or names != sorted(os.listdir(b)):
        return '%s: %s against %s' % (a, names, sorted(os.listdir(b)) if os.path.isdir(b) else 'nothing')
    for name in names:
        problem = same(os.path.join(a, name), os.path.join(b, name))
        if problem:
            return problem
    return None


def check(label, problem):
    global passed
    if problem:
        failed.append(label)
        print('FAIL %s: %s' % (label, problem))
    else:
        passed += 1


def compare(label, n, one, many, out1, outn):
    """One process and n: status, text, files."""
    if one[0] != many[0]:
        return check(label, 'status %d, of %d processes %d: %s' % (one[0], n, many[0], many[2][-600:]))
    for k in (1, 2):
        a, b = plain(one[k]).replace(out1, 'OUT'), plain(many[k]).replace(outn, 'OUT')
        if a != b:
            return check(label, 'of one process:\n%s\nof %d:\n%s' % (a, n, b))
    return check(label, same(out1, outn) if out1 and os.path.exists(out1) else
                 'rubbish %s' % outn if outn and os.path.exists(outn) and one[0] else None)


def commands(b, source, training):
    """Name and words; OUT stands for the output."""
    yield 'convert', [b + '/ckpt', 'convert', '-q', source, 'OUT', '--to', 'safetensors']
    yield 'torch', [b + '/ckpt', 'convert', '-q', source, 'OUT', '--to', 'torch']
    yield 'hf', [b + '/ckpt', 'convert', source, 'OUT', '--to', 'hf', '--dtype', 'bf16', '--max-shard-size', '8KB']
    yield 'verify', [b + '/ckpt', 'verify', source]
    if training:
        yield 'reshard', [b + '/ckpt', 'reshard', source, 'OUT', '--world', '3']
        yield 'fp32', [b + '/zero_to_fp32', source, 'OUT']
        yield 'universal', [b + '/ds_to_universal', '--input_folder', source, '--output_folder', 'OUT']


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
    if os.path.isfile(path):
        os.unlink(path)


def attempt(label, words, ranks, work):
    """One command by one process and by several; the output of one stays."""
    # of one name, for that of an archive's folder is made of it
    out1, outn = work + '/1/out', work + '/2/out'
    remove(work + '/1')
    one = run(0, *[w.replace('OUT', out1) for w in words])
    for n in ranks:
        many = run(n, *[w.replace('OUT', outn) for w in words])
        compare('%s %d' % (label, n), n, one, many, out1, outn)
        remove(work + '/2')
    return out1


def fixture(b, name, source, training, ranks, some, work):
    for k, (what, words) in enumerate(commands(b, source, training)):
        out1 = attempt('%s %s' % (name, what), words, [ranks[k % len(ranks)]] if some else ranks, work)
        if what == 'convert' and os.path.exists(out1):
            attempt('%s diff' % name, [b + '/ckpt', 'diff', source, out1.replace('/1/', '/0/')], ranks[-1:], keep(work, out1))


def keep(work, out1):
    """What the next attempt reads is no output of it."""
    remove(work + '/0')
    os.makedirs(work + '/0')
    shutil.move(out1, work + '/0/out')
    return work


def changing(b, work):
    """Commands that change what is there are refused."""
    os.makedirs(work + '/there/.x.ckpt-partial')
    for words in (['clean', work + '/there'], ['doctor', '--fix-latest', work + '/there'], ['manifest', work + '/there']):
        status, _, text = run(2, b + '/ckpt', *words)
        check('%s by two' % words[0], None if status == 2 and 'several processes' in text and os.path.isdir(work + '/there/.x.ckpt-partial')
              else 'status %d: %s' % (status, text))


def more(b, fixtures, ranks, work):
    """Operations: weights computed from others, quantized, merged, renamed."""
    model = fixtures + '/gguf_llama_deep/hf'
    for k, (what, words) in enumerate((
            ('gguf', ['convert', model, 'OUT', '--to', 'gguf', '--dtype', 'q4_k_m']),
            ('npz', ['convert', model, 'OUT', '--to', 'npz']),
            ('fp8', ['convert', model, 'OUT', '--to', 'hf', '--quantize', 'fp8-channel']),
            ('merge', ['merge', '--method', 'linear', '-o', 'OUT', model + ':0.7', model + ':0.3']),
            ('adapter', ['convert', fixtures + '/peft_tied_head/base', 'OUT', '--to', 'hf', '--adapter', fixtures + '/peft_tied_head/adapter']),
            ('dcp', ['convert', model, 'OUT', '--to', 'dcp', '--world', '3']))):
        attempt('operation ' + what, [b + '/ckpt'] + words, [ranks[k % len(ranks)]], work)


def source_of(folder):
    """The checkpoint of a fixture, and whether it is one of ZeRO."""
    ckpt = os.path.join(folder, 'ckpt')
    if not os.path.isdir(ckpt):
        return None, False
    return ckpt, any(x.startswith(('zero_pp_rank', 'bf16_zero_pp_rank')) for d, _, f in os.walk(ckpt) for x in f)


def main():
    a = argparse.ArgumentParser()
    a.add_argument('--bin', default='build/bin')
    a.add_argument('--ranks', default='1,2,3,4')
    a.add_argument('--some', action='store_true')
    a.add_argument('fixtures')
    a.add_argument('names', nargs='*')
    a = a.parse_args()
    if not shutil.which('mpirun') or not os.path.exists(os.path.join(a.bin, '../lib/libckpt-mpi.so')):
        print('mpi: 0 passed, 0 failed: skipped, no mpirun or no libckpt-mpi.so')
        return 0
    ranks = [int(x) for x in a.ranks.split(',')]
    for name in a.names or sorted(os.listdir(a.fixtures)):
        source, training = source_of(os.path.join(a.fixtures, name))
        if not source and a.names:
            check(name, 'no such fixture')
        if source:
            with tempfile.TemporaryDirectory() as work:
                fixture(os.path.abspath(a.bin), name, source, training, ranks, a.some, work)
    if os.path.isdir(a.fixtures + '/gguf_llama_deep') and len(a.names) != 1:
        with tempfile.TemporaryDirectory() as work:
            changing(os.path.abspath(a.bin), work)
            more(os.path.abspath(a.bin), a.fixtures, ranks, work)
    print('mpi: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
