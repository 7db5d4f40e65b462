#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every checkpoint that a conversion makes of another equals it under `ckpt diff`, and one changed element is found and named.

    diff.py [--some] [--tmp FOLDER] --bin build/bin FIXTURES [NAME...]

From each source, in all formats that `ckpt formats` lists: every target that convert and reshard write.  The source and its
targets, in pairs, are equal, or differ by a remainder that LEFT names.  Then a bit of an element in the middle of a tensor changes,
with the checksums: the comparison with the source names the tensor.  --some: a few sources, each target beside its source only.
"""
import argparse
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from turns import mine  # noqa: E402

# a source, other checkpoints of the same model in its folder, and options that a conversion needs
SOURCES = [
    ('map_meta_s1', 'hf', ['meta'], []),
    ('map_meta_llama2_s2', 'hf', ['meta'], []),
    ('map_mcore_gpt2', 'hf', ['megatron.safetensors'], []),
    ('map_mcore_mixtral', 'hf', ['megatron.safetensors'], []),
    ('map_qwen3moe_experts', 'hf', ['stacked.safetensors'], []),
    ('gguf_llama_deep', 'hf', [], []),
    ('gguf_llama_deep', 'Q4_0.gguf', [], []),
    ('gguf_mixtral', 'hf', [], []),
    ('gguf_bert', 'hf', [], []),
    ('hf_bert_sharded', '', [], []),
    ('old_hf_bert_bin', '', [], []),
    ('hub_olmoe', 'run', [], []),
    ('mcore_llama_distopt_dp2', 'ckpt', [], ['--size', 'rms_norm_eps=1e-5']),
    ('mlegacy_gpt2_tp2_pp2', 'ckpt', [], ['--size', 'activation_function=gelu', '--size', 'layer_norm_epsilon=1e-5']),
    ('titan_llama3_fused_w3', 'ckpt', [], []),
    ('fsdp2_mp_w2', 'ckpt', [], []),
    ('rl_verl_fsdp1_w2', 'ckpt', [], []),
    ('hf_trainer_fsdp1_full_w2', 'ckpt', [], []),
    ('hf_trainer_llama_z3_bf16_w2', 'ckpt', [], []),
    ('lightning_mp_w2', 'ckpt', [], []),
    ('z3_bf16_w5_odd', 'ckpt', [], []),
    ('z1_bf16_w3_groups', 'ckpt', [], []),
    ('tp2_pp2_z1_w4', 'ckpt', [], []),
    ('moe_ep2_z2_w2', 'ckpt', [], []),
    ('k_lora_z3', 'ckpt', [], []),
    ('dcp_mesh2d_w4', 'ckpt', [], []),
    ('dcp_hf_sharded_w2', 'ckpt', [], []),
    ('old_dcp_torch20_w2', 'ckpt', [], []),
    ('safetensors_dtypes', 'model.safetensors', [], []),
    ('torch_dtypes', 'zip.pt', [], []),
    ('torch_dtypes', 'legacy.pt', [], []),
    ('numpy_npz', 'plain.npz', [], []),
]
SOME = ('map_meta_s1', 'map_mcore_mixtral', 'z1_bf16_w3_groups')

# formats, names of outputs, and whether they have training state
TARGETS = [('safetensors', 'o.safetensors', False), ('torch', 'o.pt', False), ('npz', 'o.npz', False), ('gguf', 'o.gguf', False),
           ('hf', 'hf', False), ('hf-bin', 'hf-bin', False), ('hf-sharded', 'hf-sharded', False), ('consolidated', 'consolidated', False),
           ('dcp', 'dcp', True), ('fsdp-ranks', 'fsdp-ranks', True), ('universal', 'universal', True), ('zero', 'zero', True)]
TRAINING = {name for _, name, training in TARGETS if training}

# read by other tests: no fixture of it is this small
ELSEWHERE = {'gguf-split'}
passed, failed, formats = 0, [], set()


def verdict(what, problem):
    global passed
    if problem:
        failed.append(what)
        print('FAIL %s: %s' % (what, problem))
    else:
        passed += 1


class Work:
    def __init__(self, ckpt, folder):
        self.ckpt, self.folder, self.resharded = ckpt, folder, set()  # targets with the training state of the source

    def run(self, *words):
        p = subprocess.run([self.ckpt, *words], capture_output=True, check=False)
        return p.returncode, p.stdout, p.stderr.decode(errors='replace')

    def targets(self, source, options):
        """Name -> path, of each target that can be written."""
        made, trained = {}, b'"role": "state"' in self.run('ls', '-a', '--json', source)[1]
        for form, name, training in TARGETS:
            out = os.path.join(self.folder, name)
            ways = [['reshard', '-w', '2'] + (['-s', '2'] if form == 'zero' else [])] if training else []
            for words in ways + [['convert', '--allow-overflow', *options]]:
                to = ['--to', form] if form != 'zero' else []
                if self.run(*words, '-q', '--no-fsync', *to, source, out)[0] == 0:
                    # a folder of one tag
                    inside = os.listdir(out) if form in ('dcp', 'fsdp-ranks') else []
                    made[name] = os.path.join(out, inside[0]) if len(inside) == 1 else out
                    self.resharded |= {name} if trained and words[0] == 'reshard' else set()
                    break
        return made

    def differences(self, a, b, *options):
        """Status, and a list of (what, name); with a text for other failures."""
        status, out, err = self.run('diff', '--json', *options, a, b)
        try:
            found = json.loads(out)
        except ValueError:
            return status, err[-500:]
        if 'differences' not in found:
            return status, err[-500:]
        return status, [(d['what'], d['name']) for d in found['differences']]


# What a target cannot hold: source, target, the differences, why.
LEFT = [
    ('gguf_bert/hf', r'o\.gguf', r'only in . pooler\.dense\.(weight|bias)', 'llama.cpp computes no pooled output'),
    ('(hf_bert_sharded|old_hf_bert_bin)/', r'o\.gguf', r'only in . (cls\..*|embeddings\.position_ids)', "llama.cpp's BERT has no head"),
    ('map_meta_s1/hf', 'meta', r'only in . rope\.freqs', 'it is computed, and ckpt does not write it'),
]

# 16-bit weights beside masters, which training formats keep: these are compared after rounding
MASTERS = {'mcore_llama_distopt_dp2/ckpt': 'bf16', 'mlegacy_gpt2_tp2_pp2/ckpt': 'bf16'}


def left(source, pair, found):
    """True if the differences are a known remainder."""
    for where, target, what, _ in LEFT:
        if re.fullmatch(where, source) and any(re.fullmatch(target, x) for x in pair) and \
                all(re.fullmatch(what, '%s %s' % d) for d in found):
            return True
    return False


def rounded(work, name, path, dtype):
    """The weights of a training format in the dtype of the source."""
    out = os.path.join(work.folder, 'rounded-%s.safetensors' % name)
    work.run('convert', '-q', '--no-fsync', '--dtype', dtype, path, out)
    return out


def compare(work, name, all_of, pairs, config):
    for a, b in pairs:
        loose = ['--ignore-dtype'] if {a, b} & (TRAINING | {'source'}) else []
        # neither side may have the sizes
        loose += ['--config', config] if config else []
        loose += ['--with-optimizer'] if {a, b} <= work.resharded else []
        left_of, right_of = all_of[a], all_of[b]
        if name in MASTERS and (a in TRAINING) != (b in TRAINING):
            left_of = rounded(work, a, left_of, MASTERS[name]) if a in TRAINING else left_of
            right_of = rounded(work, b, right_of, MASTERS[name]) if b in TRAINING else right_of
        status, found = work.differences(left_of, right_of, *loose)
        known = isinstance(found, list) and found and left(name, (a, b), found)
        verdict('%s: %s and %s' % (name, a, b), None if status == 0 or known else 'status %d: %s' % (status, found[:6] if isinstance(found, list) else found))


# ---- changed elements ----

def records(data):
    """The zip records of a file, also of several archives in it: (start, end, places of the CRC)."""
    out, heads = [], {}
    at = data.find(b'PK\3\4')
    while at >= 0:
        n, extra = (int.from_bytes(data[at + k:at + k + 2], 'little') for k in (26, 28))
        heads.setdefault(bytes(data[at + 30:at + 30 + n]), []).append((at, at + 30 + n + extra))
        at = data.find(b'PK\3\4', at + 4)
    at = data.find(b'PK\1\2')
    while at >= 0:
        size, n = int.from_bytes(data[at + 20:at + 24], 'little'), int.from_bytes(data[at + 28:at + 30], 'little')
        local = [h for h in heads.get(bytes(data[at + 46:at + 46 + n]), []) if h[0] < at]
        if local:
            head, start = local[-1]
            crc, places = data[at + 16:at + 20], [at + 16]
            places += [p for p in (head + 14, start + size, start + size + 4) if data[p:p + 4] == crc]
            out.append((start, start + size, places))
        at = data.find(b'PK\1\2', at + 4)
    return out


def files_of(path):
    if os.path.isfile(path):
        return [path]
    return [os.path.join(at, f) for at, _, names in os.walk(path) for f in sorted(names)]


def flip(path, window, byte):
    """Change a bit where the window's bytes are, in each copy of the tensor, and the checksums; whether there is one."""
    found = False
    for f in files_of(path):
        with open(f, 'rb') as file:
            data = bytearray(file.read())
        places, at = [], data.find(window)
        while at >= 0:
            places.append(at)
            at = data.find(window, at + 1)
        for at in places:
            data[at + byte] ^= 1
        for start, end, crcs in records(data) if places else ():
            if any(start <= at < end for at in places):
                for p in crcs:
                    data[p:p + 4] = zlib.crc32(data[start:end]).to_bytes(4, 'little')
        if places:
            found = True
            with open(f, 'wb') as file:
                file.write(data)
    return found


