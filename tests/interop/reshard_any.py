#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified DeepSpeed goes on from what `ckpt reshard` makes of checkpoints that come without their run.

    reshard_any.py --bin build/bin FIXTURES [NAME...] [-v]

Names, shapes, ties, groups, optimizer and configuration are read from the checkpoint; the model is made of those names alone, and its
loss of its parameters alone: no batches are needed, and every rank has the same gradient.  DeepSpeed loads the original at its
own world and stage; each resharded folder must then give the same masters, moments, steps, groups, scaler, counters and client
state, bit for bit, and the losses of the next steps: in fp32 to 1e-6 (relative), in 16 bits to 1e-3.  Fixtures: every k_*;
those that are named go to every world at every stage.
"""
import dataclasses
import os
import sys
import tempfile

os.environ['DS_ACCELERATOR'] = 'cpu'
try:
    import checks
    import ds_harness
    import ranks
    import reshard_resume
except ImportError:
    print('interop reshard any: skipped (no torch and DeepSpeed)')
    sys.exit(0)

TARGETS = [(w, s) for s in (1, 2, 3) for w in (1, 2, 3)]


def targets(number):
    """Each fixture goes to each stage and to each world; which world at which stage turns with the fixture's number."""
    return [((number + s) % 3 + 1, s) for s in (1, 2, 3)]


# What is not tried here, and why.
SKIPPED = {
    'k_muon_z1': 'Muon asks for settings of its own at each stage',
    'k_muon_z2': 'Muon asks for settings of its own at each stage',
}
# Optimizers that look at a rank's whole partition: another world computes something else, and so do its losses.
# ZenFlow takes the largest of a rank's gradients first; at stage 3 it needs a GPU, and the run goes on without it.
WHOLE = ('k_adafactor_z2', 'k_zenflow_z2')
# The 16-bit copies are not the masters rounded; stage 3 keeps no copies, and DeepSpeed makes them of the masters.
OTHER_COPIES = ('k_zenflow_z2',)
# Shapes of parameters that a save without frozen ones does not say.
SHAPES = {'k_exclfrozen_z2': {'wte.weight': [31, 12], 'wpe.weight': [8, 12]},
          'k_exclfrozen_z3': {'wte.weight': [31, 12], 'wpe.weight': [8, 12]}}


def find_run(path):
    """The folder that has `latest`, and its tag folder."""
    for folder, _, files in sorted(os.walk(path)):
        if 'latest' in files:
            with open(os.path.join(folder, 'latest'), encoding='utf-8') as f:
                return folder, os.path.join(folder, f.read().strip())
    raise RuntimeError('%s: no `latest`' % path)


def optimizer_class(group):
    """A client's optimizer, by what its groups hold."""
    if 'momentum_decay' in group:
        return 'NAdam'
    if 'etas' in group:
        return 'Rprop'
    if 'scale_parameter' in group:
        return 'Adafactor'
    if 'nesterov' in group:
        return 'SGD'
    if set(group) <= {'lr', 'params'}:
        return 'HybridState'
    return 'AdamW'


def load(path):
    import torch
    return torch.load(path, weights_only=False, map_location='cpu')


def shapes_of(model, optims, name):
    """Every parameter's shape by name: module order first; placeholders of stage 3 say none."""
    known = {}
    for d in model['param_shapes']:
        known.update({n: list(s) for n, s in d.items()})
    known.update({n: list(s) for n, s in (model.get('frozen_param_shapes') or {}).items()})
    known.update(SHAPES.get(name, {}))
    return known


