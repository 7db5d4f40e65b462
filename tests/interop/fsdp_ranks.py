#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch loads FSDP's files of each rank that we write, as verl does: model, optimizer, by name.

    fsdp_ranks.py --bin build/bin FIXTURES

Each run goes to files of three ranks.  Each file is loaded with weights_only=True; then three processes (gloo) make a module with
the run's parameters, shard it (fully_shard), and load their files with load_state_dict; the gathered values must be those that
ckpt reads of the source.  And the other way round: DTensors of many placements, on meshes of one to three axes, are saved by four
and eight processes and read back whole.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import warnings

import ranks
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

warnings.simplefilter('ignore')
RUNS = ('rl_verl_fsdp1_w2', 'rl_fsdp1_shardedtensor_w3', 'fsdp2_mp_w2', 'z1_bf16_w3_groups', 'z2_bf16_w2_aligned',
        'hf_trainer_llama_z3_bf16_w2')
RANKS = 3
passed, failed = 0, []


def verdict(name, problem):
    global passed
    if problem:
        failed.append(name)
        print('FAIL %s: %s' % (name, problem))
    else:
        passed += 1


def run(*cmd):
    subprocess.run(cmd, check=True, capture_output=True)


def file_of(folder, kind, rank):
    return os.path.join(folder, '%s_world_size_%d_rank_%d.pt' % (kind, RANKS, rank))


def parts(value):
    """All DTensors in a tree."""
    if isinstance(value, DTensor):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        yield from parts(inner)


def load(folder, kind, rank):
    """One rank's object; its mesh is made one of processors, as the tests have no other devices."""
    value = torch.load(file_of(folder, kind, rank), weights_only=True)
    for t in parts(value):
        assert t.device_mesh._device_type in ('cpu', 'cuda') and t.device_mesh.mesh_dim_names == ('fsdp',)
        t.device_mesh._device_type = 'cpu'
    return value


def module(weights):
    """A module with parameters of these names."""
    root = torch.nn.Module()
    for name, t in weights.items():
        at = root
        *path, leaf = name.split('.')
        for key in path:
            if not hasattr(at, key):
                at.add_module(key, torch.nn.Module())
            at = getattr(at, key)
        at.register_parameter(leaf, torch.nn.Parameter(torch.zeros(t.shape, dtype=t.dtype)))
    return root


def child(rank, folder, flat, out):
    want = load_file(flat)
    saved, state = load(folder, 'model', rank), load(folder, 'optim', rank)
    model = module({n: t for n, t in saved.items() if isinstance(t, DTensor)})
    fully_shard(model, mesh=init_device_mesh('cpu', (RANKS,), mesh_dim_names=('fsdp',)))
    model.load_state_dict({n: t for n, t in saved.items() if isinstance(t, DTensor)})
    params = dict(model.named_parameters())
    groups = [{'params': [params[n] for n in g['param_names']]} for g in state['param_groups']]
    optimizer = torch.optim.AdamW(groups, lr=1)
    optimizer.load_state_dict(state)
    wrong, moments = [], 0
    for name, p in params.items():
        # a safetensors file has tied names once
        if name in want and not torch.equal(p.full_tensor().detach(), want[name].to(p.dtype)):
            wrong.append(name)
        for kind, t in optimizer.state[p].items():
            whole = t.full_tensor() if isinstance(t, DTensor) else t
            moments += 1
            if not torch.equal(whole, want['%s/%s' % (kind, name)].to(whole.dtype)):
                wrong.append('%s of %s' % (kind, name))
    missing = [n for n in want if '/' not in n and n not in saved]
    if moments != sum('/' in n for n in want):
        wrong.append('%d moments of %d' % (moments, sum('/' in n for n in want)))
    if rank == 0:
        torch.save('%s %s' % (wrong[:3], missing[:3]) if wrong or missing else '', out)


