#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fault injection: failing system calls, full disks, kills, and odd files.  Whatever happens, what stands under the final name is
the old complete file (or folder: folders.py; or set of files: sets.py) or the new complete one, and a failure that can clean up leaves nothing.

  run.py [--some] --bin build/bin --shim build/ioshim.so --alloc build/fault_alloc --gen build/gen_zero FIXTURES

--some: every call fails in one of the ways, which take turns; fewer random runs.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import common
import folders
import sets
from common import content, cpu_seconds, run, turns, verdict


def state(folder, name, before, after, rc, err):
    """The rule of this file's head, for one finished run."""
    now = content(os.path.join(folder, name))
    if rc < 0 or rc > 8:
        return 'exit %d: %s' % (rc, err)
    if rc == 0 and now != after:
        return 'exit 0 with another output'
    if rc and now not in (before, after):
        return 'exit %d left something else under the final name' % rc
    rest = [f for f in os.listdir(folder) if f != name] if os.path.isdir(folder) else []
    if rest:
        return 'exit %d left %s' % (rc, rest)
    if rc and len(err.split('\n')) != 1:
        return 'exit %d with several lines: %s' % (rc, err)
    return None


def syscalls(a, tmp, ckpt, name='w.safetensors', *options):
    """Every counted system call fails once, in four ways, over a fresh and over an existing output."""
    ref = os.path.join(tmp, 'ref')
    shutil.rmtree(ref, ignore_errors=True)
    os.mkdir(ref)
    convert = [os.path.join(a.bin, 'ckpt'), 'convert', '-q', '--jobs', '1', *options, ckpt]
    assert run(convert + [os.path.join(ref, name)])[0] == 0
    after = content(os.path.join(ref, name))
    ops = 'open,read,pread,write,pwrite,fsync,close,rename,ftruncate,fallocate'
    count = os.path.join(tmp, 'count')
    shim = {'LD_PRELOAD': os.path.abspath(a.shim), 'IOSHIM_OP': ops, 'IOSHIM_PATH': tmp}
    out = os.path.join(tmp, 'counted')
    shutil.rmtree(out, ignore_errors=True)
    os.mkdir(out)
    assert run(convert + [os.path.join(out, name)], dict(shim, IOSHIM_COUNT=count))[0] == 0
    calls = int(open(count).read())
    assert calls > 20, calls
    ways = [(kind, old) for kind in ('EIO', 'ENOSPC', 'EINTR', 'short') for old in (False, True)]
    for way, (kind, old) in enumerate(ways):
        for n in turns(a.some, way, len(ways), calls):
            out = os.path.join(tmp, 'o')
            shutil.rmtree(out, ignore_errors=True)
            os.mkdir(out)
            before = None
            if old:
                with open(os.path.join(out, name), 'w') as f:
                    f.write('the old file')
                before = content(os.path.join(out, name))
            rc, err = run(convert + [os.path.join(out, name), '--force'],
                          dict(shim, IOSHIM_NTH=str(n), IOSHIM_KIND=kind))
            problem = state(out, name, before, after, rc, err)
            if not problem and kind in ('EINTR', 'short') and rc:
                problem = 'exit %d, though the call may be repeated: %s' % (rc, err)
            verdict('%s: %s at call %d of %d%s' % (name, kind, n, calls, ' over an old file' if old else ''), problem)


def full_disk(a, tmp, ckpt):
    for size in (0, 1, 7, 100, 500, 1000, 1500, 3000):
        out = os.path.join(tmp, 'full')
        shutil.rmtree(out, ignore_errors=True)
        os.mkdir(out)
        rc, err = run([os.path.join(a.bin, 'ckpt'), 'convert', '-q', ckpt, os.path.join(out, 'w.pt')], limit=size)
        problem = state(out, 'w.pt', None, None, rc, err) if rc else 'exit 0'
        verdict('files limited to %d bytes' % size, problem or (None if rc == 7 else 'exit %d, expected 7: %s' % (rc, err)))


def kills(a, tmp):
    """SIGKILL, SIGINT and SIGTERM at random moments, over an old output."""
    src, out = os.path.join(tmp, 'big'), os.path.join(tmp, 'killed')
    subprocess.run([a.gen, '--stage', '2', '--world', '3', '--layers', '4', '--width', '384', '--vocab', '8000', src], check=True,
                   stdout=subprocess.DEVNULL)
    cmd = [os.path.join(a.bin, 'ckpt'), 'convert', '-q', '--force', src]
    os.mkdir(out)
    path = os.path.join(out, 'w.safetensors')
    t = time.time()
    assert run(cmd + [path])[0] == 0
    whole, after = time.time() - t, content(path)
    rng = random.Random(1)
    for i in range(12 if a.some else 60):
        how = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)[i % 3]
        with open(path, 'w') as f:
            f.write('the old file')
        before = content(path)
        p = subprocess.Popen(cmd + [path], stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * whole * 1.2)
        p.send_signal(how)
        rc = p.wait()
        now = content(path)
        left = [f for f in os.listdir(out) if f != 'w.safetensors']
        problem = None
        if now not in (before, after):
            problem = 'something else under the final name'
        elif rc == 0 and now != after:
            problem = 'exit 0 without the output'
        elif how != signal.SIGKILL and left:
            problem = 'left %s' % left
        elif rc not in (0, -how):
            problem = 'exit %d' % rc
        verdict('signal %d, run %d' % (how, i), problem)
        for f in left:
            shutil.rmtree(os.path.join(out, f))
    verdict('a run after all that', None if run(cmd + [path])[0] == 0 and content(path) == after else 'fails')


