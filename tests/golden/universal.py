#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Universal checkpoints: ours against DeepSpeed's, value by value, and both against the checkpoints they were made from.

    universal.py --bin build/bin --map GOLDEN_MAP FIXTURES [NAME...]

Every ZeRO fixture is converted by ds_to_universal, and the map that is read from the result must be the checkpoint's own.
Where the fixture holds the folder that DeepSpeed's converter made, that folder must read the same too, and every file of ours
must hold the tensor that expected.json lists for theirs (stage 3 keeps its tensors flat there; ours have their shapes).
With round_robin_gradients the converter of DeepSpeed is wrong: ours is compared with what the engine held.
Needs Python only; exit status 1 on any difference.
"""
import argparse
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

from readers import Inert, sha

KINDS = ('fp32', 'exp_avg', 'exp_avg_sq')
PREFIXES = ('z0_', 'z1_', 'z2_', 'z3_', 'uni_', 'old0', 'hf_trainer_', 'tp2_z1', 'autotp2_z1', 'pipe2_')
# Masters of 16 bits become F32, which is what every release reads; values are equal, bytes are not.
WIDER = ('z2_bf16_w2_lpmaster', 'z2_fp16_w2_fp16master')


class Data:
    """One torch file: its tree, and the bytes of its tensors."""

    def __init__(self, path):
        self.z = zipfile.ZipFile(path)
        assert self.z.testzip() is None, path
        self.names = {i.filename.split('/', 1)[1]: i.filename for i in self.z.infolist()}
        self.root = Inert(io.BytesIO(self.z.read(self.names['data.pkl']))).load()

    def tensor(self, t):
        """(shape, bytes) of a contiguous F32 tensor."""
        (_, pid), offset, shape, stride = t.args[:4]
        assert pid[1].name.endswith('FloatStorage'), pid[1].name
        n = 1
        for size, step in reversed(list(zip(shape, stride))):
            assert size <= 1 or step == n, 'not contiguous'
            n *= size
        return list(shape), self.z.read(self.names['data/' + pid[2]])[offset * 4:(offset + n) * 4]


def read_map(golden, path):
    """Lines of golden_map, by name; the tensors' names in order."""
    p = subprocess.run([golden, '-o', path], capture_output=True, text=True, check=False)
    if p.returncode:
        return None, p.stderr.strip() or p.stdout[-300:]
    lines = [x.split('\t', 5) for x in p.stdout.splitlines() if not x.startswith('#')]
    return {x[5]: tuple(x[:5]) for x in lines}, [x[5] for x in lines]


def difference(a, b):
    for name in list(a) + list(b):
        if a.get(name) != b.get(name):
            return '%s: %s, expected %s' % (name, a.get(name), b.get(name))
    return None


def check_file(folder, name, kind, want, keys, flat):
    """One file of ours against the record of DeepSpeed's."""
    path = os.path.join(folder, 'zero', name, kind + '.pt')
    if not os.path.isfile(path):
        return '%s is missing' % path
    data = Data(path)
    if set(data.root) != set(keys) and not (flat or set(data.root) == set(keys) - {'cat_dim'}):
        return '%s/%s: keys %s, expected %s' % (name, kind, sorted(data.root), sorted(keys))
    shape, got = data.tensor(data.root['param'])
    numel = 1
    for size in shape:
        numel *= size
    if (shape != want['shape'] and not (flat and [numel] == want['shape'])) or sha(got) != want['sha256']:
        return '%s/%s: shape %s and hash differ from %s' % (name, kind, shape, want)
    return None


