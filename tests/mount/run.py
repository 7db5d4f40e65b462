#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mounted checkpoints: the files are those that convert and reshard write, and every end leaves nothing behind.

  run.py --bin build/bin --gen build/gen_zero [--some] [--tmp DIR] FIXTURES [CASE...]

Each case is a function named case_*.  Bytes of views are held against written ones by tests/view; here is what a file system adds.
Where no file system can be mounted the cases that need one are skipped, and that is said.
"""
import argparse
import contextlib
import errno
import filecmp
import json
import os
import random
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'remote'), os.path.join(HERE, '..', 'hostile')]
from incomplete import resave
from server import Server

ZERO = 'z3_bf16_w5_odd/ckpt'
LLAMA = 'hf_trainer_llama_z3_bf16_w2/ckpt'
SOURCES = [ZERO, LLAMA, 'z1_bf16_w3_groups/ckpt', 'z2_bf16_w2_emptyparam/ckpt', 'hf_bert_sharded/model', 'dcp_mesh2d_w4/ckpt', 'k_lora_z3/ckpt',
           'safetensors_dtypes', 'npz_more', 'torch_views', 'gguf_bert', 'tp2_z1_w4/ckpt']
ONE_FILE = {'safetensors': 'model.safetensors', 'torch': 'model.pt', 'npz': 'model.npz', 'gguf': 'model.gguf'}
TRAINING = ('zero', 'universal', 'dcp', 'fsdp-ranks')
TARGETS = [['safetensors'], ['torch'], ['npz'], ['gguf', '--map', 'none'], ['hf', '--map', 'none'],
           ['hf', '--map', 'none', '--dtype', 'fp16', '--max-shard-size', '4K'], ['hf-bin', '--map', 'none'], ['hf-sharded', '--world', '3'],
           ['zero', '--stage', '2', '--world', '3'], ['zero', '--stage', '3', '--world', '2'], ['universal'], ['dcp', '--world', '2'],
           ['fsdp-ranks', '--world', '2']]


def heed():
    """A shell has what it starts in the background ignore these."""
    for s in (signal.SIGINT, signal.SIGHUP):
        signal.signal(s, signal.SIG_DFL)


class Mount:
    """`ckpt mount` in the foreground, ended by SIGTERM at the latest."""

    def __init__(self, case, source, *words, env=None):
        self.case, self.dir = case, os.path.join(case.work, 'm%d' % case.n)
        case.n += 1
        self.said = open(self.dir + '.err', 'w+')
        self.process = subprocess.Popen([case.bin + '/ckpt', 'mount', source, self.dir, *words], stdout=subprocess.DEVNULL, stderr=self.said,
                                        stdin=subprocess.DEVNULL, cwd=case.work, env={**os.environ, **(env or {})}, preexec_fn=heed)
        while not os.path.ismount(self.dir) and self.process.poll() is None:
            time.sleep(0.01)
        self.mounted = self.process.poll() is None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def status(self, key):
        with open('/proc/%d/status' % self.process.pid) as f:
            return next(line.split()[1] for line in f if line.startswith(key))

    def end(self, how=signal.SIGTERM):
        """The status, and all that was said."""
        if self.process.poll() is None and how:
            self.process.send_signal(how)
        rc = self.process.wait(60)
        self.said.seek(0)
        text = self.said.read()
        self.case.check(not os.path.lexists(self.dir), '%s is still there' % self.dir)
        return rc, text


class Case:
    def __init__(self, options, work):
        self.bin, self.gen, self.work, self.n = os.path.abspath(options.bin), os.path.abspath(options.gen), work, 0
        self.fixtures, self.all, self.said = os.path.abspath(options.fixtures), not options.some, []

    def check(self, held, text):
        if not held:
            self.said.append(text)

    def source(self, name):
        path = os.path.join(self.fixtures, name)
        if not os.path.isdir(path) or '/' in name:
            return path
        inside = [os.path.join(path, x) for x in sorted(os.listdir(path)) if not x.endswith(('.json', '.md', '.py'))]
        return max(inside, key=lambda x: os.path.getsize(x) if os.path.isfile(x) else 1 << 60)

    def run(self, *words):
        return subprocess.run([self.bin + '/ckpt', *words], capture_output=True, text=True, cwd=self.work, stdin=subprocess.DEVNULL)

    def sanitized(self):
        """Programs with a sanitizer have no sandbox, and take more memory."""
        return 'sanitizer' in self.run('version').stdout

    def copy(self, name):
        to = os.path.join(self.work, 'copy%d' % self.n)
        self.n += 1
        shutil.copytree(self.source(name), to)
        return to

    def big(self):
        """A ZeRO-3 run of 0.1 GB of weights."""
        path = os.path.join(self.work, 'big')
        subprocess.run([self.gen, '--stage', '3', '--world', '4', '--dtype', 'bf16', '--layers', '4', '--width', '512', '--vocab', '25000', path],
                       check=True, stdout=subprocess.DEVNULL)
        return path

    def model(self, n_elems=3 << 20, value=1.5):
        """A safetensors file with two tensors, a and b."""
        path = os.path.join(self.work, 'model%d.safetensors' % self.n)
        self.n += 1
        header = json.dumps({x: {'dtype': 'F32', 'shape': [n_elems], 'data_offsets': [4 * n_elems * i, 4 * n_elems * (i + 1)]}
                             for i, x in enumerate('ab')}).encode()
        with open(path, 'wb') as f:
            f.write(struct.pack('<Q', len(header)) + header)
            for x in (0.25, value):
                f.write(struct.pack('<f', x) * n_elems)
        return path


def files_of(folder):
    return sorted(os.path.relpath(os.path.join(d, f), folder) for d, _, names in os.walk(folder) for f in names)


# ---- bytes ----

def compare(case, m, written, form):
    """Each file of the mount against the written one; archives of torch lack checksums, their tensors are compared."""
    case.check(files_of(m.dir) == files_of(written), '%s: files %s, not %s' % (form, files_of(m.dir), files_of(written)))
    archives = False
    for name in files_of(written):
        a, b = os.path.join(written, name), m.path(name)
        case.check(os.path.getsize(a) == os.path.getsize(b), '%s: %s has another size' % (form, name))
        with open(a, 'rb') as f:
            is_archive = f.read(4) == b'PK\3\4' and not name.endswith('.npz')
        archives = archives or is_archive
        case.check(is_archive or filecmp.cmp(a, b, False), '%s: %s has other bytes' % (form, name))
    if archives:
        alone = files_of(written) if len(files_of(written)) == 1 else ['']
        p = case.run('diff', os.path.join(written, alone[0]), m.path(alone[0]), *(['--with-optimizer'] if form[0] in ('zero', 'universal') else []))
        case.check(p.returncode == 0, '%s: diff: %s' % (form, p.stdout + p.stderr))


def one_target(case, name, form):
    source, out = case.source(name), os.path.join(case.work, 'out')
    shutil.rmtree(out, ignore_errors=True)
    target = out
    if form[0] in ONE_FILE:
        os.mkdir(out)
        target = os.path.join(out, ONE_FILE[form[0]])
    verb = 'reshard' if form[0] in TRAINING else 'convert'
    p = case.run(verb, source, target, '-q', '--to', *form)
    if p.returncode != 0:
        with Mount(case, source, '-q', '--to', *form) as m:
            case.check(not m.mounted, '%s %s: mounted, though convert says %s' % (name, form, p.stderr))
            rc, text = m.end()
            case.check(rc == p.returncode, '%s %s: status %d, not %d as %s: %s' % (name, form, rc, p.returncode, verb, text))
        return 0
    with Mount(case, source, '-q', '--to', *form) as m:
        case.check(m.mounted, '%s %s: is not mounted' % (name, form))
        if m.mounted:
            compare(case, m, out, form)
        rc, text = m.end()
    case.check(rc == 0, '%s %s: status %d: %s' % (name, form, rc, text))
    return 1


def case_files(case):
    """Every format from every kind of source: what convert refuses is refused, with its status."""
    n = sum(one_target(case, name, form) for i, name in enumerate(SOURCES) for k, form in enumerate(TARGETS)
            if case.all or (i + k) % 4 == 0)
    case.check(n >= (60 if case.all else 15), 'only %d conversions' % n)


def case_random_reads(case):
    """Four threads, in any order, against the written file; nothing of it was read before."""
    source, out = case.model(), os.path.join(case.work, 'o.pt')
    case.check(case.run('convert', source, out, '-q', '--dtype', 'fp16').returncode == 0, 'convert fails')
    bad = []

    def reader(m, seed, want):
        r = random.Random(seed)
        fd = os.open(m.path('o.pt'), os.O_RDONLY)
        for _ in range(400):
            at, n = r.randrange(len(want)), r.choice([1, 77, 4096, 70000, 1 << 20])
            if os.pread(fd, n, at) != want[at:at + n]:
                bad.append((at, n))
        os.close(fd)

    with Mount(case, source, '-q', '--to', 'torch', '--name', 'o.pt', '--dtype', 'fp16', '--memory', '4MiB', '-j', '3') as m:
        with open(m.path('o.pt'), 'rb') as f:
            want = f.read()
        # the data of both; checksums are what differs
        with open(out, 'rb') as f:
            case.check(sum(a != b for a, b in zip(want, f.read())) <= 4 * 40, 'other bytes')
    with Mount(case, source, '-q', '--to', 'torch', '--name', 'o.pt', '--dtype', 'fp16', '--memory', '4MiB', '-j', '3') as m:
        threads = [threading.Thread(target=reader, args=(m, i, want)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    case.check(not bad, 'other bytes at %s' % bad[:5])


# ---- a file system ----

def case_attributes(case):
    """Steady from one mount to the next; nothing can be changed; a full disk of just these files."""
    seen = []
    for _ in range(2):
        with Mount(case, case.source(LLAMA), '-q', '--to', 'zero', '--stage', '1', '--world', '2') as m:
            names = files_of(m.dir)
            seen.append([(n, os.stat(m.path(n)).st_size, os.stat(m.path(n)).st_mtime, os.stat(m.path(n)).st_ino) for n in names])
            modes = {stat.S_IMODE(os.stat(m.path(n)).st_mode) for n in names}
            case.check(modes == {0o444}, 'modes of files: %s' % modes)
            case.check(stat.S_IMODE(os.stat(m.dir).st_mode) == 0o555, 'mode of the folder')
            fs = os.statvfs(m.dir)
            case.check(fs.f_bavail == 0 and fs.f_blocks * fs.f_frsize >= sum(s[1] for s in seen[-1]) and fs.f_flag & os.ST_RDONLY, 'statvfs: %s' % (fs,))
            for path, how in ((m.path(names[0]), os.O_WRONLY), (m.path('new'), os.O_CREAT | os.O_WRONLY)):
                try:
                    os.close(os.open(path, how))
                    case.check(False, '%s was opened to be written' % path)
                except OSError as e:
                    case.check(e.errno in (errno.EROFS, errno.EACCES), 'errno %d' % e.errno)
            case.check(not os.path.exists(m.path('nothing')), 'a file that is not there')
    case.check(seen[0] == seen[1], 'attributes differ: %s' % seen)


def case_many_ranks(case):
    """A target of 1024 ranks is listed at once, in little memory."""
    with Mount(case, case.source(LLAMA), '-q', '--to', 'zero', '--stage', '3', '--world', '1024') as m:
        start = time.time()
        p = subprocess.run(['ls', '-lR', m.dir], capture_output=True, text=True)
        case.check(p.stdout.count('_states.pt') == 2048, 'ls -lR shows %d files' % p.stdout.count('_states.pt'))
        print('  ls -lR of 1024 ranks: %.3f s, %s kB resident' % (time.time() - start, m.status('VmHWM')))


def case_memory(case):
    """Peak memory under load, within what --memory says and a little."""
    source = case.big()
    if case.sanitized():
        return
    for memory, limit in (('32MiB', 64), ('256MiB', 300)):
        with Mount(case, source, '-q', '--to', 'safetensors', '--memory', memory) as m:
            subprocess.run(['cat', m.path('model.safetensors')], stdout=subprocess.DEVNULL, check=True)
            peak = int(m.status('VmHWM')) >> 10
            case.check(peak < limit, '--memory %s: %d MiB' % (memory, peak))
            print('  --memory %s: %d MiB' % (memory, peak))
            rc, text = m.end()
            case.check(rc == 0, text)


def case_confined(case):
    """The process that reads has given its rights up; nothing of it is root's any more but the name."""
    with Mount(case, case.source(ZERO), '-q', '--to', 'hf') as m:
        if case.sanitized():
            return
        case.check(m.status('NoNewPrivs') == '1', 'no_new_privs is not set')
        case.check(m.status('Seccomp:') == '2', 'no seccomp')


