#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prodigy under ZeRO, whose group values differ by rank, and DeepSpeed going on from what `ckpt reshard` makes of it.

    prodigy.py --bin build/bin [NAME...] [-v]

For each stage the unmodified DeepSpeed trains a small network with prodigyopt's Prodigy to update SAVED, saves, and goes on
to END: its losses, and what each rank then has in its groups, are the measure.  Then
  * `ckpt verify --strict` has nothing against the run;
  * `ckpt reshard --strict` writes it for the same partitions (TARGETS), from which DeepSpeed goes on to the same numbers;
  * other partitions get rank 0's values with a warning, which --strict refuses; DeepSpeed loads and trains.
"""
import os
import subprocess
import sys

import checks
import ranks

os.environ['DS_ACCELERATOR'] = 'cpu'
os.environ['TORCHDYNAMO_DISABLE'] = '1'
os.environ['GLOO_SOCKET_IFNAME'] = 'lo'
try:
    import prodigyopt
except ImportError:
    print('interop prodigy: skipped (no prodigyopt)')
    sys.exit(0)

SAVED, END, WORLD = 3, 6, 2
# run: (stage, precision); target: (stage, world, whether the partitions stay)
RUNS = {'z1_bf16': (1, 'bf16'), 'z2_fp32': (2, 'fp32'), 'z3_fp32': (3, 'fp32')}
# Sizes of the model.  DeepSpeed's stage 3 pads odd partitions with memory that it never sets, so d may become NaN: none there.
SIZES = {'z3_fp32': (16, 4)}
TARGETS = {'z1_bf16': ((1, 2, True), (2, 2, True), (1, 3, False), (3, 2, False)),
           'z2_fp32': ((2, 2, True), (1, 1, False)),
           'z3_fp32': ((3, 2, True), (3, 4, False))}


def rank_main(job, rank, out):
    import deepspeed
    import torch
    torch.manual_seed(5 if job['load'] else 3)   # what a checkpoint should bring must come from it
    model = torch.nn.Sequential(torch.nn.Linear(8, job['sizes'][0]), torch.nn.Tanh(), torch.nn.Linear(*job['sizes']))
    optimizer = prodigyopt.Prodigy(model.parameters(), lr=1.0, d0=1e-3)
    config = {'train_micro_batch_size_per_gpu': 4, 'gradient_clipping': 0.0, 'zero_allow_untested_optimizer': True,
              'zero_optimization': {'stage': job['stage']}}
    if job['kind'] != 'fp32':
        config[job['kind']] = {'enabled': True}
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    first = 0
    if job['load']:
        path, _ = engine.load_checkpoint(job['load'])
        if path is None or engine.global_steps != SAVED:
            raise RuntimeError('DeepSpeed loads nothing, or not step %d' % SAVED)
        first = SAVED
    data = torch.Generator().manual_seed(1)
    batches = torch.randn(END, 4, 8, generator=data)
    losses, groups = [], []

    def keep():
        fields = [{k: v for k, v in g.items() if isinstance(v, float)} for g in optimizer.param_groups]
        everyone = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(everyone, fields)
        groups.append(everyone)
    kind = next(engine.module.parameters()).dtype
    for step in range(first, END):
        if step == SAVED:
            keep()
        x = batches[step].to(kind)
        loss = (engine(x) - x.sum(1, keepdim=True)).float().pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(float(loss))
        if job['save'] and step == SAVED - 1:
            engine.save_checkpoint(job['save'])
    keep()
    if rank == 0:
        torch.save((losses[SAVED - first:], groups), out)


def deepspeed_run(name, stage, kind, world, load=None, save=None):
    job = dict(stage=stage, kind=kind, sizes=SIZES.get(name, (17, 1)), load=load, save=save)
    return ranks.run_ranks(world, lambda rank, out: rank_main(job, rank, out), 600)


def ckpt(arguments, *command):
    done = subprocess.run([os.path.join(arguments.bin, 'ckpt'), *command], capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def target(arguments, name, kind, folder, to, want):
    stage, world, stays = to
    made = os.path.join(folder, 'to_%d_%d' % (stage, world))
    command = ['reshard', os.path.join(folder, 'run'), made, '--stage', str(stage), '--world', str(world)]
    code, text = ckpt(arguments, *command, '--strict')
    if code != (0 if stays else 9):
        return ['reshard --strict: status %d: %s' % (code, text[-500:])]
    if not stays:
        code, text = ckpt(arguments, *command)
        if code or 'd_numerator' not in text or 'rank 0' not in text:
            return ['reshard: status %d: %s' % (code, text[-500:])]
    code, text = ckpt(arguments, 'verify', '--strict', made)
    if code:
        return ['verify: status %d: %s' % (code, text[-500:])]
    found, error = deepspeed_run(name, stage, kind, world, load=made)
    if found is None:
        return [error[-900:]]
    losses, groups = found
    if not stays:
        first = want[1][0][0]
        wrong = [g for g in groups[0] if g != first]
        return ['a rank begins with %s, rank 0 had %s' % (wrong[0], first)] if wrong else []
    if groups[0] != want[1][0]:
        return ['ranks begin with %s, had %s' % (groups[0], want[1][0])]
    # the same numbers where the stage is the same, too
    return ['losses %s, DeepSpeed\'s own %s' % (losses, want[0])] if losses != want[0] else []


def main():
    arguments = checks.arguments()
    ranks.prepare(builders=())
    arguments.bin = os.path.abspath(arguments.bin)
    tally = checks.Tally(arguments.verbose)
    for name in arguments.only or RUNS:
        stage, kind = RUNS[name]
        with checks.scratch() as folder:
            run = os.path.join(folder, 'run')
            want, error = deepspeed_run(name, stage, kind, WORLD, save=run)
            if want is None:
                tally.add(name, ['DeepSpeed itself: ' + error[-900:]])
                continue
            if want[1][0][0] == want[1][0][1]:
                tally.add(name, ['ranks have the same values: nothing is tried'])
            code, text = ckpt(arguments, 'verify', '--strict', run)
            tally.add(name + ': verify', [text[-500:]] if code or 'd_numerator' not in text else [])
            for to in TARGETS[name]:
                tally.add('%s to stage %d, %d ranks' % (name, *to[:2]), target(arguments, name, kind, folder, to, want))
    return tally.end('Prodigy')


if __name__ == '__main__':
    sys.exit(main())
