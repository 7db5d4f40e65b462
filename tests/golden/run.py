#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden tests: every fixture converted by our tools equals its expected.json, tensor by tensor.

  run.py --bin build/bin FIXTURES_FOLDER [NAME...]

DeepSpeed fixtures (those with "weights"): zero_to_fp32 in both output formats, for every tag: same names in the same order,
shapes and SHA-256, all that floats in float32 (the values of frozen 16-bit parameters are compared in 16 bits);
`ckpt convert` with their own dtypes.  Plain files and folders ("files", "tensors"): `ckpt convert` to torch and safetensors.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from readers import ST, read_safetensors, read_torch

SKIP_KINDS = ('moe_', 'pipe', 'tp2_', 'autotp', 'dcp_', 'old_dcp', 'numpy', 'gguf', 'accel', 'fsdp', 'hf_trainer_fsdp', 'hsdp', 'lightning',
              'map_', 'mcore', 'mlegacy', 'peft', 'rl_', 'titan', 'npz')
# Frozen parameters of stage 1 that DeepSpeed's script leaves out; the shards have them, and so have our outputs.
LOST = {'k_frozen_z1': ('lm_head.weight', 'wpe.weight', 'wte.weight')}
passed, failed = 0, []


def run(*cmd):
    p = subprocess.run(cmd, capture_output=True, text=True, timeout=600)
    return p.returncode, p.stdout, p.stderr


def verdict(name, problem):
    global passed
    if problem:
        failed.append(name)
        print('FAIL %s: %s' % (name, problem))
    else:
        passed += 1


def dtype_name(text):
    """'torch.bfloat16' and 'BF16' alike."""
    return ST[text][0] if text in ST else text.replace('torch.', '')


def compare(got, want, order=True, widened=False):
    """None, or how they differ.  widened: 16-bit values that are wanted must be there as float32."""
    want = {k: (dtype_name(v['dtype']), list(v['shape']), v['sha256']) for k, v in want.items()}
    if widened:
        narrow = [k for k in want if k in got and got[k][0] in ('bfloat16', 'float16')]
        if narrow:
            return '%s: still %s' % (narrow[0], got[narrow[0]][0])
        got = {k: v.narrowed(want[k][0]) if k in want else v for k, v in got.items()}
    if set(got) != set(want):
        return 'names differ: missing %s, surplus %s' % (sorted(set(want) - set(got))[:4], sorted(set(got) - set(want))[:4])
    if order and list(got) != list(want):
        return 'order differs'
    for k, v in want.items():
        if tuple(got[k]) != v:
            return '%s: got %s, expected %s' % (k, got[k], v)
    return None


def with_ties(out, meta):
    """A safetensors file stores an owner once: give each recorded alias its owner's values."""
    for alias, owner in meta.items():
        if owner in out and alias not in out:
            out[alias] = out[owner]
    return out


def read_folder(folder):
    out, meta = {}, {}
    for f in sorted(os.listdir(folder)):
        path = os.path.join(folder, f)
        if f.endswith('.safetensors'):
            t, m = read_safetensors(path)
            out.update(t)
            meta.update(m)
        elif f.endswith('.bin'):
            out.update(read_torch(path))
    return with_ties(out, meta)


def allow_buffers(got, want, e):
    """What is to be compared: without LOST; weights of a live engine lack the buffers, which belong to the module."""
    got = {k: v for k, v in got.items() if k not in LOST.get(e.get('fixture'), ())}
    if not str(e.get('weights_source', '')).startswith('live engine'):
        return got
    buffers = e.get('buffers') or {}
    for k in set(got) - set(want):
        if k in buffers and (got[k][1] != list(buffers[k]['shape']) or
                             got[k][0] == buffers[k]['dtype'] and got[k][2] != buffers[k]['sha256']):
            return got
    ties = e.get('tied') or {}
    if any(got[k] != got.get(ties[k]) for k in ties if k in got):
        return got
    return {k: v for k, v in got.items() if k in want or (k not in buffers and k not in ties)}


def consolidate(bin_, name, ckpt, tag, want, e):
    for args, order in (([], True), (['--safe_serialization'], False), (['--max_shard_size', '2KB'], False),
                        (['--max_shard_size', '2KB', '--safe_serialization'], False)):
        with tempfile.TemporaryDirectory() as tmp:
            out = os.path.join(tmp, 'out')
            cmd = [os.path.join(bin_, 'zero_to_fp32'), ckpt, out] + args + (['-t', tag] if tag else [])
            rc, _, err = run(*cmd)
            label = '%s %s %s' % (name, tag or '', ' '.join(args))
            if rc:
                verdict(label, 'exit %d: %s' % (rc, err.strip()))
                continue
            verdict(label, compare(allow_buffers(read_folder(out), want, e), want, order, True))
    args = [] if not tag else ['-t', tag]
    convert(bin_, '%s %s' % (name, tag or ''), ckpt, want, (('hf', ''),), args, e)


