#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Muon runs handed between DeepSpeed, zerotrain and `ckpt reshard`, with the losses that DeepSpeed's own resume gives.

    muon.py --bin build/bin [NAME...] [-v]

For each run of RUNS the unmodified DeepSpeed trains a small GPT-2 to update SAVED and saves; its own resume up to END is the
measure.  Then
  * zerotrain resumes that checkpoint, trains to TURN and saves; DeepSpeed loads the result and goes on to END;
  * `ckpt reshard` writes it for other stages and worlds (TARGETS); DeepSpeed loads each and goes on to END, and so does
    zerotrain where the world is 1.
All ranks get the same batches, so that a run's losses do not depend on its world.
"""
import json
import os
import sys
import tempfile

import checks
import ranks

os.environ['DS_ACCELERATOR'] = 'cpu'
os.environ['TORCHDYNAMO_DISABLE'] = '1'   # DeepSpeed compiles its iteration: longer than all of this takes
os.environ['GLOO_SOCKET_IFNAME'] = 'lo'
SAVED, TURN, END = 3, 6, 9
MICRO, SEQ, VOCAB = 2, 8, 40
MODEL = {'vocab_size': VOCAB, 'n_positions': 16, 'n_embd': 12, 'n_layer': 2, 'n_head': 3, 'resid_pdrop': 0.0, 'embd_pdrop': 0.0,
         'attn_pdrop': 0.0, 'model_type': 'gpt2', 'architectures': ['GPT2LMHeadModel']}
# Name: (stage, world, precision, more of zero_optimization, more of the configuration, groups with and without decay)
RUNS = {
    # Stage 0 and BF16_Optimizer clip gradients, the other classes the directions made of them: no clipping where they meet.
    'z0_fp32': (0, 2, 'fp32', {}, {'gradient_clipping': 0.0}, True),
    'z1_fp32': (1, 2, 'fp32', {}, {}, False),
    'z1_fp32_torch': (1, 2, 'fp32', {}, {'optimizer': {'type': 'Muon', 'params': {
        'lr': 0.02, 'adam_lr': 0.001, 'momentum': 0.9, 'betas': [0.8, 0.9], 'torch_adam': True}}}, False),
    'z1_bf16': (1, 3, 'bf16', {}, {}, False),
    'z1_bf16_fp32acc': (1, 2, 'bf16', {}, {'data_types': {'grad_accum_dtype': 'fp32'}, 'gradient_clipping': 0.0}, False),
    'z2_fp32_groups': (2, 2, 'fp32', {}, {}, True),
    'z2_bf16': (2, 2, 'bf16', {}, {'gradient_accumulation_steps': 2}, False),
    'z2_bf16_roundrobin': (2, 3, 'bf16', {'round_robin_gradients': True}, {}, True),
    'z2_bf16_offload': (2, 2, 'bf16', {'offload_optimizer': {'device': 'cpu'}}, {}, False),
    'z2_fp32_aligned': (2, 3, 'fp32', {'parameter_alignment': True}, {}, False),
    'z3_fp32': (3, 2, 'fp32', {}, {}, False),
    'z3_fp32_init': (3, 2, 'fp32', {}, {}, False),   # made under zero.Init
    'z3_bf16_subgroups': (3, 3, 'bf16', {'sub_group_size': 500}, {}, True),
}
TARGETS = {   # run: (stage, world) to go to
    'z0_fp32': ((1, 3), (3, 2)),
    'z1_fp32_torch': ((2, 1),),
    'z1_fp32': ((2, 3), (3, 2)),
    'z1_bf16_fp32acc': ((3, 3), (2, 2)),
    'z2_fp32_groups': ((1, 3), (3, 1), (2, 3)),
    'z2_bf16': ((3, 3), (1, 1)),
    'z2_bf16_roundrobin': ((1, 2),),
    'z2_bf16_offload': ((2, 3), (3, 2)),
    'z2_fp32_aligned': ((2, 2), (3, 2)),
    'z3_fp32': ((1, 3), (2, 1)),
    'z3_fp32_init': ((2, 2), (3, 1)),
    'z3_bf16_subgroups': ((1, 1), (2, 2)),
}
ALONE = ('z2_fp32_aligned',)   # settings that zerotrain refuses
# Of losses.  The iteration makes much of the last bits: DeepSpeed's own runs of two worlds or stages are up to 1e-3 apart,
# those of a momentum that begins at zero more than 1e-2.
LIMIT = {'fp32': 2e-3, 'bf16': 2e-3}


def config(name, stage=None):
    """The ds_config of a run, also for another stage."""
    own, _, kind, zero, more, _ = RUNS[name]
    stage = own if stage is None else stage
    zero = {k: v for k, v in zero.items() if k == 'offload_optimizer' or (k == 'sub_group_size') == (stage == 3)}
    c = {'train_micro_batch_size_per_gpu': MICRO, 'gradient_accumulation_steps': 1, 'gradient_clipping': 5.0,
         'optimizer': {'type': 'Muon', 'params': {'lr': 0.002, 'muon_lr': 0.05, 'weight_decay': 0.01}},
         'zero_optimization': {'stage': stage, **zero}, **more}
    if stage == 3:
        c['zero_optimization'].update(reduce_scatter=False, stage3_param_persistence_threshold=0)
    if stage != 1:
        c.pop('data_types', None)
    if kind != 'fp32':
        c[kind] = {'enabled': True}
    return c


def batches(world):
    """The same batch for every rank of a micro step."""
    import torch
    torch.manual_seed(11)
    ids = torch.randint(0, VOCAB, (2 * END, 1, MICRO, SEQ)).expand(-1, world, -1, -1).contiguous()
    return {'in/input_ids': ids, 'in/labels': ids.clone()}


# ---- DeepSpeed ----

def rank_main(job, rank, out):
    import torch
    import deepspeed
    from transformers import GPT2Config, GPT2LMHeadModel
    model_config = GPT2Config.from_dict(MODEL)
    model_config._attn_implementation = 'eager'
    torch.manual_seed(5 if job['load'] else 3)   # what a checkpoint should bring must come from it
    c = config(job['name'], job['stage'])
    init = job['name'].endswith('_init') and c['zero_optimization']['stage'] == 3
    with deepspeed.zero.Init(config_dict_or_path=c, enabled=init):
        model = GPT2LMHeadModel(model_config).train()
    groups = list(model.parameters())
    if RUNS[job['name']][5]:
        groups = [{'params': [p for p in groups if p.ndim > 1]},
                  {'params': [p for p in groups if p.ndim <= 1], 'weight_decay': 0.0}]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=groups, config=c)
    if job['load']:
        path, _ = engine.load_checkpoint(job['load'])
        if path is None or engine.global_steps != job['first']:
            raise RuntimeError('DeepSpeed loads nothing, or not step %d' % job['first'])
    data, gas, losses = batches(1), engine.gradient_accumulation_steps(), []
    for step in range(job['first'], job['end']):
        losses.append(0.0)
        for micro in range(gas):
            loss = engine(**{k[3:]: v[step * gas + micro, 0] for k, v in data.items()}).loss
            engine.backward(loss)
            engine.step()
            losses[-1] += loss.item() / gas
    if job['save']:
        engine.save_checkpoint(job['save'])
    if rank == 0:
        torch.save(losses, out)


def deepspeed_run(name, world, first, end, load=None, save=None, stage=None):
    """Losses of the updates first..end-1."""
    job = {'name': name, 'first': first, 'end': end, 'load': load, 'save': save, 'stage': stage}
    losses, error = ranks.run_ranks(world, lambda rank, out: rank_main(job, rank, out), 120)
    if error:
        raise RuntimeError('DeepSpeed: ' + error.splitlines()[-1])
    return losses


# ---- our programs ----

def zerotrain(a, name, world, end, load, save=None, stage=None):
    """Losses of the updates from the checkpoint's on."""
    from safetensors.torch import save_file
    with tempfile.TemporaryDirectory() as tmp:
        for file, value in (('config.json', config(name, stage)), ('model.json', MODEL)):
            with open(os.path.join(tmp, file), 'w', encoding='utf-8') as f:
                json.dump(value, f)
        save_file(batches(world), os.path.join(tmp, 'data.safetensors'))
        options = ['--deepspeed_config', os.path.join(tmp, 'config.json'), '--model', os.path.join(tmp, 'model.json'),
                   '--data', os.path.join(tmp, 'data.safetensors'), '--load', load, '--max-steps', str(end),
                   '--param-groups', 'decay' if RUNS[name][5] else 'single'] + (['--save', save] if save else [])
        return checks.zerotrain(os.path.join(a.bin, 'zerotrain'), options, world, os.path.join(tmp, 'metrics'))


