#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ckpt --local: shards on the disks of several machines, here namespaces with a host name and a folder of their own.

  local.py --bin build/bin [--machines 3] FIXTURES_FOLDER NAME...

Each fixture's rank files are dealt over the machines, what is no rank's goes to all; what convert, reshard, zero_to_fp32,
ds_to_universal, verify and diff then write and say is what one process does with all files in one place.  A file that differs
between machines and one that none has are refused by name.  Needs root (unshare) and mpirun.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_mpi as one_host
from run_mpi import ENV, MPIRUN, check, commands, compare, source_of

# Each rank is a machine: WORK/mK is its WORK/here.
WRAP = '''#!/bin/sh
exec unshare -mu sh -c 'hostname m$OMPI_COMM_WORLD_RANK; mount --bind %(work)s/m$OMPI_COMM_WORLD_RANK %(work)s/here; exec "$@"' sh "$@"
'''


def deal(source, work, machines, first=0):
    """Copy the files of a checkpoint to the machines' folders: those of data-parallel rank R to machine R mod machines."""
    for k in range(first, first + machines):
        shutil.rmtree('%s/m%d' % (work, k), ignore_errors=True)
        os.makedirs('%s/m%d' % (work, k))
    for at, _, names in os.walk(source):
        for name in names:
            rank = re.search(r'zero_pp_rank_(\d+)_|__(\d+)_\d+\.distcp|_rank_(\d+)\.pt', name)
            whose = [first + int(next(g for g in rank.groups() if g)) % machines] if rank else range(first, first + machines)
            for k in whose:
                to = os.path.join('%s/m%d/ckpt' % (work, k), os.path.relpath(at, source))
                os.makedirs(to, exist_ok=True)
                shutil.copy2(os.path.join(at, name), to)


def prepare(work):
    os.makedirs(work + '/here')
    with open(work + '/wrap', 'w') as f:
        f.write(WRAP % {'work': work})
    os.chmod(work + '/wrap', 0o755)


def run(work, n, words):
    p = subprocess.run(['mpirun', '-q', '--oversubscribe', '--bind-to', 'none', '-n', str(n), work + '/wrap'] + words,
                       capture_output=True, text=True, timeout=300, env=ENV, cwd=work)
    return p.returncode, p.stdout, p.stderr


def fixture(b, name, source, training, work, machines):
    deal(source, work, machines)
    os.makedirs(work + '/whole')
    shutil.copytree(source, work + '/whole/ckpt')
    for what, words in commands(b, 'ckpt', training):
        out1, outn = work + '/whole/out', work + '/out'
        one = subprocess.run([w.replace('OUT', out1) for w in words], capture_output=True, text=True, cwd=work + '/whole')
        many = run(work, machines, [w.replace('OUT', outn) if w != 'ckpt' else 'here/ckpt' for w in words] + ['--local'])
        many = (many[0], many[1].replace('here/ckpt', 'ckpt'), many[2].replace('here/ckpt', 'ckpt'))
        compare('%s %s --local' % (name, what), machines, (one.returncode, one.stdout, one.stderr), many, out1, outn)
        for out in (out1, outn):
            shutil.rmtree(out, ignore_errors=True)
            if os.path.isfile(out):
                os.unlink(out)
    shutil.rmtree(work + '/whole')


def refusals(b, source, work, machines):
    """A replica that differs; a shard that no machine has."""
    deal(source, work, machines)
    path = [os.path.join(d, f) for d, _, names in os.walk(work + '/m1') for f in names if 'rank_1_' in f][0]
    name = os.path.basename(path)
    there = path.replace('/m1/', '/m0/')
    shutil.copy2(path, there)
    with open(there, 'r+b') as f:
        f.seek(-40, os.SEEK_END)
        byte = f.read(1)
        f.seek(-40, os.SEEK_END)
        f.write(bytes([byte[0] ^ 1]))
    status, out, text = run(work, machines, [b + '/ckpt', 'verify', '--local', 'here/ckpt'])
    text += out
    check('unlike', None if status == 5 and name in text and 'm0' in text and 'm1' in text else 'status %d: %s' % (status, text))
    os.unlink(path)
    os.unlink(there)
    status, _, text = run(work, machines, [b + '/ckpt', 'convert', '--local', 'here/ckpt', work + '/out', '--to', 'hf'])
    check('missing', None if status == 5 and 'rank_1' in text and not os.path.exists(work + '/out') else 'status %d: %s' % (status, text))


def traffic(b, gen, work, machines):
    """Bytes sent are those that the plan had to bring from other machines, and headers."""
    source, n_files = work + '/run', 4 * machines
    subprocess.run([gen, '--stage', '3', '--world', str(2 * machines), '--layers', '8', '--width', '512', '--vocab', '8000', source], check=True,
                   stdout=subprocess.DEVNULL)
    deal(source, work, machines)
    status, text, err = run(work, machines, [b + '/ckpt', 'convert', '--local', 'here/ckpt', work + '/out', '--to', 'safetensors', '--json'])
    if status:
        return check('traffic', 'status %d: %s' % (status, err))
    ranks = json.loads(text)['report']['processes']
    sent, far = sum(r['bytes_sent'] for r in ranks), sum(r['bytes_from_others'] for r in ranks)
    # a header comes with at most 128 KiB at once, and what else of it is asked for
    room = far // 50 + machines * n_files * (256 << 10)
    check('traffic', None if far <= sent <= far + room else '%d bytes sent, %d planned, at most %d beside them' % (sent, far, room))
    p = subprocess.run(MPIRUN + ['3', b + '/ckpt', 'convert', source, work + '/shared', '--to', 'safetensors', '--json'], capture_output=True,
                       text=True, env=ENV, timeout=300)
    ranks = json.loads(p.stdout)['report']['processes']
    share = [r['bytes_share'] for r in ranks]
    check('balance', None if max(share) <= 1.05 * sum(share) / len(share) and not any(r['bytes_from_others'] for r in ranks)
          else 'of files that all see: %s' % ranks)


def main():
    a = argparse.ArgumentParser()
    a.add_argument('--bin', default='build/bin')
    a.add_argument('--machines', type=int, default=3)
    a.add_argument('--gen', help='gen_zero, for what is sent')
    a.add_argument('fixtures')
    a.add_argument('names', nargs='+')
    a = a.parse_args()
    b = os.path.abspath(a.bin)
    if not shutil.which('mpirun') or not os.path.exists(os.path.join(b, '../lib/libckpt-mpi.so')):
        print('local: 0 passed, 0 failed: skipped, no mpirun or no libckpt-mpi.so')
        return 0
    if subprocess.run(['unshare', '-mu', 'hostname', 'm0'], capture_output=True).returncode:
        print('local: 0 passed, 0 failed: skipped, namespaces are not allowed here')
        return 0
    if a.gen:
        with tempfile.TemporaryDirectory() as work:
            prepare(work)
            traffic(b, os.path.abspath(a.gen), work, a.machines)
    for name in a.names:
        source, training = source_of(os.path.join(a.fixtures, name))
        with tempfile.TemporaryDirectory() as work:
            prepare(work)
            fixture(b, name, os.path.abspath(source), training, work, a.machines)
            if name == a.names[0] and training:
                refusals(b, os.path.abspath(source), work, a.machines)
    print('local: %d passed, %d failed' % (one_host.passed, len(one_host.failed)))
    return 1 if one_host.failed else 0


if __name__ == '__main__':
    sys.exit(main())