def scattered(rank, world, folder, out):
    """Each rank's file of DTensors whose values count from 0 on; the whole tensors go to rank 0's `out`."""
    torch.manual_seed(0)
    shape = (world // 2, 2) if world == 4 else (2, 2, 2)
    names = ('dp', 'tp') if world == 4 else ('pp', 'dp', 'tp')
    mesh = init_device_mesh('cpu', shape, mesh_dim_names=names)
    line = init_device_mesh('cpu', (world,), mesh_dim_names=('fsdp',))
    whole, saved = {}, {}

    def put(name, size, mesh, *placements):
        t = torch.arange(torch.Size(size).numel(), dtype=torch.float32).reshape(size)
        whole[name], saved[name] = t, distribute_tensor(t.clone(), mesh, placements)

    rest = [Replicate()] * (len(shape) - 2)
    for rows in 1, 3, 7, 8, 13:
        put('line.%d' % rows, (rows, 5), line, Shard(0))
        put('columns.%d' % rows, (3, rows), line, Shard(1))
        put('both.%d' % rows, (rows, rows + 1), mesh, *rest, Shard(0), Shard(1))
        put('twice.%d' % rows, (rows, 3), mesh, *rest, Shard(0), Shard(0))
        put('copies.%d' % rows, (rows, 3), mesh, *rest, Replicate(), Shard(0))
        put('slice.%d' % rows, (rows, 3), mesh['tp'], Shard(0))
        put('slice0.%d' % rows, (rows, 3), mesh['dp'], Shard(0))
    put('all', (4, 3), mesh, *rest, Replicate(), Replicate())
    # tensor parallel first, then FSDP: strided shards
    for rows in 2, 5, 11, 16:
        block = torch.nn.Sequential(torch.nn.Linear(6, rows), torch.nn.Linear(rows, 7))
        whole.update({'%d.%s' % (rows, n): p.detach().clone() for n, p in block.named_parameters()})
        parallelize_module(block, mesh['tp'], {'0': ColwiseParallel(), '1': RowwiseParallel()})
        fully_shard(block, mesh=mesh['dp'])
        saved.update({'%d.%s' % (rows, n): p for n, p in block.state_dict().items()})
    torch.save(saved, os.path.join(folder, 'model_world_size_%d_rank_%d.pt' % (world, rank)))
    if rank == 0:
        torch.save(whole, out)


def gathered(ckpt, world, tmp):
    folder, out = os.path.join(tmp, 'ranks'), os.path.join(tmp, 'o.safetensors')
    os.mkdir(folder)
    want, error = ranks.run_ranks(world, lambda rank, whole: scattered(rank, world, folder, whole), 120)
    if error:
        return error[-400:]
    p = subprocess.run([ckpt, 'convert', '-q', folder, out], capture_output=True, text=True)
    if p.returncode:
        return p.stderr.strip()[-300:]
    got = load_file(out)
    wrong = [n for n, t in want.items() if n not in got or not torch.equal(got[n], t)]
    return '%s have other values' % wrong[:4] if wrong else '' if len(got) == len(want) else 'other names'


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('fixtures')
    a = p.parse_args()
    ckpt = os.path.join(a.bin, 'ckpt')
    ranks.prepare_torch()
    for world in 4, 8:
        with tempfile.TemporaryDirectory() as tmp:
            verdict('placements of %d ranks' % world, gathered(ckpt, world, tmp))
    for name in RUNS:
        source = os.path.join(a.fixtures, name, 'ckpt')
        with tempfile.TemporaryDirectory() as tmp:
            flat, out = (os.path.join(tmp, n) for n in ('o.safetensors', 'out'))
            run(ckpt, 'convert', '-q', '--with-optimizer', source, flat)
            run(ckpt, 'reshard', '-q', '--to', 'fsdp-ranks', '--world', str(RANKS), '--to-tag', 'x', source, out)
            problem, error = ranks.run_ranks(RANKS, lambda rank, to, folder=os.path.join(out, 'x'), flat=flat: child(rank, folder, flat, to), 120)
            verdict(name, error[-400:] or problem)
    print('interop fsdp_ranks: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
