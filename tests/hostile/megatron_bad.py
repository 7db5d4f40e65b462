#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs of Megatron-LM that are damaged or lie, made from the fixtures: each ends with the status and the word that it should.

    megatron_bad.py --bin build/bin FIXTURES
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

DIST, FLAT = 'mcore_llama_distopt_dp2', 'mcore_llama_dpreshard_dp2'
GRID, ONE = 'mlegacy_gpt2_tp2_pp2', 'mlegacy_distopt_dp2'
ITER, TRACKER = 'iter_0000003', 'latest_checkpointed_iteration.txt'
MODEL = 'model_optim_rng.pt'


def at(*parts):
    return os.path.join(ITER, *parts)


def records(path, change):
    """Rewrite an archive of torch.save; change(name, bytes) gives what a record is to hold."""
    old = zipfile.ZipFile(path)
    new = [(i, change(i.filename.split('/', 1)[1], old.read(i.filename))) for i in old.infolist()]
    old.close()
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as z:
        for i, raw in new:
            z.writestr(i.filename, raw)


def number(path, key, value):
    """Let a small number of the pickle be another one."""
    def change(name, raw):
        if name != 'data.pkl':
            return raw
        m = re.search(re.escape(key.encode()) + rb'(?:q(.)|r(....))K.', raw, flags=re.S)
        again = b'h' + m[1] if m[1] else b'j' + m[2]
        for key_of in (m[0][:-2], again):
            raw = re.sub(re.escape(key_of) + rb'K.', lambda m: m[0][:-1] + bytes([value]), raw, flags=re.S)
        return raw
    records(path, change)


def code(path):
    """A pickle that would call os.system."""
    call = b"\x80\x02cos\nsystem\nX\x06\x00\x00\x00touch x\x85R."
    records(path, lambda name, raw: call if name == 'data.pkl' else raw)


def flip(path, size):
    """Change a float of one record of that size, checksums and all."""
    def change(name, raw):
        return bytes([raw[0] ^ 0x40]) + raw[1:] if name.startswith('data/') and len(raw) == size and not done and not done.append(1) else raw
    done = []
    records(path, change)
    assert done


def text(path, s):
    with open(path, 'wb') as f:
        f.write(s)


def lie(path, key, value):
    with open(path) as f:
        d = json.load(f)
    d[key] = value
    text(path, json.dumps(d).encode())


def each_rank(key, value):
    return lambda: [number(at('mp_rank_%02d_%03d' % (t, p), MODEL), key, value) for t in (0, 1) for p in (0, 1)]


def move(a, b):
    shutil.rmtree(b, ignore_errors=True)
    shutil.copytree(a, b)