def torch_tensors(node, path, out, seen):
    """Names of the tensors of a typed tree (expected.json), as the torch driver makes them."""
    if not isinstance(node, dict):
        return
    kind = node.get('t')
    if kind in ('tensor', 'parameter'):
        if node.get('meta') or node.get('layout', 'strided') != 'strided':
            return
        out['.'.join(path) or 'tensor'] = node
    elif kind in ('dict', 'OrderedDict', 'defaultdict'):
        for k, v in node['items']:
            key = k if isinstance(k, str) else str(k)
            torch_tensors(v, path + [key], out, seen)
    elif kind in ('list', 'tuple'):
        for i, v in enumerate(node['items']):
            torch_tensors(v, path + [str(i)], out, seen)


def named(want, out, err):
    """The tensors of `want` that a conversion writes: those of the model that it names, under PEFT's names those of an adapter."""
    model = re.search(r"the model is '([^']*)'", err)
    if model:
        return {k: v for k, v in want.items() if k.startswith(model.group(1) + '.')}
    if os.path.exists(os.path.join(out, 'adapter_config.json')):
        return {re.sub(r'\.default(?=\.weight$)', '', k): v for k, v in want.items()}
    return want


def convert(bin_, label, src, want, formats, args=(), e=None):
    # the recorded names are those of the file: with the words that wrappers add, and its dicts'
    keep = ['--keep-names'] if any('_orig_mod.' in k for k in want) or 'torch_objects' in label else []
    for fmt, suffix in formats:
        with tempfile.TemporaryDirectory() as tmp:
            out = os.path.join(tmp, 'out' + suffix)
            rc, _, err = run(os.path.join(bin_, 'ckpt'), 'convert', '-q', src, out, '--to', fmt, *keep, *args)
            if rc:
                verdict('%s to %s' % (label, fmt), 'exit %d: %s' % (rc, err.strip()))
                continue
            want = named(want, out, err)
            if fmt == 'torch':
                got = read_torch(out)
            elif fmt == 'safetensors':
                got = with_ties(*read_safetensors(out))
            else:
                got = read_folder(out)
            verdict('%s to %s' % (label, fmt), compare(allow_buffers(got, want, e or {}), want, False))


def plain_files(bin_, name, folder, files):
    for f, e in files.items():
        path = os.path.join(folder, f)
        if 'object' not in e or not os.path.exists(path):
            continue
        if '"quantized": true' in json.dumps(e['object']):
            rc, out, err = run(os.path.join(bin_, 'ckpt'), 'ls', path)
            verdict('%s/%s refused' % (name, f), None if rc == 3 and 'quantized' in err else 'exit %d: %s' % (rc, err))
            continue
        want = {}
        torch_tensors(e['object'], [], want, set())
        if not want:
            rc, out, err = run(os.path.join(bin_, 'ckpt'), 'tree', path)
            verdict('%s/%s tree' % (name, f), None if rc == 0 else 'exit %d: %s' % (rc, err.strip()))
            continue
        rc, out, err = run(os.path.join(bin_, 'ckpt'), 'ls', '-q', path)
        got = out.split('\n')[:-1]
        missing = [k for k in want if k not in got and '\n' not in k]
        verdict('%s/%s ls' % (name, f), 'exit %d: %s' % (rc, err) if rc else
                ('not listed: %s' % missing[:4] if missing else None))
        extra = set(got) - set(want)
        if extra:  # what torch keeps inside objects that the typed view does not show
            for k in extra:
                print('note %s/%s: also lists %s' % (name, f, k))
            continue
        convert(bin_, '%s/%s' % (name, f), path, want, [('torch', '.pt')])


def fixture(bin_, name, folder):
    with open(os.path.join(folder, 'expected.json')) as f:
        e = json.load(f)
    if 'weights' in e:
        ckpt = os.path.join(folder, e.get('checkpoint') or 'ckpt')
        consolidate(bin_, name, ckpt, None if e.get('tag') == e.get('latest') else e['tag'], e['weights'], e)
        for tag, t in (e.get('other_tags') or {}).items():
            if 'weights' in t:
                consolidate(bin_, name, ckpt, tag, t['weights'], t)
    elif 'files' in e:
        plain_files(bin_, name, folder, e['files'])
    elif 'tensors' in e:
        src = os.path.join(folder, 'ckpt') if os.path.isdir(os.path.join(folder, 'ckpt')) else folder
        one = [f for f in os.listdir(src) if f.endswith(('.safetensors', '.bin', '.pt'))]
        if name.startswith('safetensors'):
            src = os.path.join(src, one[0])
        want = {k: v for k, v in e['tensors'].items() if k not in (e.get('tied') or {})}  # aliases are not stored
        convert(bin_, name, src, want, [('torch', '.pt'), ('safetensors', '.safetensors'), ('hf', ''),
                                                 ('hf-bin', '')])


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('folder')
    p.add_argument('names', nargs='*')
    a = p.parse_args()
    for name in sorted(os.listdir(a.folder)):
        folder = os.path.join(a.folder, name)
        if a.names and name not in a.names or name.startswith(SKIP_KINDS):
            continue
        if os.path.exists(os.path.join(folder, 'expected.json')):
            fixture(a.bin, name, folder)
    print('golden: %d passed, %d failed' % (passed, len(failed)))
    sys.exit(1 if failed or not passed else 0)


if __name__ == '__main__':
    main()
