#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a corpus of damaged and hostile files through the tools, and hold each verdict against its manifest.

  run_bad.py --bin build/bin FOLDER_WITH_MANIFEST [ID...]

A reject must end with an exit status of 3 to 6, one line on stderr, no output and no temporary file; an accept with every
tensor bit-equal.  Nothing may crash, run over the manifest's limits, or create a canary.  Kinds that are not handled yet must be refused cleanly.
"""
import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'golden'))
from readers import ST, read_safetensors

HANDLED = ('pt', 'legacy', 'zip', 'safetensors', 'npz', 'gguf', 'ds', 'hf', 'universal', 'dcp')


def restore_links(top):
    """A link that travelled as a small file holding its target (archives without links) becomes a link again."""
    for d, _, files in os.walk(top):
        for f in files:
            path = os.path.join(d, f)
            if not os.path.islink(path) and os.path.getsize(path) < 100:
                target = open(path, 'rb').read()
                if target.startswith(b'../../blobs/'):
                    os.unlink(path)
                    os.symlink(target.decode(), path)


def cpu_seconds():
    """What ended child processes have computed: unlike the clock it does not know what else runs."""
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def execute(bin_, case, root, tmp):
    out = os.path.join(tmp, 'out', 'model.safetensors')
    os.mkdir(os.path.dirname(out))
    canary = os.path.join(tmp, 'canary')
    os.mkdir(canary)
    work = os.path.join(tmp, 'work')
    os.mkdir(work)
    if case.get('op') == 'consolidate' and case['kind'] == 'ds':
        cmd = [os.path.join(bin_, 'zero_to_fp32'), root, out]
    elif case.get('op') == 'to_universal':
        cmd = [os.path.join(bin_, 'ckpt'), 'convert', '-q', '--to', 'universal', root, out]
    else:
        cmd = [os.path.join(bin_, 'ckpt'), 'convert', '-q', root, out]
    before = cpu_seconds()
    p = subprocess.run(cmd, capture_output=True, cwd=work, timeout=600, env=dict(os.environ, CKPT_CANARY_DIR=canary))
    left = [f for d in (os.path.dirname(out), canary, work) for f in os.listdir(d)]
    return p.returncode, p.stderr.decode('utf-8', 'replace'), cpu_seconds() - before, out, left


def check(case, result, limits, strict):
    rc, err, seconds, out, left = result
    lines = [x for x in err.split('\n') if x and ': warning: ' not in x and ': note: ' not in x]
    if rc < 0 or rc > 128:
        return 'killed by signal %d: %s' % (rc, err[-300:])
    if seconds > limits['seconds'] * (20 if strict else 1):
        return 'took %.1f s of a processor' % seconds
    if case['kind'] not in HANDLED:
        return None if 3 <= rc <= 6 and not left else 'exit %d, left %s' % (rc, left)
    if rc == 0:
        if case['expect'] == 'reject':
            return 'accepted'
        got, _ = read_safetensors(out)
        want = {k: (ST[v['dtype']][0], v['shape'], v['sha256']) for k, v in case['tensors'].items()}
        # frozen 16-bit parameters come as float32
        got = {k: tuple(v.narrowed(want[k][0]) if k in want else v) for k, v in got.items()}
        return None if got == want else 'tensors differ: %s, expected %s' % (got, want)
    if case['expect'] == 'accept':
        return 'exit %d: %s' % (rc, err.strip())
    if not 3 <= rc <= 6:
        return 'exit %d: %s' % (rc, err.strip())
    if left:
        return 'left behind: %s' % left
    return None if len(lines) == 1 else 'stderr has %d lines: %s' % (len(lines), err)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--slow', action='store_true', help='a sanitizer build: allow 20 times the time')
    p.add_argument('folder')
    p.add_argument('ids', nargs='*')
    a = p.parse_args()
    with open(os.path.join(a.folder, 'manifest.json')) as f:
        m = json.load(f)
    passed, failed, other = 0, 0, []
    for case in m['cases']:
        if a.ids and case['id'] not in a.ids:
            continue
        tmp = tempfile.mkdtemp()
        # a copy, so that a writer that strays would be seen: the case's own folder with its neighbours
        top = os.path.join(tmp, 'case')
        src = os.path.join(a.folder, case['path'])
        if os.path.isdir(src):
            shutil.copytree(src, top, symlinks=True)
        else:
            os.mkdir(top)
            shutil.copy(src, top)
        restore_links(top)
        root = os.path.join(top, case['root']) if 'root' in case else top if os.path.isdir(src) else \
            os.path.join(top, os.path.basename(src))
        before = sorted((d, tuple(sorted(f))) for d, _, f in os.walk(top))
        result = execute(os.path.abspath(a.bin), case, root, tmp)
        problem = check(case, result, m['limits'], a.slow)
        if not problem and sorted((d, tuple(sorted(f))) for d, _, f in os.walk(top)) != before:
            problem = 'the input folder changed'
        if problem:
            failed += 1
            print('FAIL %s (%s): %s' % (case['id'], case['what'], problem))
        else:
            passed += 1
            if case['kind'] in HANDLED and result[0] and result[0] != m['exit_by_class'].get(case['cls']):
                other.append('%s: exit %d, preferred %d: %s' % (case['id'], result[0], m['exit_by_class'][case['cls']],
                                                                result[1].strip()[-150:]))
        shutil.rmtree(tmp)
    for line in other:
        print('note', line)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    if peak > m['limits']['rss_mb'] and not a.slow:
        failed += 1
        print('FAIL a case used %d MiB, the limit is %d' % (peak, m['limits']['rss_mb']))
    print('bad files: %d passed, %d failed (peak %d MiB)' % (passed, failed, peak))
    sys.exit(1 if failed or not passed else 0)


main()
