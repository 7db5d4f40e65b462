#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch takes the sharded safetensors that we write: HuggingFaceStorageReader and consolidate_safetensors_files.

    hf_sharded.py --bin build/bin FIXTURES

Weights of runs and of models go to files of 1, 2, 3 and 5 ranks, which ckpt must read as it reads the source.  dcp.load fills a
plain dict with them, and in two processes (gloo) a module that fully_shard cut otherwise; consolidation makes whole files of them.
All must hold the values of the source, bit for bit.  And what torch itself saves of such a module, ckpt writes again of what it
reads: files of the same names, with the same pieces, but for those without elements.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import warnings

import ranks
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import _TYPES, load_file
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

warnings.simplefilter('ignore')
SOURCES = ('z1_bf16_w3_groups/ckpt', 'z2_bf16_w2_emptyparam/ckpt', 'hf_trainer_llama_z3_bf16_w2/ckpt', 'fsdp2_mp_w2/ckpt',
           'dcp_mesh2d_w4/ckpt', 'dcp_hf_sharded_w2/ckpt', 'rl_verl_fsdp1_w2/ckpt', 'hf_bert_sharded',
           'safetensors_dtypes/model.safetensors', 'made.safetensors')
WORLDS = (1, 2, 3, 5)
TAKEN, LOADERS = 3, 2  # ranks of the folder that is loaded by a module of other ranks
passed, failed = 0, []


def verdict(name, problem):
    global passed
    if problem:
        failed.append(name)
        print('FAIL %s: %s' % (name, problem))
    else:
        passed += 1


def run(*cmd):
    p = subprocess.run(cmd, capture_output=True, text=True, check=False)
    if p.returncode:
        raise RuntimeError('%s: exit %d: %s' % (cmd[1], p.returncode, p.stderr.strip()))


def same(a, b):
    raw = [t.detach().contiguous().flatten().view(torch.uint8) if t.dim() else t.detach().reshape(1).view(torch.uint8) for t in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*raw)


def differing(got, want):
    bad = [n for n in want if n not in got or not same(got[n], want[n])]
    return 'other values: %s' % bad[:3] if bad or set(got) - set(want) else ''


def wanted(flat):
    """Tensors of a file, tied names in full."""
    tensors = load_file(flat)
    with safe_open(flat, framework='pt') as f:
        ties = {a: o for a, o in (f.metadata() or {}).items() if o in tensors and a not in tensors and a != 'format'}
    return dict(tensors, **{a: tensors[o] for a, o in ties.items()})


def unknown(source):
    """Options that leave out what safetensors' binding to torch has no dtype for."""
    if not source.endswith('dtypes/model.safetensors'):
        return []
    with safe_open(source, framework='pt') as f:
        names = [n for n in f.keys() if f.get_slice(n).get_dtype() not in _TYPES]
    return [word for n in names for word in ('--exclude', n)]


def plain(folder, want):
    state = {n: torch.zeros_like(t) for n, t in want.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(folder), no_dist=True)
    return differing(state, want)


def named(folder, want):
    """The reader lists these names and shapes, and no others."""
    listed = HuggingFaceStorageReader(folder).read_metadata().state_dict_metadata
    got = {n: tuple(m.size) for n, m in listed.items()}
    return '' if got == {n: tuple(t.shape) for n, t in want.items()} else 'names or shapes: %s' % sorted(got.items())[:3]


def consolidated(folder, want, tmp):
    files, out = {}, os.path.join(tmp, 'whole')
    for path in glob.glob(os.path.join(folder, '*')):
        with safe_open(path, framework='pt') as f:
            files.update({n: int(os.path.basename(path).split('-')[3]) for n in f.keys()})
    os.makedirs(out)
    consolidate_safetensors_files(folder, out, files)
    got = {}
    for path in glob.glob(os.path.join(out, '*.safetensors')):
        got.update(load_file(path))
    return differing(got, want)


def module(weights):
    """A module with parameters of these names, zeros."""
    root = torch.nn.Module()
    for name, t in weights.items():
        at, (*up, leaf) = root, name.split('.')
        for key in up:
            if not hasattr(at, key):
                at.add_module(key, torch.nn.Module())
            at = getattr(at, key)
        at.register_parameter(leaf, torch.nn.Parameter(torch.zeros_like(t), requires_grad=t.is_floating_point()))
    return root


def child(rank, folder, flat, out):
    want = {n: t for n, t in wanted(flat).items() if t.dim() > 0}
    model = module(want)
    fully_shard(model, mesh=init_device_mesh('cpu', (LOADERS,)))
    state = model.state_dict()
    assert all(isinstance(t, DTensor) for t in state.values())
    dcp.load(state, storage_reader=HuggingFaceStorageReader(folder))
    model.load_state_dict(state)
    got = {n: t.full_tensor() for n, t in model.state_dict().items()}
    if rank == 0:
        torch.save(differing(got, want), out)


def under_fsdp2(folder, flat):
    problem, error = ranks.run_ranks(LOADERS, lambda rank, out: child(rank, folder, flat, out), 120)
    return error or problem


