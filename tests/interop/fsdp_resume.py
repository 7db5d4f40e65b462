#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs go on under the other framework: DeepSpeed's under FSDP2, and FSDP's under DeepSpeed.

    fsdp_resume.py --bin build/bin FIXTURES [NAME...] [-v]

`ckpt reshard` writes the run of each fixture for the other framework at another world; that loads it as any program does
(dcp.load with get_state_dict and set_state_dict; load_checkpoint) into a model of other weights and an optimizer of wrong
settings.  It must then hold the source's masters, moments, steps and settings, bit for bit, and its next losses must be those
that were recorded of the uninterrupted run.

In fp32 to 5e-7 (relative).  In 16 bits the two frameworks do not compute the same: DeepSpeed keeps a rounded copy of each
weight and gradients of 16 bits, FSDP2 rounds masters for each use and sums gradients in fp32.  One rounding is 2**-8 of a
value; it moves the mean loss of a few hundred logits by less than FIRST, and the updates that follow, of a learning rate of
1e-2, by less than LATER (measured: 7e-4 and 1.2e-3).
"""
import os
import sys
import tempfile

os.environ['DS_ACCELERATOR'] = 'cpu'
try:
    import checks
    import ds_harness
    import ranks
    import torch
    from safetensors.torch import load_file
except ImportError:
    print('interop fsdp: skipped (no torch and DeepSpeed)')
    sys.exit(0)

FP32, FIRST, LATER = 5e-7, 2e-3, 4e-3
STEPS = 3
WRONG_LR = 0.77
# Runs of DeepSpeed, and the FSDP2 worlds that they go to.
TO_FSDP = {
    'z1_fp32_w2_torchsched': (3,),   # amsgrad, torch's StepLR
    'z1_fp32_w5': (2,),              # fused Adam
    'z2_fp32_w1': (2,),
    'z2_fp32_w3_frozen': (2,),
    'z3_fp32_w1': (3,),
    'z3_fp32_w2_frozen': (1,),
    'z3_fp32_w2_sgd': (3,),
    'z1_bf16_w3_groups': (2,),       # two groups, tied
    'z1_bf16_w2_fp32acc': (3,),
    'z2_bf16_w2_offload': (3,),      # DeepSpeed's Adam of the host
    'z2_bf16_w4_roundrobin': (2,),
    'z3_bf16_w4_hpz': (3,),
    'z3_bf16_w2_gather16': (1,),     # tied
}
# Runs of FSDP and its relatives, and (world, stage) that they go to; OWN: goes on with DeepSpeed's Adam instead of torch's.
OWN = 'own'
TO_ZERO = {
    'fsdp2_llama_w3': ((2, 1), (1, 2), (2, 3), (2, 2, OWN)),   # two groups, cosine
    'fsdp2_flatopt_w2': ((3, 2),),
    'fsdp2_app_async_w2': ((3, 3), (1, 1)),       # tied, buffers, StepLR
    'fsdp2_stateful_w2': ((3, 1),),               # tied
    'fsdp2_mp_w2': ((3, 2), (1, 3)),              # computes in bf16; amsgrad
    'fsdp2_empty_w4': ((2, 3),),
    'hsdp2_w4': ((2, 2),),                        # SGD with momentum
    'tp2_fsdp2_w4': ((3, 3),),
    'fsdp1_sharded_w3': ((2, 1), (1, 2), (2, 3)),   # its optimizer lists units, as those of all FSDP1 runs
    'fsdp1_full_w2': ((2, 3), (1, 1)),            # one file
    'accel_fsdp1_full_w2': ((2, 2), (2, 3)),
    'rl_verl_fsdp1_w2': ((2, 3),),
    'dcp_single_nodist': ((2, 2),),
    'rl_skyrl_fsdp2_w3': ((2, 3),),               # files for each rank, Qwen2
    'accel_fsdp2_sharded_w2': ((3, 2),),
}
# Runs that go to files of each rank, which FSDP2 loads by number, as verl does: (ranks).
TO_RANKS = {
    'fsdp1_sharded_w3': (2,),
    'fsdp1_full_w2': (3,),
    'accel_fsdp1_full_w2': (2,),
    'fsdp2_llama_w3': (2,),                       # two groups
    'z1_fp32_w5': (2,),
}
# Runs of FSDP that go to ZeRO (world, stage) and from there to FSDP2 (ranks).
THERE_AND_BACK = {
    'fsdp2_flatopt_w2': ((3, 3, 3),),
    'fsdp2_stateful_w2': ((2, 1, 3),),
    'tp2_fsdp2_w4': ((3, 2, 3),),
    'fsdp1_sharded_w3': ((2, 2, 2),),
    'rl_verl_fsdp1_w2': ((3, 1, 1),),
}


# ---- what both do ----

def build(e):
    """The fixture's model, with weights of its own."""
    torch.manual_seed(4711)
    if callable(e.get('model')):
        return e['model']()
    if 'hf_config' not in e:
        model = dict(e['model'])
        return ds_harness.make_model({**e, 'model': {'kind': model.pop('arch', None) or model.pop('kind'), **model}}, {})
    from transformers import AutoConfig, AutoModelForCausalLM
    config = dict(e['hf_config'])
    config = AutoConfig.for_model(config.pop('model_type'), **config)
    model = AutoModelForCausalLM.from_config(config, attn_implementation='eager')
    for name, p in model.named_parameters():
        p.requires_grad_(name not in e.get('frozen', ()))
    return model