# name, fixture, what is done to it, status, a part of the message[, more arguments]
CASES = (
    ('tracker leaves the folder', DIST, lambda: text(TRACKER, b'../%s' % ITER.encode()), 4, 'neither the number'),
    ('tracker with a NUL', DIST, lambda: text(TRACKER, b'3\0'), 4, 'neither the number'),
    ('tracker of words', DIST, lambda: text(TRACKER, b'three'), 3, 'neither the number'),
    ('tracker of a folder', DIST, lambda: text(TRACKER, ITER.encode()), 3, 'neither the number'),
    ('tracker is empty', DIST, lambda: text(TRACKER, b' \n'), 3, 'empty'),
    ('tracker is huge', DIST, lambda: text(TRACKER, b'3' * 100000), 6, TRACKER),
    ('tracker of nineteen digits', DIST, lambda: text(TRACKER, b'1' * 19), 3, 'neither the number'),
    ('tracker lies', DIST, lambda: text(TRACKER, b'4'), 5, 'tags here: iter_0000003'),
    ('tracker is gone', DIST, lambda: os.unlink(TRACKER), 5, 'tags here: iter_0000003'),
    ('tag is not there', DIST, lambda: None, 5, 'tags here: iter_0000003', '--tag', '4'),
    ('tag leaves the folder', DIST, lambda: None, 4, 'plain name', '--tag', '../x'),
    ('not finished', DIST, lambda: os.unlink(at('metadata.json')), 5, 'did not finish'),
    ('zarr', DIST, lambda: lie(at('metadata.json'), 'sharded_backend', 'zarr'), 3, 'zarr'),
    ('backend is a number', DIST, lambda: lie(at('metadata.json'), 'sharded_backend', 3), 3, 'sharded_backend'),
    ('metadata.json is a list', DIST, lambda: text(at('metadata.json'), b'[1]'), 3, 'sharded_backend'),
    ('metadata.json is cut', DIST, lambda: text(at('metadata.json'), b'{"sharded'), 3, 'metadata.json'),
    ('no .metadata', DIST, lambda: os.unlink(at('.metadata')), 5, '.metadata'),
    ('a data file is gone', DIST, lambda: os.unlink(at('__0_1.distcp')), 5, '__0_1.distcp'),
    ('a data file is cut', DIST, lambda: os.truncate(at('__0_1.distcp'), 40000), 3, '__0_1.distcp'),
    ('common.pt runs code', DIST, lambda: code(at('common.pt')), 4, 'os.system'),
    ('common.pt is gone', DIST, lambda: os.unlink(at('common.pt')), 9, 'common.pt is missing', '--strict'),
    ('common.pt is a text', DIST, lambda: text(at('common.pt'), b'hello'), 3, 'common.pt'),
    ('another iteration', DIST, lambda: number(at('common.pt'), 'iteration', 9), 9, 'holds iteration 9', '--strict'),
    ('flat buffers of other ranks', FLAT, lambda: number(at('common.pt'), 'pipeline_model_parallel_size', 2), 9, 'no effect',
     '--strict', '--with-optimizer'),
    ('a rank is gone', GRID, lambda: shutil.rmtree(at('mp_rank_01_000')), 5, 'is not there'),
    ('the first rank is gone', GRID, lambda: shutil.rmtree(at('mp_rank_00_000')), 5, 'is not there'),
    ('a stage is gone', GRID, lambda: [shutil.rmtree(at('mp_rank_%02d_001' % t)) for t in (0, 1)], 5, 'is not there'),
    ('a file of a rank is gone', GRID, lambda: os.unlink(at('mp_rank_01_001', MODEL)), 5, 'did not save'),
    ('a rank too many', GRID, lambda: move(at('mp_rank_00_000'), at('mp_rank_02_000')), 5, 'mp_rank_02_000'),
    ('a stage in the place of another', GRID, lambda: move(at('mp_rank_01_001'), at('mp_rank_01_000')), 5, 'tensors differ'),
    ('a stage twice', GRID, lambda: [move(at('mp_rank_%02d_000' % t), at('mp_rank_%02d_001' % t)) for t in (0, 1)], 3, 'two tensors'),
    ('layers that the run had not', GRID, each_rank('num_layers', 3), 5, 'the run had 3'),
    ('ranks that the run had not', GRID, each_rank('tensor_model_parallel_size', 1), 5, 'is not there'),
    ('ranks that are nowhere', GRID, each_rank('tensor_model_parallel_size', 200), 5, 'is not there'),
    ('ranks of two saves', GRID, lambda: number(at('mp_rank_01_001', MODEL), 'iteration', 4), 5, 'different saves'),
    ('a rank of another cut', 'mlegacy', lambda: shutil.copy(at('..', '..', 'other', MODEL), at('mp_rank_01_000', MODEL)), 5, ''),
    ('a norm differs', GRID, lambda: flip(at('mp_rank_01_000', MODEL), 32), 5, 'should be equal'),
    ('a rank runs code', GRID, lambda: code(at('mp_rank_01_001', MODEL)), 4, 'os.system'),
    ('a rank is cut', GRID, lambda: os.truncate(at('mp_rank_01_001', MODEL), 30000), 3, 'mp_rank_01_001'),
    ('flat state is cut', ONE, lambda: os.truncate(at('mp_rank_00', 'distrib_optim.pt'), 30000), 3, 'distrib_optim.pt',
     '--with-optimizer'),
    ('flat state runs code', ONE, lambda: code(at('mp_rank_00', 'distrib_optim.pt')), 4, 'os.system', '--with-optimizer'),
    ('flat state is gone', ONE, lambda: os.unlink(at('mp_rank_00', 'distrib_optim.pt')), 5, 'is missing', '--with-optimizer'),
    ('a master is not its weight', ONE, lambda: flip(at('mp_rank_00', 'distrib_optim.pt'), 4 * 5184), 5, 'should be equal', '--with-optimizer'),
)


def run(ckpt, case, fixtures, tmp):
    name, fixture, spoil, status, word = case[:5]
    if fixture == 'mlegacy':
        fixture = GRID
        os.mkdir(os.path.join(tmp, 'other'))
        shutil.copy(os.path.join(fixtures, ONE, 'ckpt', at('mp_rank_00', MODEL)), os.path.join(tmp, 'other'))
    folder, out = os.path.join(tmp, 'run'), os.path.join(tmp, 'out.safetensors')
    shutil.copytree(os.path.join(fixtures, fixture, 'ckpt'), folder)
    for top, dirs, files in os.walk(folder):
        for f in dirs + files:
            os.chmod(os.path.join(top, f), 0o755)
    os.chdir(folder)
    spoil()
    p = subprocess.run([ckpt, 'convert', '-q', *case[5:], folder, out], capture_output=True, text=True, timeout=120)
    os.chdir('/')
    if p.returncode != status or word not in p.stderr:
        return 'status %d, expected %d with "%s": %s' % (p.returncode, status, word, p.stderr.strip()[-300:])
    if os.path.exists(out) or os.path.exists(os.path.join(folder, 'x')):
        return 'something was written'
    return ''


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('fixtures')
    a = p.parse_args()
    ckpt, fixtures = os.path.abspath(os.path.join(a.bin, 'ckpt')), os.path.abspath(a.fixtures)
    failed = 0
    for case in CASES:
        with tempfile.TemporaryDirectory() as tmp:
            problem = run(ckpt, case, fixtures, tmp)
            if problem:
                print('FAIL %s: %s' % (case[0], problem))
            failed += bool(problem)
    print('hostile runs of Megatron-LM: %d passed, %d failed' % (len(CASES) - failed, failed))
    return 1 if failed else 0


sys.exit(main())
