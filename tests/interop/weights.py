#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Averaged weights as the model's (ckpt convert --weights), with the programs that average as the truth.

    weights.py --bin build/bin [NAME...] [-v]

schedulefree's optimizers train a small model, which is saved in training mode, and switched to evaluation: the weights that the
program then has are those that `--weights schedule-free` must compute, bit for bit.  torch's AveragedModel makes the averages.
"""
import os
import subprocess
import sys

import checks

os.environ['DS_ACCELERATOR'] = 'cpu'
os.environ['GLOO_SOCKET_IFNAME'] = 'lo'
DEEPSPEED = {'train_batch_size': 2, 'zero_allow_untested_optimizer': True, 'zero_force_ds_cpu_optimizer': False}
# name: (class, dtype, settings)
FREE = {
    'adamw': ('AdamWScheduleFree', 'float32', {}),
    'adamw_near': ('AdamWScheduleFree', 'float32', {'betas': (0.8, 0.99)}),
    'adamw_far': ('AdamWScheduleFree', 'float32', {'betas': (0.5, 0.99)}),
    'adamw_bf16': ('AdamWScheduleFree', 'bfloat16', {}),
    'sgd': ('SGDScheduleFree', 'float32', {}),
    'radam_f64': ('RAdamScheduleFree', 'float64', {}),
}
ZERO = {'zero2_bf16': (2, True)}


def trained(cls='AdamWScheduleFree', dtype='float32', more=None, steps=5):
    """A model after some steps, in training mode, with a parameter that never had a gradient; and its optimizer."""
    import schedulefree
    import torch

    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(5, 37), torch.nn.Tanh(), torch.nn.Linear(37, 3))
    model.register_parameter('unused', torch.nn.Parameter(torch.ones(4)))
    model = model.to(getattr(torch, dtype))
    optimizer = getattr(schedulefree, cls)(model.parameters(), lr=0.05, **(more or {}))
    if steps:   # it also makes state, which DeepSpeed would not find again
        optimizer.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model[2](model[1](model[0](torch.randn(4, 5, dtype=getattr(torch, dtype))))).square().mean().backward()
        optimizer.step()
    return model, optimizer


def copied(model, factor=1):
    return {k: v.detach().clone() * factor for k, v in model.state_dict().items()}


def differ(path, truth):
    """How the tensors of a safetensors file differ from a dict."""
    from safetensors.torch import load_file
    import torch

    found = load_file(path)
    problems = [] if set(found) == set(truth) else ['names %s instead of %s' % (sorted(found), sorted(truth))]
    return problems + [k for k in sorted(set(found) & set(truth))
                       if found[k].dtype != truth[k].dtype or not torch.equal(found[k], truth[k])]


def convert(ckpt, source, which, truth, warns=''):
    """Convert with --weights; without it, say whether the warning comes."""
    out = source + '.safetensors'
    ran = subprocess.run([ckpt, 'convert', '-f', source, out, '--weights', which], capture_output=True, text=True)
    if ran.returncode:
        return ['status %d: %s' % (ran.returncode, ran.stderr.strip()[-300:])]
    problems = differ(out, truth)
    said = subprocess.run([ckpt, 'convert', '-qf', '--ignore-copies', source, out], capture_output=True, text=True).stderr
    if bool(warns) != ('--weights schedule-free' in said) or warns not in said:
        problems.append('expected the warning %r, found %r' % (warns, said[-300:]))
    return problems


def free(ckpt, folder, name):
    import torch

    model, optimizer = trained(*FREE[name])
    path = os.path.join(folder, name + '.pt')
    torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, path)
    optimizer.eval()
    truth = copied(model)
    torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, path[:-3] + '_eval.pt')
    return (convert(ckpt, path, 'schedule-free', truth, 'was in training mode') +
            convert(ckpt, path[:-3] + '_eval.pt', 'schedule-free', truth))


def distributed(ckpt, folder, name):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    model, optimizer = trained()
    flat = StateDictOptions(flatten_optimizer_state_dict=name.endswith('flat'))
    weights, state = get_state_dict(model, optimizer, options=flat)
    path = os.path.join(folder, name)
    dcp.save({'model': weights, 'optimizer': state, 'ema': copied(model, 0.5)}, checkpoint_id=path, no_dist=True)
    half = copied(model, 0.5)
    optimizer.eval()
    mode = 'if its schedule-free optimizer was not switched'
    return convert(ckpt, path, 'schedule-free', copied(model), mode) + convert(ckpt, path, 'ema', half, mode)


def deepspeed_rank(stage, bf16, folder):
    """One rank of a DeepSpeed run: saves in training mode, then in evaluation mode."""
    import deepspeed
    import torch

    model, optimizer = trained(steps=0)
    config = dict(DEEPSPEED, zero_optimization={'stage': stage}, bf16={'enabled': bf16})
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    optimizer.train()
    for _ in range(3):
        engine.backward(sum(p.float().square().sum() for p in engine.module.parameters()))
        engine.step()
    engine.save_checkpoint(folder)
    optimizer.eval()
    engine.save_checkpoint(folder + '_eval')


def zero(ckpt, folder, name):
    stage, bf16 = ZERO[name]
    path = os.path.join(folder, name)
    ran = subprocess.run([sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node', '2', '--master-port', '29763', __file__,
                          '--rank', str(stage), str(int(bf16)), path], capture_output=True, text=True)
    if ran.returncode:
        return ['DeepSpeed: ' + ran.stderr[-300:]]
    # evaluation mode changes the masters, not their 16-bit copies
    out = path + '_truth.safetensors'
    subprocess.run([ckpt, 'convert', '-qf', '--ignore-copies', path + '_eval', out], check=True, capture_output=True)
    from safetensors.torch import load_file
    return convert(ckpt, path, 'schedule-free', load_file(out), 'was in training mode')


def averaged(ckpt, folder, name):
    """torch's AveragedModel, saved beside the model in four ways."""
    import torch

    model, optimizer = trained()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    with torch.no_grad():
        for p in model.parameters():
            p += 1
    average.update_parameters(model)
    truth = copied(average.module)
    path = os.path.join(folder, 'averaged.pt')
    problems = []
    for which, tree in (
            ('ema', {'model': model.state_dict(), 'model_ema': average.state_dict(), 'optimizer': optimizer.state_dict()}),
            ('swa_model', {'state_dict': model.state_dict(), 'swa_model': average.state_dict()}),
            ('ema', {**model.state_dict(), **{'ema.' + k: v for k, v in average.state_dict().items()}}),
            ('ema', {'model': {'module.' + k: v for k, v in copied(model).items()},
                     'ema': {'shadow': copied(average.module), 'decay': torch.tensor(0.9)}})):
        torch.save(tree, path)
        mode = 'was in training mode' if 'optimizer' in tree else ''
        problems += ['%s: %s' % (list(tree)[:2], p) for p in convert(ckpt, path, which, truth, mode)]
    return problems


CASES = {**{name: free for name in FREE}, 'dcp': distributed, 'dcp_flat': distributed, **{name: zero for name in ZERO}, 'averaged': averaged}


def main():
    if sys.argv[1:2] == ['--rank']:
        deepspeed_rank(int(sys.argv[2]), sys.argv[3] == '1', sys.argv[4])
        return 0
    args = checks.arguments()
    tally = checks.Tally(args.verbose)
    with checks.scratch() as folder:
        for name, check in CASES.items():
            if not args.only or name in args.only:
                tally.call(name, check, os.path.abspath(os.path.join(args.bin, 'ckpt')), folder, name)
    return tally.end('weights')


if __name__ == '__main__':
    sys.exit(main())
