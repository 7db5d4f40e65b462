#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of Megatron-LM: every tensor against what was recorded of the live objects before they were saved.

    megatron.py --bin build/bin FIXTURES [--some]

Each run goes to safetensors: weights under Megatron-Core's names, with the optimizer fp32 masters in their place and moments as
"<moment>/<weight>"; it becomes a ZeRO checkpoint of other worlds and stages, and a distributed checkpoint of PyTorch, which
must hold the same.  The run's folder, its tags and its iteration's folder are one checkpoint.  --some: one world and stage.
"""
import argparse
import glob
import hashlib
import json
import os
import re
import struct
import sys
import tempfile

import dcp
from readers import read_safetensors

MASTERS = ('param', 'fp32_param')


def state(e):
    """Optimizer state by the names that it has here; a master stands for its weight."""
    out = {}
    for name, t in e['optimizer_state'].items():
        kind, of = name[len('optimizer.state.'):].split('.', 1)
        out[of if kind in MASTERS else '%s/%s' % (kind, of)] = t
    return out


def tensors(ckpt, source, out, *more):
    problem = dcp.run(ckpt, 'convert', '-q', '--force', *more, source, out)
    return problem, {} if problem else {k: tuple(v) for k, v in read_safetensors(out)[0].items()}


def steps(e):
    """The step count of every weight that has moments, as torch's optimizers keep it."""
    raw = struct.pack('<f', e['iteration'])
    of = {name.split('/', 1)[1] for name in state(e) if '/' in name}
    return {'step/' + n: {'dtype': 'float32', 'shape': [], 'sha256': hashlib.sha256(raw).hexdigest()} for n in of}


def exact(got, want):
    return dcp.same(got, want) or ('' if len(got) == len(want) else '%d tensors, expected %d' % (len(got), len(want)))


def names(ckpt, run, iteration):
    """The run by its tracker, by tags, and its iteration by itself: one and the same.  NeMo 2 has no tracker."""
    if os.path.isdir(os.path.join(run, 'weights')):
        return dcp.run(ckpt, 'diff', '-q', '--with-optimizer', run, os.path.join(run, 'weights'))
    first = os.path.join(run, 'iter_%07d' % iteration)
    for tag in (str(iteration), os.path.basename(first)):
        problem = dcp.run(ckpt, 'ls', '--tag', tag, run)
        if problem:
            return problem
    return dcp.run(ckpt, 'diff', '-q', '--with-optimizer', run, first)


def written(ckpt, source, tmp):
    """A distributed checkpoint of three ranks holds the same; it lists tensors that stand inside the values of the run, too."""
    out, a, b = (os.path.join(tmp, n) for n in ('dcp', 'a.safetensors', 'b.safetensors'))
    problem = dcp.run(ckpt, 'reshard', '-q', '--to', 'dcp', '--world', '3', '--to-tag', 'x', source, out)
    if problem:
        return problem
    (p, had), (q, got) = tensors(ckpt, source, a, '--with-optimizer'), tensors(ckpt, os.path.join(out, 'x'), b, '--with-optimizer')
    lost = [n for n in had if n not in got or got[n] != had[n]]
    return p or q or ('%s differ' % lost[:3] if lost else '')


def dist(ckpt, name, e, source, some):
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, 'o.safetensors')
        problem, got = tensors(ckpt, source, out)
        dcp.verdict(name + ' weights', problem or exact(got, e['weights']))
        problem, got = tensors(ckpt, source, out, '--with-optimizer')
        dcp.verdict(name + ' state', problem or exact(got, dict(e['weights'], **state(e), **steps(e))))
        dcp.verdict(name + ' ZeRO', dcp.reshard(ckpt, source, tmp, dcp.GRID[2:3] if some else dcp.GRID))
        dcp.verdict(name + ' DCP', written(ckpt, source, tmp))
        dcp.verdict(name + ' verify', dcp.run(ckpt, 'verify', '-q', source))
        dcp.verdict(name + ' names', names(ckpt, source, e['iteration']))


# torch_dist names norms as Transformer Engine's fused modules do
FUSED = (('.input_layernorm.', '.self_attention.linear_qkv.layer_norm_'), ('.pre_mlp_layernorm.', '.mlp.linear_fc1.layer_norm_'))


def stacked(got):
    """Tensors of numbered layers, and of numbered experts in them, as torch_dist stacks them."""
    layers = {}
    for name, t in got.items():
        kind, of = name.rsplit('/', 1) if '/' in name else ('', name)
        numbers = [int(n) for n in re.findall(r'\.(?:layers|local_experts)\.(\d+)\.', of)]
        of = re.sub(r'(\.layers)\.\d+\.', r'\1.', of)
        of = re.sub(r'\.local_experts\.\d+\.', '.experts.', of)
        for a, b in FUSED:
            of = of.replace(a, b)
        layers.setdefault((kind + '/' if kind else '') + of, []).append((numbers, t))
    out = {}
    for name, parts in layers.items():
        parts.sort(key=lambda p: p[0])
        dtype, shape, _ = parts[0][1]
        raw = b''.join(t.raw for _, t in parts)
        out[name] = (dtype, [n + 1 for n in parts[-1][0]] + list(shape), hashlib.sha256(raw).hexdigest())
    return out


def legacy(ckpt, name, e, source, some):
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, 'o.safetensors')
        problem = dcp.run(ckpt, 'convert', '-q', '--force', source, out)
        dcp.verdict(name + ' weights', problem or exact(stacked(read_safetensors(out)[0]), e['weights']))
        problem = dcp.run(ckpt, 'convert', '-q', '--force', '--with-optimizer', source, out)
        got = {} if problem else {k: t for k, t in read_safetensors(out)[0].items() if not k.startswith('step/')}
        dcp.verdict(name + ' state', problem or exact(stacked(got), dict(e['weights'], **state(e))))
        dcp.verdict(name + ' ZeRO', dcp.reshard(ckpt, source, tmp, dcp.GRID[2:3] if some else dcp.GRID))
        dcp.verdict(name + ' DCP', written(ckpt, source, tmp))
        dcp.verdict(name + ' verify', dcp.run(ckpt, 'verify', '-q', source))
        dcp.verdict(name + ' names', names(ckpt, source, e['iteration']))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('--some', action='store_true')
    p.add_argument('fixtures')
    a = p.parse_args()
    ckpt = os.path.join(a.bin, 'ckpt')
    for path in sorted(glob.glob(os.path.join(a.fixtures, 'mcore_*', 'expected.json'))):
        folder = os.path.dirname(path)
        dist(ckpt, os.path.basename(folder), json.load(open(path)), os.path.join(folder, 'ckpt'), a.some)
    for path in sorted(glob.glob(os.path.join(a.fixtures, 'mlegacy_*', 'expected.json'))):
        folder = os.path.dirname(path)
        legacy(ckpt, os.path.basename(folder), json.load(open(path)), os.path.join(folder, 'ckpt'), a.some)
    print('megatron: %d passed, %d failed' % (dcp.passed, len(dcp.failed)))
    return 1 if dcp.failed else 0


if __name__ == '__main__':
    sys.exit(main())