# ---- ends ----

def case_ends(case):
    """By signals and by unmounting: status 0, and the folder is as it was."""
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, 'fusermount3', 'umount'):
        if how == 'umount' and os.getuid() != 0:
            continue
        with Mount(case, case.source(ZERO), '--to', 'hf') as m:
            if isinstance(how, str):
                subprocess.run([how] + (['-u'] if how == 'fusermount3' else []) + [m.dir], check=True)
            rc, text = m.end(None if isinstance(how, str) else how)
            case.check(rc == 0, '%s: status %d: %s' % (how, rc, text))
            case.check('unmount it with Ctrl-C or fusermount3 -u' in text and 'unmounted' in text or 'records' not in text, text)
    there = os.path.join(case.work, 'there')
    os.mkdir(there)
    p = subprocess.Popen([case.bin + '/ckpt', 'mount', '-q', case.source(ZERO), there, '--to', 'hf'], stdout=subprocess.DEVNULL)
    while not os.path.ismount(there) and p.poll() is None:
        time.sleep(0.01)
    fd = os.open(os.path.join(there, 'model.safetensors'), os.O_RDONLY)
    p.send_signal(signal.SIGTERM)
    case.check(p.wait(60) == 0, 'an open file keeps it')
    case.check(not os.path.ismount(there) and os.listdir(there) == [], 'a folder that was there before')
    for call in (lambda: os.pread(fd, 1, 0), lambda: os.close(fd)):
        try:
            call()
            case.check(False, 'an answer from nobody')
        except OSError as e:
            case.check(e.errno in (errno.ENOTCONN, errno.ECONNABORTED), 'errno %d' % e.errno)


