#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that were damaged in known ways: the verdict of `ckpt doctor` on each, and what --fix-latest does about it.

  run_doctor.py --bin build/bin [--more FOLDER] FIXTURES_FOLDER

Every case copies a fixture, damages the copy, and holds state, reason and exit status of the doctor against what is expected;
then it asks for the fix, and checks that nothing but `latest` has changed, and that the verdict is then as it should be.
"""
import argparse
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

passed, failed = 0, 0
Z1, Z2, Z3, LLAMA = 'z1_bf16_w2_tags', 'z2_bf16_w2_aligned', 'z3_bf16_w5_odd', 'hf_trainer_llama_z3_bf16_w2'


def shard(run, tag, rank, kind):
    """The path of a rank's file of a tag."""
    folder = os.path.join(run, tag)
    for f in sorted(os.listdir(folder)):
        if 'pp_rank_%d_' % rank in f and f.endswith(kind + '_states.pt'):
            return os.path.join(folder, f)
    raise FileNotFoundError('rank %d of %s' % (rank, folder))


def whole_model(run, tag):
    return os.path.join(run, tag, 'mp_rank_00_model_states.pt')


def only_tag(run):
    tags = [d for d in os.listdir(run) if os.path.isdir(os.path.join(run, d))]
    assert len(tags) == 1, tags
    return tags[0]


def cut(path, n):
    os.truncate(path, n)


def flip(path):
    """One bit of the longest stored record: a local header, 30 bytes and its names, stands before its data."""
    data = bytearray(open(path, 'rb').read())
    at, best, where = 0, 0, 0
    while data[at:at + 4] == b'PK\x03\x04':
        # sizes are in the central directory where the local ones are 0; look for the next record instead
        start = at + 30 + int.from_bytes(data[at + 26:at + 28], 'little') + int.from_bytes(data[at + 28:at + 30], 'little')
        at = data.find(b'PK\x03\x04', start)
        at = len(data) if at < 0 else at
        if data[start:start + 1] != b'\x80' and at - start > best:
            best, where = at - start, start + 8
    assert where
    data[where] ^= 4
    open(path, 'wb').write(data)


def write(path, text):
    with open(path, 'w') as f:
        f.write(text)


def stale_rank(run, fixtures):
    """Ranks of an earlier run of more processes: those of the larger fixture that the smaller one lacks."""
    tag = only_tag(run)
    larger = os.path.join(fixtures, Z3, 'ckpt')
    for kind in 'model', 'optim':
        src = shard(larger, only_tag(larger), 3, kind)
        name = os.path.basename(shard(run, tag, 1, kind)).replace('rank_1', 'rank_2')
        shutil.copy(src, os.path.join(run, tag, name))


def numbered_stale_rank(run, fixtures):
    """The same of stages 1 and 2: a copy of rank 1 as rank 2, which partition_count contradicts."""
    tag = only_tag(run)
    src = shard(run, tag, 1, 'optim')
    shutil.copy(src, src.replace('rank_1', 'rank_2'))


def mix_tags(run, fixtures):
    shutil.copy(shard(run, 'first', 1, 'optim'), shard(run, 'global_step2', 1, 'optim'))


def drop_optims(run, fixtures):
    tag = only_tag(run)
    for f in os.listdir(os.path.join(run, tag)):
        if 'optim' in f:
            os.unlink(os.path.join(run, tag, f))


def other_setting(path, was, now):
    """A number in a file's tree becomes another one, all checksums right: the file of a rank that was trained otherwise."""
    with zipfile.ZipFile(path) as z:
        records = [(name, z.read(name)) for name in z.namelist()]
    was, now = (b'G' + struct.pack('>d', x) for x in (was, now))
    assert any(was in data for name, data in records if name.endswith('/data.pkl')), path
    with zipfile.ZipFile(path, 'w') as z:
        for name, data in records:
            z.writestr(name, data.replace(was, now) if name.endswith('/data.pkl') else data)