def describe(name, path):
    """What expected.json says of other fixtures, of the checkpoint itself."""
    folder, tag = find_run(path)
    files = sorted(os.listdir(tag))
    model = load(os.path.join(tag, [f for f in files if f.endswith('model_states.pt')][0]))
    optims = [f for f in files if f.endswith('optim_states.pt')]
    osd = load(os.path.join(tag, optims[0]))['optimizer_state_dict']
    base = osd.get('base_optimizer_state') or osd['optimizer_state_dict']
    config = model['ds_config']
    stage = config['zero_optimization']['stage']
    shapes, tied = shapes_of(model, optims, name), dict(model.get('shared_params') or {})
    frozen = [n for n in shapes if not any(n in d for d in model['param_shapes'])]
    buffers = {n: model['module'][n] for n in model['buffer_names'] if n in model['module']}
    order = [n for n in model['module'] if n not in buffers and n not in tied]
    for n in order:   # stage 1 lists no frozen parameters
        if n not in shapes:
            shapes[n] = list(model['module'][n].shape)
            frozen.append(n)
    excluded = [n for n in shapes if n not in model['module']]
    # A run has what its saves leave out from where it began; stages 1 and 2 show it under a second name.
    began = {tied[n]: v for n, v in model['module'].items() if n in tied and tied[n] in excluded and v.numel()}
    lists, groups = [list(d) for d in model['param_shapes']], []
    for g in base['param_groups']:
        names = []
        for _ in (g['params'] if stage == 3 else [0]):
            names += lists.pop(0)
        groups.append({**{k: v for k, v in g.items() if k != 'params'}, 'params': names})
    dtype = 'bf16' if config.get('bf16', {}).get('enabled') is True else 'fp16' if config.get('fp16', {}).get('enabled') is True else 'fp32'
    return folder, {
        'model': {'kind': 'any'}, 'shapes': {n: shapes[n] for n in excluded + order}, 'tied': tied, 'frozen': frozen, 'began': began,
        'buffers': buffers, 'persistent_buffers': list(buffers), 'param_order': excluded + order, 'ds_config': config,
        'stage': stage, 'world': len(optims), 'micro': 1, 'gas': config.get('gradient_accumulation_steps', 1), 'dtype': dtype,
        'global_step': model['global_steps'], 'producer': {'deepspeed': model['ds_version']}, 'lr_scheduler': None,
        'exclude_frozen_parameters': bool(excluded), 'tag': os.path.basename(tag),
        'optimizer': {'cls': config['optimizer']['type'] if 'optimizer' in config else optimizer_class(groups[0]),
                      'param_groups': groups}}


def case(name, path, folder, e, world, stage, tag=None):
    drop = ('zenflow',) if stage == 3 else ()
    return ds_harness.Case(name, path, folder, world, stage, tag=tag, steps=3, expected=e, wrong=False, whole=True, drop=drop)


def one(a, tmp, name, path, e, src, original, world, stage):
    """Problems of one case."""
    dst = tempfile.mkdtemp(prefix='%s_w%d_z%d_' % (name, world, stage), dir=tmp)
    problems = checks.reshard(a, src, dst, world, stage, ('--keep-objects',))
    if problems:
        return problems
    r = ds_harness.run_one(case(name, path, dst, e, world, stage))
    if r.error:
        return ['DeepSpeed: ' + ds_harness.short(r.error)]
    if name in OTHER_COPIES and stage == 3:
        module = {n: original.weights[n].to(v.dtype) if n in original.weights else v for n, v in original.module.items()}
        original = dataclasses.replace(original, module=module)
    same = (world == e['world'] and (stage < 3) == (e['stage'] < 3)) or name not in WHOLE
    return reshard_resume.held_differ(r, original) + (reshard_resume.run_differs(name, e, r, original, original.losses)
                                                      if same else [])


def main():
    a = checks.arguments('fixtures')
    tally = checks.Tally(a.verbose)
    ranks.prepare()
    from transformers import Adafactor   # before any fork
    assert Adafactor
    names = sorted(n for n in os.listdir(a.fixtures) if n.startswith('k_'))
    with checks.scratch() as tmp:
        for number, name in enumerate(names) if a.only else checks.mine(enumerate(names)):
            if a.only and name not in a.only:
                continue
            if name in SKIPPED:
                print('%s: not tried: %s' % (name, SKIPPED[name]))
                continue
            path = os.path.join(a.fixtures, name)
            src, e = describe(name, path)
            original = ds_harness.run_one(case(name, path, src, e, e['world'], e['stage'], e['tag']))
            if original.error:
                tally.add(name, ['the original: ' + ds_harness.short(original.error)])
                continue
            for world, stage in TARGETS if a.only else targets(number):
                tally.call('%s to world %d stage %d' % (name, world, stage), one,
                           a, tmp, name, path, e, src, original, world, stage)
    return tally.end('interop reshard any')


if __name__ == '__main__':
    sys.exit(main())
