#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run handed from DeepSpeed to zerotrain and back: what one saves the other continues.

    engine_resume.py [--bin build/bin] GOLDEN [RUN...] [-v]

GOLDEN holds runs of DeepSpeed (runs_w*.json) with the checkpoint that each saved after update 10 and what it computed from
there on.  zerotrain resumes that checkpoint, trains up to update 14 and saves; the unmodified DeepSpeed loads the result
strictly, into a model with other weights, and goes on to 18.  Both parts' losses, learning rates and skipped steps are compared
with the uninterrupted run's.
"""
import json
import os
import sys

os.environ['DS_ACCELERATOR'] = 'cpu'
try:
    import checks
    import ds_harness
    import ranks
except ImportError:
    print('interop engine resume: skipped (no torch and DeepSpeed)')
    sys.exit(0)

FROM, TURN, END = 10, 14, 18
RUNS = ('gpt2_z0_fp32', 'gpt2_z0_bf16', 'gpt2_z1_fp16', 'gpt2_z1_bf16_gas2_accum32', 'gpt2_z2_fp32', 'gpt2_z2_fp32_roundrobin',
        'gpt2_z2_bf16_offload', 'gpt2_z3_bf16_groups', 'gpt2_z3_fp32_subgroups')
LIMIT = {'fp32': 5e-6, 'fp16': 9e-4, 'bf16': 7e-3}   # of mean losses: the goldens' tolerance and that of a resume


def find(golden, name):
    """The run of that name."""
    for world in (1, 2, 3):
        with open(os.path.join(golden, 'runs_w%d.json' % world), encoding='utf-8') as f:
            for run in json.load(f)['runs']:
                if run['name'] == name:
                    return run
    sys.exit('no run %s in %s' % (name, golden))


def precision(run):
    return next((k for k in ('fp16', 'bf16') if run['ds_config'].get(k, {}).get('enabled')), 'fp32')


def expected(run, first, end):
    """Mean loss over ranks and micro steps, of updates first..end-1 after a resume at FROM."""
    rows = run['resume']['loss'][first - FROM:end - FROM]
    return [sum(map(sum, row)) / sum(map(len, row)) for row in rows]


# ---- zerotrain ----

def train(engine, golden, run, folder):
    """Resume at FROM, save at TURN; the losses of its updates."""
    config = os.path.join(folder, 'config.json')
    with open(config, 'w', encoding='utf-8') as f:
        json.dump(run['ds_config'], f)
    options = ['--deepspeed_config', config, '--model', os.path.join(golden, 'run_model_%s.json' % run['model']),
               '--data', os.path.join(golden, 'run_data_%s.safetensors' % run['model']), '--load', os.path.join(golden, run['ckpt']),
               '--max-steps', str(TURN), '--save', os.path.join(folder, 'save'),
               '--param-groups', 'decay' if run['groups'] else 'single']
    return checks.zerotrain(engine, options, run['world'], os.path.join(folder, 'metrics.jsonl'))


# ---- DeepSpeed ----

def rank_main(golden, run, folder, rank, out):
    """One rank of DeepSpeed, from TURN to END."""
    import deepspeed
    import torch
    from safetensors.torch import load_file
    from transformers import GPT2Config, GPT2LMHeadModel
    ds_harness.patch()
    with open(os.path.join(golden, 'run_model_%s.json' % run['model']), encoding='utf-8') as f:
        config = GPT2Config.from_dict(json.load(f))
    config._attn_implementation = 'eager'
    torch.manual_seed(5)
    model = GPT2LMHeadModel(config).train()
    groups = list(model.parameters())
    if run['groups']:
        groups = [{'params': [p for p in groups if p.ndim > 1]},
                  {'params': [p for p in groups if p.ndim <= 1], 'weight_decay': 0.0}]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=groups, config=run['ds_config'])
    path, _ = engine.load_checkpoint(os.path.join(folder, 'save'))
    if path is None or engine.global_steps != TURN:
        raise RuntimeError('DeepSpeed loads nothing, or not step %d' % TURN)
    data = load_file(os.path.join(golden, 'run_data_%s.safetensors' % run['model']))
    gas = engine.gradient_accumulation_steps()
    rows, lrs = [], []
    for step in range(TURN, END):
        lrs.append(engine.get_lr()[0])
        row = []
        for micro in range(gas):
            batch = {k[3:]: v[step * gas + micro, rank] for k, v in data.items() if k.startswith('in/')}
            loss = engine(**batch).loss
            engine.backward(loss)
            engine.step()
            row.append(loss.item())
        rows.append(row)
    every = [None] * run['world']
    torch.distributed.all_gather_object(every, rows)
    if rank == 0:
        losses = [sum(map(sum, at)) / len(every) / gas for at in zip(*every)]
        torch.save({'loss': losses, 'lr': lrs, 'skipped': engine.skipped_steps}, out)


def finish(golden, run, folder):
    """What DeepSpeed makes of the save."""
    result, error = ranks.run_ranks(run['world'], lambda rank, out: rank_main(golden, run, folder, rank, out), 900)
    if error:
        raise RuntimeError('DeepSpeed: ' + ds_harness.short(error))
    return result


# ---- one run ----

def far(a, b):
    return max(abs(x - y) for x, y in zip(a, b)) if len(a) == len(b) and a else float('inf')


def check(engine, golden, name):
    """What is wrong, and how near both came."""
    run = find(golden, name)
    with checks.scratch() as folder:
        ours = far(train(engine, golden, run, folder), expected(run, FROM, TURN))
        result = finish(golden, run, folder)
    theirs = far(result['loss'], expected(run, TURN, END))
    rates = far(result['lr'], [row[0] for row in run['resume']['lr'][TURN - FROM:END - FROM]])
    skipped = sum(run['overflow'][:FROM]) + sum(run['resume']['overflow'][:END - FROM])
    limit, problems = LIMIT[precision(run)], []
    if ours > limit or theirs > limit:
        problems.append('losses are off by more than %g' % limit)
    if rates > 1e-12:
        problems.append('learning rates are off by %g' % rates)
    if result['skipped'] != skipped:
        problems.append('%d skipped steps, not %d' % (result['skipped'], skipped))
    return problems, 'zerotrain off by %.2g, then DeepSpeed by %.2g' % (ours, theirs)


def main():
    a = checks.arguments('golden')
    tally = checks.Tally(a.verbose)
    ranks.prepare()
    from transformers import GPT2LMHeadModel   # before any fork
    assert GPT2LMHeadModel
    for name in a.only or RUNS:
        tally.call(name, check, os.path.abspath(os.path.join(a.bin, 'zerotrain')), os.path.abspath(a.golden), name)
    return tally.end('interop engine resume')


if __name__ == '__main__':
    sys.exit(main())