def change(work, path, to, choose):
    """A copy of a checkpoint with one changed element; the tensor's name, or None."""
    status, out, _ = work.run('ls', '--json', path)
    listed = json.loads(out) if status == 0 else {'tensors': []}
    formats.add(listed.get('format'))
    tensors = listed['tensors']
    tensors = [t for t in tensors if t['elements'] > 8 and t['bytes'] * 8 >= t['elements'] and not t['owner']
               and t['dtype'][0] in 'FBIUQ' and t['dtype'] != 'BOOL']
    choose.shuffle(tensors)
    for t in tensors:
        status, raw, _ = work.run('cat', '--raw', '-a', path, t['name'])
        if status != 0 or len(raw) != t['bytes']:
            continue
        width = max(1, len(raw) // t['elements'])
        at = len(raw) // 2 // width * width
        for n in (32, 16, 8):
            window = raw[at:at + n]
            if len(set(window)) < 4:
                continue
            shutil.rmtree(to, ignore_errors=True)
            if os.path.isfile(path):
                os.makedirs(to)
                copy = os.path.join(to, os.path.basename(path))
                shutil.copyfile(path, copy)
            else:
                copy = to
                shutil.copytree(path, to, copy_function=shutil.copyfile)
            if flip(copy, window, 0):
                return copy, t['name']
    return None, None


def changes(work, name, all_of):
    for target, path in all_of.items():
        copy, tensor = change(work, path, os.path.join(work.folder, 'changed'), random.Random(name + target))
        if not copy:
            verdict('%s: a changed element of %s' % (name, target), 'none can be changed')
            continue
        status, found = work.differences(copy, path)
        # the prefix of a wrapper is removed
        named = tensor in found if isinstance(found, str) else any(tensor.endswith(n) for _, n in found)
        problem = None if status not in (0, 2) and named else 'status %d: %s, changed %s' % (status, found, tensor)
        verdict('%s: a changed element of %s' % (name, target), problem)
        if target == 'source' or isinstance(found, str) or (name in MASTERS and target in TRAINING):
            continue
        # beside the source under its layout's name
        status, more = work.differences(copy, all_of['source'], '--ignore-dtype')
        before = work.differences(path, all_of['source'], '--ignore-dtype')[1]
        new = [d for d in more if d not in before] if isinstance(more, list) else more
        verdict('%s: a changed element of %s beside the source' % (name, target),
                None if status == 1 and new else 'status %d: %s, changed %s' % (status, more, tensor))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--some', action='store_true')
    p.add_argument('--tmp')
    p.add_argument('fixtures')
    p.add_argument('names', nargs='*')
    a = p.parse_args()
    ckpt = os.path.join(os.path.abspath(a.bin), 'ckpt')
    for fixture, inside, brothers, options in mine(SOURCES) if not (a.some or a.names) else SOURCES:
        if (a.names and fixture not in a.names) or (a.some and fixture not in SOME):
            continue
        folder = os.path.join(a.fixtures, fixture)
        name = os.path.join(fixture, inside)
        with tempfile.TemporaryDirectory(dir=a.tmp) as tmp:
            work = Work(ckpt, tmp)
            all_of = {'source': os.path.join(folder, inside)}
            all_of.update({b: os.path.join(folder, b) for b in brothers})
            all_of.update(work.targets(all_of['source'], options))
            if len(all_of) < 2:
                verdict(name, 'no target can be written')
            pairs = itertools.combinations(all_of, 2)
            config = os.path.join(folder, inside, 'config.json')
            compare(work, name, all_of, [x for x in pairs if not a.some or 'source' in x], config if brothers else None)
            for brother in brothers:
                del all_of[brother]
            changes(work, name, all_of)
    if not (a.some or a.names or os.environ.get('CKPT_TURN')):
        lines = subprocess.run([ckpt, 'formats', '--json'], capture_output=True, check=True).stdout
        want = {f['name'] for f in json.loads(lines)['formats'] if f['read']} - ELSEWHERE
        verdict('formats', 'none is read as %s' % sorted(want - formats) if want - formats else None)
    print('diff: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