# ---- what is compared ----

def near(name, want, run):
    """What is wrong with the losses that run() gives, and how near they came."""
    got = run()
    off = max(abs(x - y) for x, y in zip(got, want)) if len(got) == len(want) and got else float('inf')
    bad = [] if off <= LIMIT[RUNS[name][2]] else ['losses off by %.2g: %s instead of %s' % (off, got, want)]
    return bad, 'off by %.2g' % off


def check(a, tally, name, tmp):
    world = RUNS[name][1]
    source, turned = os.path.join(tmp, 'source'), os.path.join(tmp, 'turned')
    try:
        deepspeed_run(name, world, 0, SAVED, save=source)
        want = deepspeed_run(name, world, SAVED, END, load=source)
    except RuntimeError as e:
        tally.add(name + ', the original', [str(e)])
        return
    if name not in ALONE and tally.call(name + ', zerotrain', near, name, want[:TURN - SAVED],
                                        lambda: zerotrain(a, name, world, TURN, source, turned)):
        tally.call(name + ', DeepSpeed after zerotrain', near, name, want[TURN - SAVED:],
                   lambda: deepspeed_run(name, world, TURN, END, load=turned))
    for to_stage, to_world in TARGETS.get(name, ()):
        target, where = os.path.join(tmp, 'z%d_w%d' % (to_stage, to_world)), 'stage %d world %d' % (to_stage, to_world)

        def resharded(target=target, s=to_stage, w=to_world):
            problems = checks.reshard(a, source, target, w, s)
            if problems:
                raise RuntimeError(problems[0])
            return deepspeed_run(name, w, SAVED, END, load=target, stage=s)
        if tally.call('%s, DeepSpeed after reshard to %s' % (name, where), near, name, want, resharded) and to_world == 1:
            tally.call('%s, zerotrain after reshard to %s' % (name, where), near, name, want,
                       lambda target=target, s=to_stage: zerotrain(a, name, 1, END, target, stage=s))


def main():
    a = checks.arguments()
    a.bin = os.path.abspath(a.bin)
    try:
        from transformers import GPT2LMHeadModel   # before any fork
        assert GPT2LMHeadModel
        ranks.prepare()
    except ImportError:
        print('interop muon: skipped (no torch, transformers and DeepSpeed)')
        return 0
    tally = checks.Tally(a.verbose)
    for name in a.only or checks.mine(RUNS):
        with checks.scratch() as tmp:
            check(a, tally, name, tmp)
    return tally.end('interop muon')


if __name__ == '__main__':
    sys.exit(main())