# name, fixture, damage(run, fixtures), deep, tag that is judged (None: the only one), state, part of the reason,
# exit status, exit status with --fix-latest
CASES = [
    ('untouched', Z1, lambda r, f: None, True, 'global_step2', 'whole', '', 0, 0),
    ('untouched stage 3', Z3, lambda r, f: None, True, None, 'whole', '', 0, 0),
    ('untouched stage 0', 'z0_fp16_w2_fused', lambda r, f: None, True, None, 'whole', '', 0, 0),
    ('untouched, old', 'old0316_z1_fp16_w2', lambda r, f: None, True, None, 'whole', '', 0, 0),
    ('last rank gone, stage 1', Z1, lambda r, f: os.unlink(shard(r, 'global_step2', 1, 'optim')), False,
     'global_step2', 'partial', 'pp_rank_1_mp_rank_00_optim_states.pt: missing', 5, 0),
    ('rank 0 gone', Z2, lambda r, f: os.unlink(shard(r, only_tag(r), 0, 'optim')), False, None, 'partial',
     'pp_rank_0_mp_rank_00_optim_states.pt: missing', 5, 5),
    ('model file gone', Z2, lambda r, f: os.unlink(whole_model(r, only_tag(r))), False, None, 'partial',
     'mp_rank_00_model_states.pt', 5, 5),
    ('optimizer files gone', Z2, drop_optims, False, None, 'partial', 'no optimizer files', 5, 5),
    ('a rank of five gone', Z3, lambda r, f: os.unlink(shard(r, only_tag(r), 3, 'optim')), False, None, 'partial',
     'pp_rank_3_mp_rank_00_optim_states.pt: missing', 5, 5),
    ('last rank gone, optimizer only', Z3, lambda r, f: os.unlink(shard(r, only_tag(r), 4, 'optim')), False, None,
     'partial', 'pp_rank_4_mp_rank_00_optim_states.pt: missing', 5, 5),
    ('last rank gone, stage 3', Z3, lambda r, f: [os.unlink(shard(r, only_tag(r), 4, k)) for k in ('model', 'optim')],
     False, None, 'partial', 'pp_rank_4_mp_rank_00_optim_states.pt: missing', 5, 5),
    ('model of a rank gone', LLAMA, lambda r, f: os.unlink(shard(r, only_tag(r), 1, 'model')), False, None, 'partial',
     'zero_pp_rank_1_mp_rank_00_model_states.pt: missing', 5, 5),
    ('zero bytes', Z1, lambda r, f: cut(shard(r, 'global_step2', 1, 'optim'), 0), False, 'global_step2', 'rotten',
     'optim_states.pt: the file is empty (0 bytes)', 3, 0),
    ('cut short', Z2, lambda r, f: cut(shard(r, only_tag(r), 0, 'optim'), 3000), False, None, 'rotten', 'cut short', 3, 5),
    ('model cut short', Z2, lambda r, f: cut(whole_model(r, only_tag(r)), 100), False, None, 'rotten',
     'mp_rank_00_model_states.pt', 3, 5),
    ('one bit, looked at', Z3, lambda r, f: flip(shard(r, only_tag(r), 2, 'optim')), False, None, 'whole', '', 0, 0),
    ('one bit, read', Z3, lambda r, f: flip(shard(r, only_tag(r), 2, 'optim')), True, None, 'rotten', 'CRC-32', 3, 5),
    ('one bit in a tag of several', Z1, lambda r, f: flip(shard(r, 'global_step2', 0, 'optim')), True, 'global_step2',
     'rotten', 'CRC-32', 3, 0),
    ('stale rank, stage 3', LLAMA, stale_rank, False, None, 'mixed', '', 5, 5),
    ('stale rank, stage 2', Z2, numbered_stale_rank, False, None, 'mixed', 'rank_2_mp_rank_00_optim_states.pt: left over',
     5, 5),
    ('two tags mixed', Z1, mix_tags, False, 'global_step2', 'mixed', 'step', 5, 0),
    ('another weight decay', Z1, lambda r, f: other_setting(shard(r, 'global_step2', 1, 'optim'), 0.01, 0.5), False,
     'global_step2', 'mixed', 'weight_decay of parameter group 0 is 0.5 on rank 1 and 0.01 on rank 0', 5, 0),
    ('another clipping', Z1, lambda r, f: other_setting(shard(r, 'global_step2', 1, 'optim'), 1.0, 2.0), False,
     'global_step2', 'mixed', 'clip_grad is 2 on rank 1 and 1 on rank 0', 5, 0),
    ('another rate, stage 3', Z3, lambda r, f: other_setting(shard(r, only_tag(r), 3, 'optim'), 0.003, 0.004), False, None,
     'mixed', 'lr is 0.004 on rank 3 and 0.003 on rank 0', 5, 5),
    ('another rate in a model file', Z3, lambda r, f: other_setting(shard(r, only_tag(r), 2, 'model'), 0.003, 0.004), False,
     None, 'mixed', 'ds_config.optimizer.params.lr is 0.004 on rank 2 and 0.003 on rank 0', 5, 5),
    ('another weight decay of a slice', 'tp2_z1_w4', lambda r, f: [other_setting(os.path.join(r, only_tag(r), x), 0.1, 0.5) for x in
     os.listdir(os.path.join(r, only_tag(r))) if x.endswith('mp_rank_01_optim_states.pt')], False, None, 'mixed',
     'weight_decay of parameter group 0 is 0.5 on model-parallel rank 01 and 0.1 on the first of its stage', 5, 5),
    ('latest empty', Z1, lambda r, f: write(os.path.join(r, 'latest'), ''), False, 'global_step2', 'whole', '', 5, 0),
    ('latest names nothing', Z1, lambda r, f: write(os.path.join(r, 'latest'), 'global_step9'), False, 'global_step2',
     'whole', '', 5, 0),
    ('latest gone', Z1, lambda r, f: os.unlink(os.path.join(r, 'latest')), False, 'global_step2', 'whole', '', 5, 0),
    ('latest leads away', Z1, lambda r, f: write(os.path.join(r, 'latest'), '../x'), False, 'global_step2', 'whole', '',
     4, 0),
]