def loss_of(model, x, y):
    """Mean cross entropy, not shifted; ds_harness' models give it themselves."""
    if not hasattr(model, 'config') or not hasattr(getattr(model, 'module', model), 'generate'):
        return model(x, y)
    z = model(x).logits
    return torch.nn.functional.cross_entropy(z.float().reshape(-1, z.shape[-1]), y.reshape(-1))


def names_of(model, e):
    """The parameters of each group as a program gives them, in the order of the model (FSDP1 records them by units); the oldest
    fixtures have one group and do not list them."""
    order = [n for n, p in model.named_parameters() if p.requires_grad]
    return [[n for n in order if n in g.get('params', order)] for g in e['optimizer']['param_groups']]


def groups_of(model, e, names):
    """Parameter groups of the run, with settings that are not the run's."""
    params = dict(model.named_parameters())
    return [{'params': [params[n] for n in ns], 'lr': WRONG_LR, 'weight_decay': 0.33} for ns in names]


def optimizer_of(e, groups):
    name = e['optimizer'].get('cls') or e['optimizer']['name']
    first = e['optimizer']['param_groups'][0]
    more = {k: first[k] for k in ('amsgrad', 'momentum') if first.get(k)}
    cls = {'FusedAdam': 'AdamW', 'DeepSpeedCPUAdam': 'AdamW'}.get(name, name)   # of the same arithmetic
    return getattr(torch.optim, cls)(groups, **more)


def scheduler_of(e, optimizer):
    """The run's scheduler, of torch; None: it had none, or one of DeepSpeed's."""
    s = e.get('lr_scheduler')
    if callable(s):
        return s(optimizer)
    s = (s or {}).get('state', s)
    kinds = torch.optim.lr_scheduler
    if not s or 'scheduler' in e.get('ds_config', {}):
        return None
    if 'T_max' in s:
        return kinds.CosineAnnealingLR(optimizer, s['T_max'])
    if 'step_size' in s:
        return kinds.StepLR(optimizer, s['step_size'], s['gamma'])
    return kinds.LambdaLR(optimizer, lambda n: 1 / (1 + 0.1 * n))


def batch(data, e, step):
    """The whole batch of a step, of all ranks: each rank gets it all, so that the mean gradient is the source's."""
    x, y = (data[k][step] for k in 'xy')
    axes = 3 if 'stage' in e else 2   # rank, micro-batch (and gradient accumulation between)
    return x.reshape(-1, *x.shape[axes:]), y.reshape(-1, *y.shape[axes:])


def recorded(e):
    """(steps done before, losses, learning rates of the groups) of the uninterrupted run."""
    if 'stage' in e:   # their rates are those after each step
        rates = [[g['lr'] for g in e['optimizer']['param_groups']]] + [r['lr'] for r in e['resume']['rows']]
        return e['global_step'], e['resume']['losses'][:STEPS], rates[:STEPS]
    steps = e['next_steps'][:STEPS if 'lr' in e['next_steps'][0] else 2]   # accelerate's schedules count each rank
    return steps[0]['step'] - 1, [s['loss'] for s in steps], [s['lr'] for s in steps if 'lr' in s]


def clipping(e):
    """The norm that gradients are cut to; DeepSpeed does so from 0.19 on, unless it is told otherwise."""
    if 'ds_config' not in e:
        return e.get('clipping', 0.0)
    return e['ds_config'].get('gradient_clipping', 1.0 if e['producer']['deepspeed'] == '0.19.8' else 0.0)


def whole(t):
    t = t.detach()
    return (t.full_tensor() if hasattr(t, 'full_tensor') else t).float().clone()


# ---- under FSDP2 ----