def gone(path, seconds=10):
    end = time.time() + seconds
    while os.path.lexists(path) and time.time() < end:
        time.sleep(0.02)
    return not os.path.lexists(path)


def mounter_of(pid):
    with open('/proc/%d/task/%d/children' % (pid, pid)) as f:
        return [int(x) for x in f.read().split()]


def case_killed(case):
    """kill -9 of the one that reads: the other unmounts.  Of both: a stale mount, which is named, and cleared as the page says."""
    with Mount(case, case.source(ZERO), '-q', '--to', 'hf') as m:
        m.process.kill()
        m.process.wait()
        case.check(gone(m.dir), 'still mounted')
    with Mount(case, case.source(ZERO), '-q', '--to', 'hf') as m:
        for pid in mounter_of(m.process.pid):
            os.kill(pid, signal.SIGKILL)
        m.process.kill()
        m.process.wait()
        p = case.run('mount', case.source(ZERO), m.dir, '--to', 'hf', '-q')
        case.check(p.returncode == 7 and 'fusermount3 -u' in p.stderr, 'status %d: %s' % (p.returncode, p.stderr))
        subprocess.run(['fusermount3', '-u', m.dir], check=True)
        case.check(os.listdir(m.dir) == [], 'not cleared')
        os.rmdir(m.dir)
    # the one that unmounts alone: said at the end
    with Mount(case, case.source(ZERO), '-q', '--to', 'hf') as m:
        for pid in mounter_of(m.process.pid):
            os.kill(pid, signal.SIGKILL)
        m.process.send_signal(signal.SIGTERM)
        rc = m.process.wait(60)
        m.said.seek(0)
        text = m.said.read()
        case.check('fusermount3 -u' in text and rc == 7, 'status %d: %s' % (rc, text))
        subprocess.run(['fusermount3', '-u', m.dir], check=True)
        os.rmdir(m.dir)