def gone(part):
    """Remove the first file of the only tag whose path holds this text."""
    def damage(run, fixtures):
        found = sorted(os.path.join(d, f) for d, _, files in os.walk(run) for f in files if part in os.path.join(d, f))
        assert found, part
        os.unlink(found[0])
    return damage


# layouts of several kinds of ranks, and universal checkpoints: fixtures that are not always at hand
MORE_CASES = [
    ('untouched, experts', 'moe_ep2_z2_w2', lambda r, f: None, True, None, 'whole', '', 0, 0),
    ('experts gone', 'moe_ep2_z2_w2', gone('expert_2'), False, None, 'partial', 'expert 2', 5, 5),
    ('untouched, pipeline', 'pipe2_z1_w4', lambda r, f: None, True, None, 'whole', '', 0, 0),
    ('a layer gone', 'pipe2_z1_w4', gone('layer_03'), False, None, 'partial', '', 5, 5),
    ('untouched, tensor parallel', 'tp2_z1_w4', lambda r, f: None, True, None, 'whole', '', 0, 0),
    ('a slice gone', 'tp2_z1_w4', gone('pp_rank_1_mp_rank_01'), False, None, 'partial',
     'model-parallel rank 01', 5, 5),
    ('untouched, universal', 'uni_z2_w2', lambda r, f: None, True, None, 'whole', '', 0, 0),
    ('a parameter gone', 'uni_z2_w2', gone('fp32.pt'), False, None, 'partial', 'fp32.pt', 5, 5),
]