def check_theirs(folder, e, bad):
    """Our files beside the table of those that DeepSpeed wrote."""
    files, n = e['universal']['files'], 0
    for name, of in files.items():
        if 'exp_avg' not in of:
            continue   # a copy of a buffer or a tied name, by way of float32: ours are in the model file
        for kind in KINDS:
            text = check_file(folder, name, kind, of[kind], of[kind + '_keys'] or ['param'], of[kind + '_keys'] is None)
            n += 1
            if text:
                bad.append(text)
        if 'step' in of:
            data = Data(os.path.join(folder, 'zero', name, 'step.pt'))
            step = data.root if isinstance(data.root, (int, float)) else struct.unpack('<f', data.tensor(data.root)[1])[0]
            if step != of['step']:
                bad.append('%s: step %s, expected %s' % (name, step, of['step']))
    ours = {d for d in os.listdir(os.path.join(folder, 'zero')) if os.path.exists(os.path.join(folder, 'zero', d, 'exp_avg.pt'))}
    theirs = {name for name, of in files.items() if 'exp_avg' in of}
    if ours != theirs:
        bad.append('parameters differ: %s' % sorted(ours ^ theirs))
    return n


def check_engine(found, e, bad):
    """What the engine held, for the fixture whose own converted form would be wrong."""
    for name, rec in e['weights'].items():
        if rec['dtype'] == 'float32' and found[name][0] != rec['sha256']:
            bad.append('%s is not what the engine held' % name)
    for kind, of in e['optimizer']['state'].items():
        for name, rec in of.items():
            if found['%s/%s' % (kind, name)][0] != rec['sha256']:
                bad.append('%s/%s is not what the engine held' % (kind, name))


def check_fixture(args, root, name):
    """What is wrong with one fixture, as texts, and how many files were compared one by one."""
    path, bad, n = os.path.join(root, name), [], 0
    with open(os.path.join(path, 'expected.json'), encoding='utf-8') as f:
        e = json.load(f)
    source = os.path.join(path, e['checkpoint'])
    with open(os.path.join(source, 'latest'), encoding='utf-8') as f:
        tag = f.read().strip()
    want, order = read_map(args.map, source)
    if want is None:
        return ['the checkpoint itself is not read: ' + order], 0
    with tempfile.TemporaryDirectory() as out:
        run = subprocess.run([os.path.join(args.bin, 'ds_to_universal'), '--input_folder', os.path.join(source, tag),
                              '--output_folder', os.path.join(out, 'uni') + '/', '--keep_objects'], capture_output=True, text=True)
        if run.returncode:
            return ['ds_to_universal: ' + run.stderr.strip()[-300:]], 0
        if not run.stdout.endswith('*** Done!\n'):
            bad.append('the script\'s last line is missing')
        with open(os.path.join(out, 'latest_universal'), encoding='utf-8') as f:
            if f.read() != 'uni':
                bad.append('latest_universal does not name the folder')
        found, _ = read_map(args.map, out)
        if found is None:
            return bad + ['not read back'], 0
        text = None if name in WIDER and set(found) == set(want) else difference(found, want)
        if text:
            bad.append('ours: ' + text)
        if e.get('universal') and os.path.isdir(os.path.join(path, 'universal')):
            theirs, at = read_map(args.map, os.path.join(path, 'universal'))
            text = difference(theirs, want) if theirs else at
            if text:
                bad.append('DeepSpeed\'s: ' + text)
            n = check_theirs(os.path.join(out, 'uni'), e, bad)
        if 'roundrobin' in name:
            check_engine(found, e, bad)
    return bad, n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('--map', required=True)
    parser.add_argument('fixtures')
    parser.add_argument('names', nargs='*')
    args = parser.parse_args()
    done = failed = files = 0
    for name in sorted(os.listdir(args.fixtures)):
        path = os.path.join(args.fixtures, name, 'expected.json')
        if not name.startswith(PREFIXES) or 'fsdp' in name or not os.path.exists(path) or (args.names and name not in args.names):
            continue
        bad, n = check_fixture(args, args.fixtures, name)
        done += 1
        files += n
        failed += bool(bad)
        for text in bad[:4]:
            print('FAILED %s: %s' % (name, text), flush=True)
    print('universal: %d files beside DeepSpeed\'s own; there and back: %d passed, %d failed' % (files, done - failed, failed))
    sys.exit(1 if failed or not done else 0)


if __name__ == '__main__':
    main()