def saver(rank, world, flat, real, out):
    """What torch saves of a module under FSDP2: in one file for each rank, and in two."""
    want = {n: t for n, t in load_file(flat).items() if t.dim() > 0}
    model = module(want)
    fully_shard(model, mesh=init_device_mesh('cpu', (world,)))
    state = model.state_dict()
    with torch.no_grad():
        for n, t in state.items():
            start = sum(len(c) for c in want[n].chunk(world)[:rank])
            t.to_local().copy_(want[n][start:start + len(t.to_local())])
    index = {n: 1 + (2 * i >= len(state)) for i, n in enumerate(state)}
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(real + '1', save_distributed=True))
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(real + '2', fqn_to_index_mapping=index, save_distributed=True))
    if rank == 0:
        torch.save(None, out)


def pieces(folder):
    """For each file its tensors with elements: where they begin, and what they are; and the order in which they are named."""
    out = {}
    for path in sorted(glob.glob(os.path.join(folder, '*'))):
        with safe_open(path, framework='pt') as f:
            meta = f.metadata()
            info = json.loads(meta.pop('DCP_SHARDING_INFO'))
            full = {n: (info[n], f.get_tensor(n)) for n in info if f.get_tensor(n).numel()}
            assert set(info) == set(f.keys()) and all(set(v) == {'saved_offsets'} for v in info.values())
            out[os.path.basename(path)] = (meta, list(full), full)
    return {n: p for n, p in out.items() if p[1]}


def unlike(ours, real):
    for name in sorted(set(ours) | set(real)):
        a, b = ours.get(name), real.get(name)
        if not a or not b or a[:2] != b[:2]:
            return '%s: %s, torch has %s' % (name, a and a[:2], b and b[:2])
        bad = [n for n in b[1] if a[2][n][0] != b[2][n][0] or not same(a[2][n][1], b[2][n][1])]
        if bad:
            return '%s: %s differ' % (name, bad[:3])
    return ''


def as_torch(ckpt, world, tmp):
    flat, real = os.path.join(tmp, 'flat.safetensors'), os.path.join(tmp, 'real')
    made(flat)
    _, error = ranks.run_ranks(world, lambda rank, out: saver(rank, world, flat, real, out), 120)
    if error:
        raise RuntimeError(error)
    again = os.path.join(tmp, 'again')
    run(ckpt, 'convert', '-q', real + '1', again, '--to', 'hf-sharded')
    verdict('as torch writes it, %d ranks' % world, unlike(pieces(again), pieces(real + '1')))
    run(ckpt, 'diff', '-q', again, real + '2')


def one(ckpt, source, name, tmp):
    flat = os.path.join(tmp, 'flat.safetensors')
    run(ckpt, 'convert', '-q', *unknown(source), source, flat)
    if name == 'safetensors_dtypes/model.safetensors':
        source = flat
    want = wanted(flat)
    for world in WORLDS:
        for size in '0', '3KB':
            out = os.path.join(tmp, '%d_%s' % (world, size))
            what = '%s, %d ranks, %s: ' % (name, world, size)
            run(ckpt, 'convert', '-q', '--to', 'hf-sharded', '--world', str(world), '--max-shard-size', size, source, out)
            run(ckpt, 'diff', '-q', source, out)
            verdict(what + 'names', named(out, want))
            verdict(what + 'dcp.load', plain(out, want))
            if all(t.is_floating_point() and t.dim() > 0 for t in want.values()):
                verdict(what + 'consolidate_safetensors_files', consolidated(out, want, os.path.join(tmp, 'c%d_%s' % (world, size))))
    if name in ('hf_trainer_llama_z3_bf16_w2/ckpt', 'z1_bf16_w3_groups/ckpt', 'made.safetensors'):
        verdict(name + ': FSDP2', under_fsdp2(os.path.join(tmp, '%d_0' % TAKEN), flat))


def made(path):
    """Odd sizes: fewer rows than ranks, none, no axes, no elements."""
    from safetensors.torch import save_file
    g = torch.Generator().manual_seed(1)
    shapes = {'zeta.weight': (7, 3), 'alpha.weight': (1, 5), 'mid.bias': (2,), 'deep.weight': (4, 2, 3), 'one': (1,), 'wide': (3, 600)}
    save_file(dict({n: torch.rand(s, generator=g) for n, s in shapes.items()}, scalar=torch.tensor(2.5), none=torch.zeros(0, 4),
                   hollow=torch.zeros(5, 0), **{'\u00e4': torch.ones(3)}), path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('fixtures')
    a = p.parse_args()
    ranks.prepare_torch()
    for world in 1, 2, 4:
        with tempfile.TemporaryDirectory() as tmp:
            as_torch(os.path.join(a.bin, 'ckpt'), world, tmp)
    for name in SOURCES:
        with tempfile.TemporaryDirectory() as tmp:
            source = os.path.join(a.fixtures, name)
            if name == 'made.safetensors':
                source = os.path.join(tmp, name)
                made(source)
            try:
                one(os.path.join(a.bin, 'ckpt'), source, name, tmp)
            except RuntimeError as x:
                verdict(name, str(x))
    print('interop hf_sharded: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