def snapshot(top):
    """Every file with its hash and mode, `latest` apart; links as they are."""
    out = {}
    for d, dirs, files in os.walk(top):
        for f in files + dirs:
            path = os.path.join(d, f)
            st = os.lstat(path)
            data = open(path, 'rb').read() if os.path.isfile(path) else b''
            if os.path.relpath(path, top) != 'latest':  # which the fix may change
                out[os.path.relpath(path, top)] = (st.st_mode, st.st_mtime_ns if f not in dirs else 0,
                                                   hashlib.sha256(data).hexdigest())
    return out


def doctor(bin_, run, *options):
    p = subprocess.run([os.path.join(bin_, 'ckpt'), 'doctor', '--json', *options, run], capture_output=True, timeout=120)
    return p.returncode, json.loads(p.stdout), p.stderr.decode()


def newest_whole(tags):
    whole = [t for t in tags if t['state'] == 'whole']
    return max(whole, key=lambda t: t['step'])['name'] if whole else None


def check(bin_, case, run):
    name, _, _, deep, tag, state, reason, status, fixed = case
    options = ['--deep'] if deep else []
    before = snapshot(run)
    rc, d, err = doctor(bin_, run, *options)
    if rc != status or d['status'] != status or d['ok'] != (status == 0) or err:
        return 'exit %d, document %s, stderr %s' % (rc, d['status'], err)
    tags = d['runs'][0]['tags']
    found = [t for t in tags if tag in (None, t['name'])]
    if len(found) != 1 or found[0]['state'] != state:
        return 'tags %s' % [(t['name'], t['state'], t['reason']) for t in tags]
    if reason not in found[0]['reason'] or (state == 'whole') != (found[0]['reason'] == ''):
        return 'reason %s' % found[0]['reason']
    if state != 'whole' and not found[0]['problems']:
        return 'no problems are listed'
    if snapshot(run) != before:
        return 'a look has changed something'
    newest = newest_whole(tags)
    if d['runs'][0]['newest_whole'] != newest:
        return 'newest whole tag %s, expected %s' % (d['runs'][0]['newest_whole'], newest)
    if d['runs'][0]['pointer'] != 'latest':
        rc, d, err = doctor(bin_, run, '--fix-latest', *options)
        return None if rc == fixed and snapshot(run) == before else 'exit %d, or changed, with --fix-latest' % rc
    was = open(os.path.join(run, 'latest')).read() if os.path.exists(os.path.join(run, 'latest')) else None
    rc, d, err = doctor(bin_, run, '--fix-latest', *options)
    now = open(os.path.join(run, 'latest')).read() if os.path.exists(os.path.join(run, 'latest')) else None
    if rc != fixed:
        return 'exit %d with --fix-latest: %s' % (rc, d.get('reason'))
    if now != (newest or was) and (now or '').strip() != newest:
        return '`latest` is %r, expected %r' % (now, newest or was)
    if snapshot(run) != before:
        return '--fix-latest has changed more than `latest`'
    rc, d, err = doctor(bin_, run, *options)
    return None if (rc == 0) == (fixed == 0) else 'exit %d after the fix' % rc


def verdict(name, problem):
    global passed, failed
    if problem:
        failed += 1
        print('FAIL doctor, %s: %s' % (name, problem))
    else:
        passed += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--more', help='a folder of more fixtures')
    p.add_argument('fixtures')
    a = p.parse_args()
    bin_ = os.path.abspath(a.bin)
    cases = [(a.fixtures, c) for c in CASES]
    if a.more:
        cases += [(a.more, c) for c in MORE_CASES]
    for fixtures, case in cases:
        with tempfile.TemporaryDirectory() as tmp:
            run = os.path.join(tmp, 'run')
            kind = 'universal' if case[1].startswith('uni_') else 'ckpt'
            shutil.copytree(os.path.join(fixtures, case[1], kind), run)
            for d, dirs, files in os.walk(run):
                for f in dirs + files:
                    os.chmod(os.path.join(d, f), 0o755 if f in dirs else 0o644)
            os.chmod(run, 0o755)
            case[2](run, fixtures)
            verdict(case[0], check(bin_, case, run))
    print('doctor: %d passed, %d failed' % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


main()