def sharded(e, **how):
    """The model under FSDP2, its optimizer and its scheduler."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    model = build(e)
    if e.get('dtype') == 'bf16':
        how['mp_policy'] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    layers = [m for m in model.modules() if type(m).__name__.endswith('DecoderLayer')]
    for part in [*getattr(model, 'h', ()), *layers, model]:
        fully_shard(part, **how)
    optimizer = optimizer_of(e, groups_of(model, e, names_of(model, e)))
    return model, optimizer, scheduler_of(e, optimizer)


def ranks_rank(e, data, folder, world, out, rank):
    """What verl does with the files of its rank."""
    from torch.distributed.device_mesh import init_device_mesh
    import fsdp_ranks
    fsdp_ranks.RANKS = world
    model, optimizer, scheduler = sharded(e, mesh=init_device_mesh('cpu', (world,), mesh_dim_names=('fsdp',)))
    model.load_state_dict(fsdp_ranks.load(folder, 'model', rank))
    optimizer.load_state_dict(fsdp_ranks.load(folder, 'optim', rank))
    extra = torch.load(fsdp_ranks.file_of(folder, 'extra_state', rank), weights_only=False)
    if scheduler:
        scheduler.load_state_dict(extra['lr_scheduler'])
    go_on(e, data, model, optimizer, scheduler, out, rank)


def fsdp_rank(e, data, folder, out, rank):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    model, optimizer, scheduler = sharded(e)
    weights, state = get_state_dict(model, optimizer)
    want = {'model': weights, 'optim': state}
    if scheduler:
        want['lr_scheduler'] = scheduler.state_dict()
    dcp.load(want, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=want['model'], optim_state_dict=want['optim'])
    if scheduler:
        scheduler.load_state_dict(want['lr_scheduler'])
    go_on(e, data, model, optimizer, scheduler, out, rank)


def go_on(e, data, model, optimizer, scheduler, out, rank):
    """Say what was loaded, and make the next steps."""
    names = {id(p): n for n, p in model.named_parameters()}
    held = {n: whole(p) for n, p in model.named_parameters() if p.requires_grad}
    for p, s in optimizer.state.items():
        held.update({'%s/%s' % (k, names[id(p)]): whole(v) for k, v in s.items() if torch.is_tensor(v)})
    start, _, rates = recorded(e)
    clip = clipping(e)
    losses, used = [], []
    for i in range(STEPS):
        if not scheduler and i > 0:   # DeepSpeed's own schedule is not FSDP's to go on with
            for g, lr in zip(optimizer.param_groups, rates[i]):
                g['lr'] = lr
        loss = loss_of(model, *batch(data, e, start + i))
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        used.append([float(g['lr']) for g in optimizer.param_groups])
        optimizer.step()
        optimizer.zero_grad()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
    if rank == 0:
        torch.save({'held': held, 'losses': losses, 'rates': used}, out)


# ---- under DeepSpeed ----

def zero_rank(e, data, folder, stage, own, out, rank):
    import deepspeed
    ds_harness.patch()
    model = build(e)
    groups = groups_of(model, e, names_of(model, e))
    optimizer = None if own else optimizer_of(e, groups)
    x, _ = batch(data, e, 0)
    config = {'train_micro_batch_size_per_gpu': len(x), 'zero_allow_untested_optimizer': True, 'gradient_clipping': clipping(e),
              'zero_optimization': {'stage': stage, 'stage3_param_persistence_threshold': 0}}
    if own:
        config['zero_optimization']['offload_optimizer'] = {'device': 'cpu'}
        config['optimizer'] = {'type': 'AdamW', 'params': {'lr': WRONG_LR}}
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, model_parameters=groups if own else None,
                                           config=config, lr_scheduler=lambda o: scheduler_of(e, o))
    path, _ = engine.load_checkpoint(folder)
    if path is None:
        raise RuntimeError('DeepSpeed loads nothing from %s' % folder)
    masters, state, steps = ds_harness.gather(engine, torch.distributed.get_world_size(), 0)
    held = dict(masters)
    for kind, values in state.items():
        held.update({'%s/%s' % (kind, n): v for n, v in values.items()})
    start, _, _ = recorded(e)
    losses, used = [], []
    for i in range(STEPS):
        loss = loss_of(engine, *batch(data, e, start + i))
        used.append([float(g['lr']) for g in engine.optimizer.param_groups])
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    if rank == 0:
        torch.save({'held': held, 'losses': losses, 'rates': used, 'steps': steps}, out)


# ---- cases ----

def flat(a, source, tmp, *names):
    """Masters, moments and steps by name, as `ckpt convert` reads them of the source."""
    out = os.path.join(tmp, 'flat.safetensors')
    checks.ckpt(a, 'convert', '-q', '-f', '--with-optimizer', *names, source, out)
    return load_file(out)


def held_differ(held, want):
    """What was loaded beside what the source holds: everything held must be its, and no moment of its may lack."""
    wrong = [n for n in held if n not in want or not same(held[n], want[n])]
    lacks = [n for n in want if '/' in n and not n.startswith('step/') and n not in held]
    return (['other values: %s' % wrong[:4]] if wrong else []) + (['not loaded: %s' % lacks[:4]] if lacks else [])


def same(a, b):
    return a.shape == b.shape and torch.equal(a.float(), b.float())


def run_differs(e, got, coarse):
    _, losses, rates = recorded(e)
    out = []
    for i, (have, want) in enumerate(zip(got['losses'], losses)):
        limit = FP32 if not coarse else FIRST if i == 0 else LATER
        if not abs(have - want) <= limit * abs(want):
            out.append('loss %d is %.8g instead of %.8g' % (i, have, want))
    for have, want in zip(got['rates'], rates):
        if any(abs(h - w) > 1e-12 for h, w in zip(have, want)):
            out.append('learning rates %s instead of %s' % (have, want))
    return out


def judged(a, tmp, e, source, world, target, body):
    """Problems of one run; body(folder, out, rank)."""
    dst = tempfile.mkdtemp(dir=tmp)
    checks.ckpt(a, 'reshard', '-q', *target, '--to-tag', 'x', '-w', str(world), source, dst)
    got, error = ranks.run_ranks(world, lambda rank, out: body(dst, out, rank), 120)
    if error:
        return [ds_harness.short(error)]
    coarse = e.get('dtype', 'fp32') != 'fp32' or bool(e.get('mp_policy_param_dtype'))
    names = [x for x in target if x == '--keep-names']
    problems = held_differ(got['held'], flat(a, source, tmp, *names)) + run_differs(e, got, coarse)
    return problems, 'losses off by %.1e' % ds_harness.far(got['losses'][:len(recorded(e)[1])], recorded(e)[1])


def to_fsdp(a, tmp, path, e, source, world):
    data = load_file(os.path.join(path, 'batches.safetensors'))
    return judged(a, tmp, e, source, world, ('--to', 'dcp'),
                  lambda dst, out, rank: fsdp_rank(e, data, os.path.join(dst, 'x'), out, rank))


def to_ranks(a, tmp, path, e, source, world):
    data = load_file(os.path.join(path, 'batches.safetensors'))
    return judged(a, tmp, e, source, world, ('--to', 'fsdp-ranks'),
                  lambda dst, out, rank: ranks_rank(e, data, os.path.join(dst, 'x'), world, out, rank))


def there_and_back(a, tmp, path, e, source, world, stage, ranks_after):
    between = tempfile.mkdtemp(dir=tmp)
    checks.ckpt(a, 'reshard', '-q', '-s', str(stage), '-w', str(world), source, between)
    return to_fsdp(a, tmp, path, e, between, ranks_after)


def to_zero(a, tmp, path, e, source, world, stage, own=''):
    data = load_file(os.path.join(path, 'batches.safetensors'))
    return judged(a, tmp, e, source, world, ('-s', str(stage)),
                  lambda dst, out, rank: zero_rank(e, data, dst, stage, own, out, rank))


def jobs():
    """(check, its label, fixture, target) of each table above."""
    for cases, go, words in ((TO_FSDP, to_fsdp, '%d ranks of FSDP2'), (TO_ZERO, to_zero, '%d ranks of stage %d'),
                             (TO_RANKS, to_ranks, '%d ranks of FSDP2 by number'),
                             (THERE_AND_BACK, there_and_back, '%d ranks of stage %d to %d of FSDP2')):
        for name, targets in cases.items():
            for target in targets:
                yield go, words, name, target if isinstance(target, tuple) else (target,)


def main():
    a = checks.arguments('fixtures')
    tally = checks.Tally(a.verbose)
    ranks.prepare()
    import transformers.models.llama.modeling_llama  # noqa: F401  before any fork
    with checks.scratch() as tmp:
        for go, words, name, target in jobs() if a.only else checks.mine(jobs()):
            path = os.path.join(a.fixtures, name)
            if a.only and name not in a.only:
                continue
            if not os.path.isdir(path):
                tally.add(name, ['the fixture is absent'])
                continue
            e = ds_harness.read_expected(path)
            n = words.count('%')
            label = ' '.join((name, 'to', words % target[:n], *target[n:]))
            tally.call(label, go, a, tmp, path, e, os.path.join(path, e['checkpoint']), *target)
    return tally.end('interop fsdp')


if __name__ == '__main__':
    sys.exit(main())