def case_at_once(case):
    """A signal while the first requests are on their way: nobody waits for the other."""
    for i in range(60 if case.all else 20):
        with Mount(case, case.source('safetensors_dtypes'), '-q', '--to', 'safetensors') as m:
            time.sleep(i % 5 / 1000)
            rc, text = m.end()
            case.check(rc == 0, 'status %d: %s' % (rc, text))


def case_moved(case):
    """Unmounted is what was mounted, wherever it is by now, and nothing else."""
    source = case.source('safetensors_dtypes')
    above, other = os.path.join(case.work, 'above'), os.path.join(case.work, 'other')
    os.mkdir(above)
    p = subprocess.Popen([case.bin + '/ckpt', 'mount', '-q', source, os.path.join(above, 'm'), '--to', 'safetensors'], stdout=subprocess.DEVNULL)
    while not os.path.ismount(os.path.join(above, 'm')) and p.poll() is None:
        time.sleep(0.01)
    os.rename(above, other)
    p.terminate()
    case.check(p.wait(60) == 0, 'status %d' % p.returncode)
    case.check(not os.path.ismount(os.path.join(other, 'm')), 'a mount is left where it went')
    if os.getuid() != 0:
        return
    # something over it is not ours to unmount: that is said
    with Mount(case, source, '-q', '--to', 'safetensors') as m:
        subprocess.run(['mount', '-t', 'tmpfs', 'none', m.dir], check=True)
        open(m.path('precious'), 'w').close()
        m.process.terminate()
        rc = m.process.wait(60)
        m.said.seek(0)
        text = m.said.read()
        case.check(rc == 7 and 'another file system is mounted over it' in text, 'status %d: %s' % (rc, text))
        case.check(os.path.exists(m.path('precious')), 'somebody else lost a mount')
        subprocess.run(['umount', m.dir], check=True)
        subprocess.run(['fusermount3', '-u', m.dir], check=True)
        os.rmdir(m.dir)
    # nor is what lies in it
    with Mount(case, case.source(ZERO), '-q', '--to', 'zero', '--world', '2') as m:
        inside = m.path('global_step4')
        subprocess.run(['mount', '-t', 'tmpfs', 'none', inside], check=True)
        open(os.path.join(inside, 'precious'), 'w').close()
        m.process.terminate()
        rc = m.process.wait(60)
        case.check(rc == 7 and os.path.ismount(m.dir), 'status %d, or somebody else lost a mount' % rc)
        subprocess.run(['umount', '-l', m.dir], check=True)
        os.rmdir(m.dir)
    # what was cut off, but could not be unmounted by who tried, is unmounted
    with Mount(case, source, '-q', '--to', 'safetensors') as m:
        fd = os.open(m.path('model.safetensors'), os.O_RDONLY)
        subprocess.run(['umount', '-f', m.dir], capture_output=True)
        rc = m.process.wait(60)
        case.check(rc == 0, 'cut off: status %d' % rc)
        try:
            os.close(fd)
        except OSError:
            pass
    # a second place of the same
    place = os.path.join(case.work, 'place')
    os.mkdir(place)
    with Mount(case, source, '-q', '--to', 'safetensors') as m:
        subprocess.run(['mount', '--bind', m.dir, place], check=True)
        rc, text = m.end()
        case.check(rc == 0 and not os.path.ismount(place), 'status %d: %s' % (rc, text))


