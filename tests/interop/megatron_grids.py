#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Grids of Megatron-LM that no fixture has: a model of random values is cut as Megatron-Core cuts it, saved by torch, and read back whole.

    megatron_grids.py --bin build/bin

The same weights and moments become files for each rank (TP, PP, virtual stages, EP) and torch_dist folders whose optimizer is in
flat buffers, cut over data-parallel ranks too (dp_reshardable; modules of both kinds, several buckets, experts with buffers of
their own).  tests/golden/megatron.py then judges them like the fixtures that Megatron-Core itself wrote.
"""
import argparse
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties,
                                                   TensorStorageMetadata)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'golden'))
import dcp
import megatron

LAYERS, EXPERTS, HIDDEN, FFN, VOCAB = 4, 4, 16, 24, 48
KINDS = ('', 'exp_avg', 'exp_avg_sq')
QKV, FC1 = 'self_attention.linear_qkv.', 'mlp.linear_fc1.'
NORMS = {QKV + 'layer_norm_': 'input_layernorm.', FC1 + 'layer_norm_': 'pre_mlp_layernorm.'}
FIRST = ('embedding.word_embeddings.weight', 'embedding.position_embeddings.weight')
LAST = ('decoder.final_layernorm.weight', 'decoder.final_layernorm.bias', 'output_layer.weight')
EXPERT = 'decoder.layers.mlp.experts.experts.linear_fc%d.weight'


class Model:
    """Weights by torch_dist's names, and their moments as "<kind>/<name>"."""

    def __init__(self, arch):
        wide = 1 if arch == 'gpt2' else 2
        self.moe, self.tied = arch == 'moe', arch == 'gpt2'
        kinds = ('weight', 'bias') if arch == 'gpt2' else ('weight',)
        norm, shapes = [('layer_norm_' + k, (HIDDEN,)) for k in kinds], {FIRST[0]: (VOCAB, HIDDEN)}
        layer = [(QKV + k, s) for k, s in norm] + [('self_attention.linear_proj.weight', (HIDDEN, HIDDEN))]
        layer += [('self_attention.linear_proj.bias', (HIDDEN,)), (QKV + 'weight', (32, HIDDEN)), (QKV + 'bias', (32,))]
        layer += [(FC1 + k, s) for k, s in norm]
        if self.moe:
            layer += [('mlp.router.weight', (EXPERTS, HIDDEN)), ('mlp.experts.experts.linear_fc1.weight', (EXPERTS, 2 * FFN, HIDDEN)),
                      ('mlp.experts.experts.linear_fc2.weight', (EXPERTS, HIDDEN, FFN))]
        else:
            layer += [(FC1 + 'weight', (wide * FFN, HIDDEN)), (FC1 + 'bias', (wide * FFN,)), ('mlp.linear_fc2.weight', (HIDDEN, FFN)),
                      ('mlp.linear_fc2.bias', (HIDDEN,))]
        self.layer = [(n, s) for n, s in layer if not n.endswith('.bias') or arch == 'gpt2']
        if arch == 'gpt2':
            shapes[FIRST[1]] = (16, HIDDEN)
        shapes.update({'decoder.layers.' + n: (LAYERS,) + s for n, s in self.layer})
        shapes.update({LAST[0]: (HIDDEN,), **({LAST[1]: (HIDDEN,)} if arch == 'gpt2' else {LAST[2]: (VOCAB, HIDDEN)})})
        self.gated = wide == 2
        self.t = {(k + '/' if k else '') + n: torch.randn(s) for k in KINDS for n, s in shapes.items()}

    def get(self, kind, name):
        return self.t[(kind + '/' if kind else '') + name]

    def expected(self):
        def said(t):
            return {'dtype': 'float32', 'shape': list(t.shape), 'sha256': hashlib.sha256(t.numpy().tobytes()).hexdigest()}
        of = {n: said(t) for n, t in self.t.items()}
        return {'iteration': 3, 'weights': {n: t for n, t in of.items() if '/' not in n},
                'optimizer_state': {'optimizer.state.' + n.replace('/', '.', 1): t for n, t in of.items() if '/' in n}}

    def cut(self, name, t, tp, n):
        """A tensor-parallel rank's slice."""
        if re.search(r'linear_fc1\.(weight|bias)$', name) and self.gated:
            return torch.cat([half.chunk(n)[tp] for half in t.chunk(2)]).clone()
        if re.search(r'(linear_qkv|linear_fc1)\.(weight|bias)$|(word_embeddings|output_layer).weight$', name):
            return t.chunk(n)[tp].clone()
        return t.chunk(n, 1)[tp].clone() if re.search(r'(linear_proj|linear_fc2)\.weight$', name) else t.clone()

    def rank(self, kind, at, grid, chunk=0, engine=False, grouped=False):
        """(name in torch_dist, name in the rank's module, slice) of a rank's parameters, in the order of named_parameters()."""
        (tp, pp, ep), (n_tp, n_pp, n_ep, chunks) = at, grid
        per, out = LAYERS // (n_pp * chunks), []
        first, last = pp == chunk == 0, pp == n_pp - 1 and chunk == chunks - 1

        def push(name, local, t):
            out.append((name, local, self.cut(name, t, tp, n_tp)))
        for n in FIRST if first else ():
            if n in self.t:
                push(n, n, self.get(kind, n))
        # modules of Transformer Engine: the first norm is a part of linear_qkv, which comes after linear_proj
        order = sorted(self.layer, key=lambda p: (p[0].startswith('mlp.'), p[0].startswith(QKV))) if engine else self.layer
        for i in range(per):
            whole = chunk * (LAYERS // chunks) + pp * per + i
            for n, _ in order:
                local = n
                for a, b in NORMS.items():
                    local = local.replace(a, b)
                if 'experts.experts' not in n:
                    push('decoder.layers.' + n, 'decoder.layers.%d.%s' % (i, local), self.get(kind, 'decoder.layers.' + n)[whole])
            some = range(EXPERTS // n_ep) if self.moe else ()
            for e, f in sorted(((e, f) for e in some for f in (1, 2)), key=lambda p: p[::-1] if grouped else p):
                push(EXPERT % f, 'decoder.layers.%d.mlp.experts.local_experts.%d.linear_fc%d.weight' % (i, e, f),
                     self.get(kind, EXPERT % f)[whole, ep * (EXPERTS // n_ep) + e])
        for n in LAST if last else ():
            if n in self.t:
                push(n, n, self.get(kind, n))
        if last and self.tied and n_pp > 1:
            push(LAST[2], LAST[2], self.get(kind, FIRST[0]))
        return out


def groups(expert):
    return [{'wd_mult': wd, 'lr_mult': 1.0, 'is_expert_parallel': expert, 'is_decoupled_lr': False, 'lr': 0.01, 'betas': (0.9, 0.95),
             'eps': 1e-8, 'weight_decay': 0.01 * wd} for wd in ((1.0,) if expert else (1.0, 0.0))]


def common(model, grid):
    args = argparse.Namespace(num_layers=LAYERS, tensor_model_parallel_size=grid[0], pipeline_model_parallel_size=grid[1],
                              expert_model_parallel_size=grid[2], virtual_pipeline_model_parallel_size=grid[3] if grid[3] > 1 else None,
                              untie_embeddings_and_output_weights=not model.tied)
    return {'args': args, 'checkpoint_version': 3.0, 'iteration': 3, 'opt_param_scheduler': {'num_steps': 3}}


def numbered(model, at, grid, expert):
    """An optimizer's state by the numbers of its parameters; expert None: of all of them."""
    out, state, n = groups(bool(expert)), {}, 0
    for g in out:
        g['params'] = []
        for chunk in range(grid[3]):
            rank = [model.rank(k, at, grid, chunk) for k in KINDS]
            for (name, _, w), (_, _, m), (_, _, v) in zip(*rank):
                if (w.ndim > 1) == (g['wd_mult'] > 0) and expert in (None, '.experts.' in name):
                    state[n] = {'step': torch.tensor(3.0), 'exp_avg': m, 'exp_avg_sq': v}
                    g['params'].append(n)
                    n += 1
    return {'state': state, 'param_groups': out}


def legacy(model, folder, grid):
    for tp in range(grid[0]):
        for pp in range(grid[1]):
            for ep in range(grid[2]):
                at, d = (tp, pp, ep), common(model, grid)
                name = 'mp_rank_%02d' % tp + ('_%03d' % pp if grid[1] > 1 else '') + ('_%03d' % ep if grid[2] > 1 else '')
                os.makedirs(os.path.join(folder, 'iter_0000003', name))
                for c in range(grid[3]):
                    d['model%s' % (c if grid[3] > 1 else '')] = {local: t for _, local, t in model.rank('', at, grid, c)}
                many = grid[2] > 1
                d['optimizer'] = [numbered(model, at, grid, e) for e in (False, True)] if many else numbered(model, at, grid, None)
                torch.save(d, os.path.join(folder, 'iter_0000003', name, 'model_optim_rng.pt'))


def buckets(params, limit, n_pp, tied):
    """Flat buckets of parameters in reverse order, as lists of (start, values): gaps are zeros, halves are data-parallel ranks'."""
    out, at = [[]], 0
    for name, local, t in reversed(params):
        shared = tied and n_pp > 1 and local in (FIRST[0], LAST[2])
        if shared and out[-1]:
            out, at = out + [[]], 0
        start, half = (at + 63) // 64 * 64, t.numel() // 2
        pieces = [(at, torch.zeros(start - at)), (start, t.reshape(-1)[:half]), (start + half, t.reshape(-1)[half:])]
        out[-1] += [(s, p.clone()) for s, p in pieces if p.numel()]
        at = start + t.numel()
        if at >= limit or shared:
            out, at = out + [[]], 0
    return [b for b in out if b]


def flat(model, folder, grid, engine, grouped, limit):
    many, chunks, objects = grid[2] > 1, {}, {}
    for n, t in model.t.items():
        if '/' not in n:
            chunks[n] = (tuple(t.shape), [((0,) * t.ndim, t)])
    for o in (0, 1) if many else (0,):
        n_ep = grid[2] if o else 1
        for g in range(grid[0] * n_ep * grid[1]):
            at = (g % grid[0], g // (grid[0] * n_ep), g // grid[0] % n_ep)
            name = '%soptimizer.distributed.dp_group_idx_%d.' % ('chained_%d.' % o if many else '', g)
            objects[name + 'optimizer/shard_0_1'] = [{'param_groups': [dict(p, step=3.0) for p in groups(bool(o))]}]
            for kind in KINDS:
                all_ = model.rank(kind, at, grid, 0, engine, grouped)
                mine = [p for p in all_ if not many or ('.experts.' in p[0]) == bool(o)]
                for k, b in enumerate(buckets(mine, limit, grid[1], model.tied)):
                    key = name + 'gbuf_idx_0.dtype_(torch.float32, torch.float32).bucket_idx_%d.%s' % (k, kind or 'param')
                    chunks[key] = ((b[-1][0] + b[-1][1].numel(),), [((s,), t) for s, t in reversed(b)])
    save(os.path.join(folder, 'iter_0000003'), chunks, objects)
    d = dict(common(model, grid), optimizer={0: {}, 1: {}} if many else {'param_state_sharding_type': 'dp_reshardable'})
    torch.save(d, os.path.join(folder, 'iter_0000003', 'common.pt'))
    with open(os.path.join(folder, 'iter_0000003', 'metadata.json'), 'w') as f:
        json.dump({'sharded_backend': 'torch_dist', 'sharded_backend_version': 1}, f)


def save(folder, chunks, objects):
    """A distributed checkpoint of one data file."""
    os.makedirs(folder)
    said, where = {}, {}
    with open(os.path.join(folder, '__0_0.distcp'), 'wb') as f:
        def put(o):
            b, at = io.BytesIO(), f.tell()
            torch.save(o, b)
            f.write(b.getvalue())
            return _StorageInfo('__0_0.distcp', at, len(b.getvalue()))
        for key, (shape, parts) in chunks.items():
            boxes = [ChunkStorageMetadata(torch.Size(o), t.shape) for o, t in parts]
            said[key] = TensorStorageMetadata(TensorProperties(dtype=torch.float32), torch.Size(shape), boxes)
            for o, t in parts:
                where[MetadataIndex(key, torch.Size(o))] = put(t)
        for key, o in objects.items():
            said[key] = BytesStorageMetadata()
            where[MetadataIndex(key)] = put(o)
    with open(os.path.join(folder, '.metadata'), 'wb') as f:
        pickle.dump(Metadata(said, None, where), f, protocol=4)


# model, (TP, PP, EP, virtual stages)
LEGACY = (('llama', (2, 2, 1, 1)), ('llama', (1, 2, 1, 2)), ('gpt2', (2, 2, 1, 1)), ('gpt2', (2, 1, 1, 1)), ('moe', (1, 1, 2, 1)),
          ('moe', (2, 2, 2, 1)))
# the same, modules of Transformer Engine, grouped experts, elements of a bucket
FLAT = (('llama', (2, 2, 1, 1), False, False, 100000), ('llama', (2, 2, 1, 1), True, False, 1000), ('llama', (1, 1, 1, 1), True, False, 1500),
        ('gpt2', (2, 2, 1, 1), True, False, 300), ('gpt2', (1, 2, 1, 1), False, False, 100000), ('moe', (2, 2, 2, 1), False, False, 900),
        ('moe', (1, 1, 2, 1), True, True, 3000), ('moe', (2, 1, 4, 1), False, True, 3000), ('moe', (2, 2, 1, 1), True, False, 700))


def written(folder):
    """The objects of a distributed checkpoint, by name."""
    out = {}
    with open(os.path.join(folder, '.metadata'), 'rb') as f:
        meta = pickle.load(f)
    for index, at in meta.storage_data.items():
        if isinstance(meta.state_dict_metadata[index.fqn], BytesStorageMetadata):
            with open(os.path.join(folder, at.relative_path), 'rb') as f:
                f.seek(at.offset)
                out[index.fqn] = torch.load(io.BytesIO(f.read(at.length)), weights_only=False)
    return out


def objects(ckpt, tmp):
    """A run's objects, as Transformer Engine and others save them, are in the output of --to megatron; a problem, or None."""
    model, src, dst = Model('llama'), os.path.join(tmp, 'src'), os.path.join(tmp, 'dst')
    chunks = {('optimizer.state.' + n.replace('/', '.', 1) if '/' in n else n): (tuple(t.shape), [((0,) * t.ndim, t)]) for n, t in model.t.items()}
    chunks.update({'optimizer.state.param.' + n: v for n, v in chunks.items() if not n.startswith('optimizer.')})
    proj, mtp = 'decoder.layers.self_attention.linear_proj._extra_state/shard_%d_4', 'mtp.layers.eh_proj._extra_state/shard_%d_2'
    put = {proj % 0: [None], proj % 1: [torch.arange(5, dtype=torch.uint8)], proj % 2: [io.BytesIO(b'scales')], proj % 3: [{'amax': 3}],
           'decoder.layers.self_attention.core_attention._extra_state/shard_0_4': [torch.empty(0, dtype=torch.uint8)],
           'decoder.final_layernorm._extra_state/shard_0_1': [{'a': 'b'}], mtp % 0: [None], mtp % 1: [{'c': 'd'}], 'other/shard_0_1': [{'e': 'f'}]}
    save(os.path.join(src, 'iter_0000003'), chunks, put)
    inner = {'param_groups': [dict(p, step=3.0) for p in groups(False)], 'state': {'common_step': torch.tensor(3.0), 'further': 'kept'}}
    torch.save(dict(common(model, (1, 1, 1, 1)), optimizer=inner), os.path.join(src, 'iter_0000003', 'common.pt'))
    for name, text in (('iter_0000003/metadata.json', '{"sharded_backend": "torch_dist", "sharded_backend_version": 1}'), ('latest_checkpointed_iteration.txt', '3')):
        with open(os.path.join(src, name), 'w') as f:
            f.write(text)
    p = subprocess.run([ckpt, 'reshard', '-q', src, dst, '--to', 'megatron'], capture_output=True, text=True)
    if p.returncode:
        return p.stderr
    got = written(os.path.join(dst, 'iter_0000003'))
    for name, v in put.items():
        have = got.get(name, ['absent'])[0]
        same = torch.equal(have, v[0]) if isinstance(have, torch.Tensor) else have.getvalue() == b'scales' if isinstance(have, io.BytesIO) else have == v[0]
        if not same:
            return '%s is %s' % (name, have)
    whole = torch.load(os.path.join(dst, 'iter_0000003', 'common.pt'), weights_only=False)['optimizer']
    return None if 'further' in repr(whole) else 'a value of the optimizer is not in common.pt: %s' % whole


def regrouped(src, mine, norms, others):
    """A run of FSDP whose second parameter group comes first, with the parameters of which mine is true, and some settings."""
    shutil.copytree(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures', 'hf_trainer_fsdp1_full_w2', 'ckpt'), src)
    for name in os.listdir(src):
        os.chmod(os.path.join(src, name), 0o644)
    d = torch.load(os.path.join(src, 'optimizer.bin'), weights_only=False)
    whole = d['param_groups'][0]
    step = norms.pop('step', None)
    d['param_groups'] = [dict(whole, params=[k for k in whole['params'] if mine(k) == first], **more) for first, more in ((True, norms), (False, others))]
    for k in d['param_groups'][0]['params'] if step else ():
        d['state'][k]['step'] = torch.tensor(step)
    torch.save(d, os.path.join(src, 'optimizer.bin'))


def steps(ckpt, tmp):
    """A run whose groups count different steps is refused by name; a problem, or None."""
    # both groups' parameters go to one group of Megatron's, or to two
    for word in ('embed', 'norm'):
        src = os.path.join(tmp, word)
        regrouped(src, lambda k, word=word: word in k, {'step': 2.0}, {})
        p = subprocess.run([ckpt, 'reshard', '-q', src, os.path.join(tmp, 'no'), '--to', 'megatron'], capture_output=True, text=True)
        if p.returncode != 3 or not re.search(r'counts \d steps for .* and \d for', p.stderr):
            return 'status %d: %s' % (p.returncode, p.stderr)
    return None


def schedule(ckpt, tmp):
    """Megatron's schedule sets the settings that the run had, whatever the order of the groups; a problem, or None."""
    src, dst = os.path.join(tmp, 'src'), os.path.join(tmp, 'dst')
    regrouped(src, lambda k: 'norm' in k, {'lr': 0.001, 'weight_decay': 0.0}, {'lr': 0.002, 'weight_decay': 0.03})
    subprocess.run([ckpt, 'reshard', '-q', src, dst, '--to', 'megatron'], check=True, stderr=subprocess.DEVNULL)
    d = torch.load(os.path.join(dst, 'iter_0000004', 'common.pt'), weights_only=False)
    said, got = d['opt_param_scheduler'], []
    for g in d['optimizer']['optimizer']['param_groups']:    # as OptimizerParamScheduler.step does with a constant schedule
        got.append((g['wd_mult'], g.get('max_lr', said['max_lr']), said['start_wd'] * g['wd_mult']))
    return None if sorted(got) == [(0.0, 0.001, 0.0), (1.0, 0.002, 0.03)] else str(got)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    ckpt = os.path.join(p.parse_args().bin, 'ckpt')
    torch.manual_seed(1)
    for how, judge, cases in ((legacy, megatron.legacy, LEGACY), (flat, megatron.dist, FLAT)):
        for arch, grid, *more in cases:
            with tempfile.TemporaryDirectory() as tmp:
                model = Model(arch)
                how(model, tmp, grid, *more)
                with open(os.path.join(tmp, 'latest_checkpointed_iteration.txt'), 'w') as f:
                    f.write('3')
                judge(ckpt, '%s %s %s %s' % (how.__name__, arch, grid, more), model.expected(), tmp, True)
    for case in (objects, steps, schedule):
        with tempfile.TemporaryDirectory() as tmp:
            dcp.verdict('to megatron: ' + case.__name__, case(ckpt, tmp))
    print('grids of Megatron-LM: %d passed, %d failed' % (dcp.passed, len(dcp.failed)))
    return 1 if dcp.failed else 0


sys.exit(main())