def odd_files(a, tmp, ckpt):
    tool = os.path.join(a.bin, 'ckpt')
    where = os.path.join(tmp, 'odd')
    os.mkdir(where)
    fifo, sparse, loop = (os.path.join(where, x) for x in ('fifo.pt', 'sparse.pt', 'loop.pt'))
    os.mkfifo(fifo)
    with open(sparse, 'wb') as f:
        f.truncate(1 << 40)
    os.symlink('loop.pt', loop)
    out = os.path.join(where, 'out.pt')
    for path in (fifo, '/dev/zero', sparse, loop, where, os.path.join(where, 'absent.pt')):
        before = cpu_seconds()
        rc, err = run([tool, 'convert', '-q', path, out])
        seconds = cpu_seconds() - before
        verdict(path, None if 3 <= rc <= 7 and seconds < 1 and not os.path.exists(out) and len(err.split('\n')) == 1
                else 'exit %d after %.1f s of work: %s' % (rc, seconds, err))
    plain = os.path.join(where, 'in.safetensors')
    assert run([tool, 'convert', '-q', ckpt, plain])[0] == 0
    keep = content(plain)
    hard = os.path.join(where, 'hard.safetensors')
    os.link(plain, hard)
    for label, target in (('output is the input', plain), ('output is a hard link to the input', hard)):
        rc, err = run([tool, 'convert', '-q', '--force', plain, target])
        verdict(label, None if rc == 2 and content(plain) == keep else 'exit %d: %s' % (rc, err))
    rc, err = run([tool, 'convert', '-q', ckpt, plain])
    verdict('existing output without --force', None if rc == 2 and content(plain) == keep else 'exit %d: %s' % (rc, err))
    rc, err = run([tool, 'convert', '-q', ckpt, os.path.join(where, 'new', 'deep', 'w.safetensors')])
    verdict('folders are made', None if rc == 0 else 'exit %d: %s' % (rc, err))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--some', action='store_true')
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--shim', default='build/ioshim.so')
    p.add_argument('--alloc', default='build/fault_alloc')
    p.add_argument('--gen', default='build/gen_zero')
    p.add_argument('fixtures')
    a = p.parse_args()
    ckpt = os.path.join(os.path.abspath(a.fixtures), 'z1_bf16_w3_groups', 'ckpt')
    tmp = os.path.realpath(tempfile.mkdtemp())
    try:
        local = os.path.join(tmp, 'ckpt')
        shutil.copytree(ckpt, local)
        syscalls(a, tmp, local)
        syscalls(a, tmp, local, 'w.npz', '--compress')
        full_disk(a, tmp, local)
        kills(a, tmp)
        odd_files(a, tmp, local)
        folders.test(a, tmp, local)
        sets.test(a, tmp)
        # a pipeline is among the sources of sets.py
        os.rename(os.path.join(tmp, 'set_src', 'p_old'), os.path.join(tmp, 'set_src', 'ckpt'))
        for name, fmt in (('z1_bf16_w3_groups', 'safetensors'), ('z3_bf16_w5_odd', 'hf-bin'), ('z3_bf16_w5_odd', 'zero'),
                          ('z1_bf16_w3_groups', 'hf-sharded'), ('mcore_llama_distopt_dp2', 'megatron'), ('rl_verl_fsdp1_w2', 'zero'),
                          ('mlegacy_gpt2_tp2_pp2', 'zero'), (os.path.join(tmp, 'set_src'), 'hf')):
            r = subprocess.run([a.alloc, os.path.join(a.fixtures, name, 'ckpt'), fmt,
                                os.path.join(tmp, 'alloc_%s_%s' % (os.path.basename(name), fmt))],
                               capture_output=True, text=True)
            verdict('allocations fail, %s to %s' % (name, fmt), None if r.returncode == 0 else r.stdout + r.stderr)
            print(r.stdout.strip())
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    print('faults: %d passed, %d failed' % (common.passed, common.failed))
    sys.exit(1 if common.failed or not common.passed else 0)


main()