def case_names(case):
    """Folders and sources of any name; a relative one, too."""
    source = case.source('safetensors_dtypes')
    for name in ('a b', 'a,b', 'a\\b', 'a\nb', 'a\tb#', '"\'', 'é – 終', '-x', '\\040', 'x/'):
        there = os.path.join(case.work, 'of ' + name.rstrip('/'))
        shutil.copy(source, there)
        p = subprocess.Popen([case.bin + '/ckpt', 'mount', '-q', '--to', 'safetensors', '--', there, name], stdout=subprocess.DEVNULL, cwd=case.work)
        at = os.path.join(case.work, name)
        while not os.path.ismount(at) and p.poll() is None:
            time.sleep(0.01)
        case.check(os.listdir(at) == ['model.safetensors'], '%r: is not there' % name)
        p.terminate()
        case.check(p.wait(60) == 0 and not os.path.lexists(at.rstrip('/')), '%r: status %d, or left' % (name, p.returncode))


def case_twice(case):
    """Two that want one folder: one gets it."""
    for i in range(20 if case.all else 5):
        twice(case, os.path.join(case.work, 'at%d' % i))


def twice(case, at):
    both = [subprocess.Popen([case.bin + '/ckpt', 'mount', '-q', case.source('safetensors_dtypes'), at, '--to', 'safetensors', '--name', n],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for n in ('a', 'b')]
    end = time.time() + 30
    while all(p.poll() is None for p in both) and time.time() < end:
        time.sleep(0.02)
    for p in both:
        p.terminate()
    said = [p.communicate(timeout=60)[1] for p in both]
    case.check(sorted(p.returncode for p in both) in ([0, 2], [0, 7]), 'status %s: %s' % ([p.returncode for p in both], said))
    case.check(gone(at), 'the folder stays')


SLOW = '''#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
int mkdir(const char *path, mode_t mode)
{
    int rc = ((int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir"))(path, mode);
    if (rc == 0)
        usleep(700000);
    return rc;
}
'''


def case_maker(case):
    """The one that makes the folder gets it, even if another comes before its next step."""
    slow, at = os.path.join(case.work, 'slow.so'), os.path.join(case.work, 'at')
    subprocess.run([os.environ.get('CC', 'cc'), '-shared', '-fPIC', '-xc', '-', '-o', slow, '-ldl'], input=SLOW, text=True, check=True)
    args = [case.bin + '/ckpt', 'mount', '-q', case.source('safetensors_dtypes'), at, '--to', 'safetensors']
    maker = subprocess.Popen(args, env=dict(os.environ, LD_PRELOAD=slow), stdout=subprocess.DEVNULL)
    while not os.path.lexists(at) and maker.poll() is None:
        time.sleep(0.01)
    other = subprocess.run(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    case.check(other.returncode in (2, 7) and os.path.ismount(at), 'the other: status %d' % other.returncode)
    maker.terminate()
    case.check(maker.wait(60) == 0 and gone(at), 'status %d, or the folder stays' % maker.returncode)


def case_daemon(case):
    """Returns when the files are there; ends when it is unmounted; a failure is the command's."""
    at = os.path.join(case.work, 'daemon')
    p = case.run('mount', '--daemon', case.source(LLAMA), at, '--to', 'hf')
    case.check(p.returncode == 0 and 'unmount it with fusermount3 -u' in p.stderr, 'status %d: %s' % (p.returncode, p.stderr))
    case.check('model.safetensors' in os.listdir(at), 'not there yet')
    subprocess.run(['fusermount3', '-u', at], check=True)
    case.check(gone(at), 'the folder stays')
    # what the caller holds open is not held for longer
    with open(os.path.join(case.work, 'lock'), 'w') as lock:
        subprocess.run([case.bin + '/ckpt', 'mount', '--daemon', '-q', case.source(ZERO), at, '--to', 'hf'], check=True, pass_fds=(lock.fileno(),))
        held = [name for pid in os.listdir('/proc') if pid.isdigit() and ours(pid, at) for name in open_files(pid)]
    case.check(held and not [x for x in held if x.endswith('/lock')], 'held: %s' % held)
    subprocess.run(['fusermount3', '-u', at], check=True)
    case.check(gone(at), 'the folder stays')
    # whose caller does not care for the ends of processes
    p = subprocess.run([case.bin + '/ckpt', 'mount', '--daemon', os.path.join(case.work, 'absent'), at, '--to', 'hf'], stderr=subprocess.DEVNULL,
                       preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    case.check(p.returncode == 5, 'status %d where ends are ignored' % p.returncode)
    # a source that is one of the caller's files
    with open(case.source('safetensors_dtypes')) as f:
        subprocess.run([case.bin + '/ckpt', 'mount', '--daemon', '-q', '/dev/fd/%d' % f.fileno(), at, '--to', 'safetensors'], check=True, pass_fds=(f.fileno(),))
    case.check(None not in chunks(os.path.join(at, 'model.safetensors')), 'a source by its descriptor')
    subprocess.run(['fusermount3', '-u', at], check=True)
    case.check(gone(at), 'the folder stays')
    for words, status in (([case.source(ZERO), at], 2), ([os.path.join(case.work, 'absent'), at, '--to', 'hf'], 5)):
        p = case.run('mount', '--daemon', *words)
        case.check(p.returncode == status and p.stderr, '%s: status %d: %s' % (words, p.returncode, p.stderr))
        case.check(not os.path.lexists(at), 'a folder was left')


def open_files(pid):
    """The names of what a process holds open; a file that it closes meanwhile, and all of one that ends, are left out."""
    names = []
    try:
        for fd in os.listdir('/proc/%s/fd' % pid):
            with contextlib.suppress(FileNotFoundError):
                names.append(os.readlink('/proc/%s/fd/%s' % (pid, fd)))
    except OSError:
        pass
    return names


def ours(pid, at):
    try:
        with open('/proc/%s/cmdline' % pid) as f:
            return at in f.read().split('\0')
    except OSError:
        return False


def case_log(case):
    """What a daemon says goes to the system's log, to its last word; tried where that has no socket of its own."""
    if os.getuid() != 0 or os.path.lexists('/dev/log'):
        return
    source = case.big()
    record = flip(next(os.path.join(source, x) for x in files_of(source) if 'rank_1_' in x and 'optim' in x))
    at, said = os.path.join(case.work, 'daemon'), []
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind('/dev/log')
    try:
        log.settimeout(20)
        p = case.run('mount', '--daemon', '-q', source, at, '--to', 'safetensors')
        case.check(p.returncode == 0, 'status %d: %s' % (p.returncode, p.stderr))
        case.check(None in chunks(os.path.join(at, 'model.safetensors')), 'nothing fails')
        subprocess.run(['fusermount3', '-u', at], check=True)
        while not said or 'reads failed' not in said[-1]:
            line = log.recv(8192).decode()
            if case.work in line:   # other tests mount on this machine, too
                said.append(line)
    except OSError as e:
        said.append(str(e))
    finally:
        os.remove('/dev/log')
        log.close()
    case.check(record in said[0] and 'reads failed' in said[-1] and all('ckpt[' in x for x in said), 'logged: %s' % said)
    case.check(gone(at), 'the folder stays')


# ---- doubts ----

def fails(path, at=0, n=1 << 20):
    """The errno of a read, or 0."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.pread(fd, n, at)
        return 0
    except OSError as e:
        return e.errno
    finally:
        os.close(fd)


def chunks(path):
    """The file in order, a MiB at a time: bytes, or None where it cannot be read."""
    fd, found = os.open(path, os.O_RDONLY), []
    for at in range(0, os.path.getsize(path), 1 << 20):
        try:
            found.append(os.pread(fd, 1 << 20, at))
        except OSError as e:
            found.append(None if e.errno == errno.EIO else e.errno)
    os.close(fd)
    return found


def flip(path):
    """One bit of the largest record of a torch archive; the record's name."""
    with zipfile.ZipFile(path) as z:
        info = max(z.infolist(), key=lambda i: i.file_size)
    with open(path, 'r+b') as f:
        f.seek(info.header_offset + 26)
        n, e = struct.unpack('<HH', f.read(4))
        at = info.header_offset + 30 + n + e + info.file_size // 2
        f.seek(at)
        b = f.read(1)
        f.seek(at)
        f.write(bytes([b[0] ^ 4]))
    return info.filename


def case_flipped_bit(case):
    """EIO, a line with file and record, and a status that is not 0; with --verify before the first byte."""
    source = case.big()
    shard = next(os.path.join(source, x) for x in files_of(source) if 'rank_1_' in x and 'optim' in x)
    with Mount(case, source, '-q', '--to', 'safetensors') as m:
        good = chunks(m.path('model.safetensors'))
    record = flip(shard)
    for words in ([], ['--verify']):
        with Mount(case, source, '-q', '--to', 'safetensors', *words) as m:
            found = chunks(m.path('model.safetensors'))
            # a read may end before a page that fails
            wrong = [(i << 20) + next(k for k, (a, b) in enumerate(zip(x, good[i])) if a != b)
                     for i, x in enumerate(found) if x is not None and not good[i].startswith(x)]
            case.check(None in found and (words or wrong), 'nothing fails' if None not in found else 'damage is not met before the record ends')
            case.check(not (words and wrong), '--verify gives damaged bytes out')
            # also what was given out before, and lay in the kernel's cache
            case.check(all(fails(m.path('model.safetensors'), at, 1) == errno.EIO for at in wrong), 'the damaged range can be read again')
            rc, text = m.end()
        case.check(rc == 3 and os.path.basename(shard) in text and record in text and 'reads failed' in text, 'status %d: %s' % (rc, text))


def case_damage_and_end(case):
    """Readers that do not give up, while it ends."""
    source = case.big()
    flip(next(os.path.join(source, x) for x in files_of(source) if 'rank_1_' in x and 'optim' in x))
    for _ in range(4 if case.all else 1):
        with Mount(case, source, '-q', '--to', 'safetensors') as m:
            script = ('import os, sys\nwhile True:\n fd = os.open(sys.argv[1], os.O_RDONLY)\n for at in range(0, 1 << 28, 1 << 20):\n'
                      '  try: os.pread(fd, 1 << 20, at)\n  except OSError: pass\n os.close(fd)\n')
            readers = [subprocess.Popen([sys.executable, '-c', script, m.path('model.safetensors')], stderr=subprocess.DEVNULL) for _ in range(4)]
            end = time.time() + 30
            while os.path.getsize(m.dir + '.err') == 0 and time.time() < end:
                time.sleep(0.05)
            rc, text = m.end()
            case.check(rc == 3, 'status %d: %s' % (rc, text))
            for p in readers:
                p.kill()
                p.wait(20)


def case_source_changes(case):
    """Never bytes of both."""
    source = case.model()
    with Mount(case, source, '-q', '--to', 'safetensors', '--name', 'x.safetensors', '--memory', '4MiB') as m:
        path = m.path('x.safetensors')
        case.check(fails(path, 0, 4096) == 0, 'cannot be read')
        time.sleep(0.02)
        with open(source, 'r+b') as f:
            f.seek(20 << 20)
            f.write(b'changed!')
        case.check(fails(path, 20 << 20, 4096) == errno.EIO, 'bytes of another time')
        rc, text = m.end()
    case.check(rc not in (0, None) and os.path.basename(source) in text, 'status %d: %s' % (rc, text))


def case_overflow(case):
    """Values that convert refuses are refused; what is beside them is read."""
    source = case.model(value=1e9)
    with Mount(case, source, '-q', '--to', 'safetensors', '--dtype', 'fp16') as m:
        size = os.path.getsize(m.path('model.safetensors'))
        case.check(fails(m.path('model.safetensors'), 4096, 4096) == 0, 'tensor a cannot be read')
        case.check(fails(m.path('model.safetensors'), size - 4096, 4096) == errno.EIO, 'infinite values are given out')
        rc, text = m.end()
    case.check(rc == 9 and '--allow-overflow' in text, 'status %d: %s' % (rc, text))
    with Mount(case, source, '-q', '--to', 'safetensors', '--dtype', 'fp16', '--allow-overflow') as m:
        case.check(fails(m.path('model.safetensors'), size - 4096, 4096) == 0, 'refused all the same')
        rc, text = m.end()
    case.check(rc == 0 and 'beyond the range' in text, 'status %d: %s' % (rc, text))


def case_copies(case):
    """16-bit copies of another save: a mount refuses to read their masters, and a stream to standard output ends as convert does."""
    source = case.copy('z0_fp16_w2_fused/ckpt')
    path = os.path.join(source, 'global_step5', 'mp_rank_00_model_states.pt')
    other = resave(path, source)
    with open(path, 'wb') as f:
        f.write(other)
    with Mount(case, source, '-q', '--to', 'safetensors') as m:
        case.check(fails(m.path('model.safetensors')) == errno.EIO, 'masters of another save are given out')
        case.check(fails(m.path('model.safetensors')) == errno.EIO, 'they are given out the second time')
        rc, text = m.end()
    case.check(rc == 5 and 'the F16 copy holds' in text, 'status %d: %s' % (rc, text))
    p = subprocess.run([case.bin + '/ckpt', 'convert', '-q', '--to', 'safetensors', source, '-'], stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, text=True)
    case.check(p.returncode == 5 and 'the F16 copy holds' in p.stderr, 'to standard output: status %d: %s' % (p.returncode, p.stderr))
    with Mount(case, source, '-q', '--ignore-copies', '--to', 'safetensors') as m:
        case.check(fails(m.path('model.safetensors')) == 0, 'refused though --ignore-copies is given')
        rc, text = m.end()
    case.check(rc == 0, 'status %d: %s' % (rc, text))


def case_address(case):
    """A model on another machine; when that goes away, reads fail and the end is still one."""
    source = case.model()
    env = {'CKPT_REMOTE_RETRIES': '1', 'CKPT_REMOTE_TIMEOUT': '5'}
    with open(source, 'rb') as f:
        server = Server({'/m.safetensors': f.read()})
    with server, Mount(case, server.url + '/m.safetensors', '-q', '--to', 'safetensors', '--memory', '4MiB', env=env) as m:
        case.check(m.mounted, 'is not mounted')
        with Mount(case, source, '-q', '--to', 'safetensors') as here:
            case.check(chunks(m.path('model.safetensors')) == chunks(here.path('model.safetensors')), 'other bytes')
        rc, text = m.end()
        case.check(rc == 0, 'status %d: %s' % (rc, text))
    with open(source, 'rb') as f:
        server = Server({'/m.safetensors': f.read()})
    with Mount(case, server.url + '/m.safetensors', '-q', '--to', 'safetensors', '--memory', '4MiB', env=env) as m:
        case.check(fails(m.path('model.safetensors'), 0, 4096) == 0, 'cannot be read')
        server.close()
        case.check(fails(m.path('model.safetensors'), 20 << 20, 4096) == errno.EIO, 'read from nobody')
        rc, text = m.end()
    case.check(rc == 7 and '/m.safetensors' in text, 'status %d: %s' % (rc, text))


# ---- refusals: nothing is mounted, nothing is left ----

def refused(case, status, text, *words, env=None):
    at = os.path.join(case.work, 'refused')
    p = subprocess.run([case.bin + '/ckpt', 'mount', *[at if w == '@' else w for w in words]], capture_output=True, text=True, cwd=case.work,
                       stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}, timeout=60)
    case.check(p.returncode == status and text in p.stderr, '%s: status %d: %s' % (' '.join(words), p.returncode, p.stderr))
    case.check(not os.path.lexists(at), '%s: left a folder' % ' '.join(words))


def always_refused(case):
    """What needs no file system."""
    source = case.source(ZERO)
    refused(case, 2, 'use --to FORMAT', source, '@')
    refused(case, 2, '--name is only for formats of one file', source, '@', '--to', 'hf', '--name', 'x')
    refused(case, 2, 'is not a file name', source, '@', '--to', 'torch', '--name', '../x')
    refused(case, 2, 'is not a file name', source, '@', '--to', 'torch', '--name', 'a' * 256)
    refused(case, 2, 'unknown option', source, '@', '--to', 'npz', '--compress')
    refused(case, 2, 'is not empty', source, case.source(ZERO), '--to', 'hf')
    refused(case, 2, 'is not a folder', source, case.model(1), '--to', 'hf')
    refused(case, 3, 'ckpt cannot mount', source, '@', '--to', 'hf', env={'CKPT_MOUNT_PLUGIN': '/nonexistent.so'})
    refused(case, 2, 'a local folder to mount on', source, '', '--to', 'hf')
    refused(case, 2, 'addresses can be read, not written', source, 'https://example.org/x', '--to', 'hf')
    refused(case, 7, 'cannot be made', source, os.path.join(case.work, 'no', 'such', 'place'), '--to', 'hf')


def case_refused(case):
    always_refused(case)
    source = case.source(ZERO)
    refused(case, 2, '--join does not apply to format hf', source, '@', '--to', 'hf', '--join')
    refused(case, 2, 'stage does not apply to format hf', source, '@', '--to', 'hf', '--stage', '2')
    refused(case, 2, 'layout does not apply', source, '@', '--to', 'zero', '--layout', 'torchtitan')
    refused(case, 9, '--strict', case.source(LLAMA), '@', '--to', 'hf', '--strict', '--size', 'heads=1')
    with open(os.path.join(case.fixtures, 'bad', 'manifest.json')) as f:
        bad = json.load(f)
    names = [b['path'] if isinstance(b, dict) else b for b in (bad['cases'])]
    n = 0
    for name in names[::1 if case.all else 12]:
        source = os.path.join(case.fixtures, 'bad', name)
        p = case.run('convert', source, os.path.join(case.work, 'o.safetensors'), '-q', '--to', 'safetensors', '-f')
        if p.returncode in (0, 2) or not os.path.exists(source):
            continue
        n += 1
        with Mount(case, source, '-q', '--to', 'safetensors') as m:
            # what convert finds in the data is found when they are read
            if m.mounted:
                case.check(fails(m.path('model.safetensors'), 0, 1 << 22) == errno.EIO, '%s: is read, though convert says: %s' % (name, p.stderr))
            rc, text = m.end()
            case.check(rc == p.returncode, '%s: status %d, convert %d: %s' % (name, rc, p.returncode, text))
    case.check(n > 3, 'only %d hostile sources' % n)


# ---- all ----

def usable(case):
    """None, or why no file system can be mounted here: the machine's reason, never a fault of ours."""
    with Mount(case, case.source(ZERO), '-q', '--to', 'hf') as m:
        rc, text = m.end()
    return text.strip() if rc and any(x in text for x in ('/dev/fuse: ', 'cannot be mounted: ', 'cannot be loaded: ')) else None


def clean_up(work):
    with open('/proc/self/mountinfo') as f:
        for at in [line.split()[4] for line in f if work in line]:
            subprocess.run(['fusermount3', '-uz', at])


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--gen', default='build/gen_zero')
    p.add_argument('--some', action='store_true')
    p.add_argument('--tmp')
    p.add_argument('fixtures')
    p.add_argument('cases', nargs='*')
    a = p.parse_args()
    cases = [n for n in globals() if n.startswith('case_') and (not a.cases or n[5:] in a.cases)]
    passed, failed = 0, 0
    with tempfile.TemporaryDirectory(dir=a.tmp) as work:
        why = usable(Case(a, work))
        if why:
            print('mount: nothing can be mounted here (%s): only refusals are tried' % why)
            cases = ['always_refused']
        for name in cases:
            case = Case(a, os.path.join(work, name))
            os.mkdir(case.work)
            try:
                globals()[name](case)
            except Exception:
                case.said.append(traceback.format_exc())
            clean_up(case.work)
            for text in case.said:
                print('FAIL %s: %s' % (name, text))
            passed, failed = passed + (not case.said), failed + bool(case.said)
    print('mount: %d passed, %d failed' % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
