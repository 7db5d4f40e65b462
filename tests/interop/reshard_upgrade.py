#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Today's unmodified DeepSpeed goes on from runs that old releases saved and that it cannot load itself.

    reshard_upgrade.py --bin build/bin FIXTURES [NAME...] [-v]

`ckpt reshard --deepspeed-version` of the installed release rewrites each fixture for several worlds and
stages.  The measure is expected.json, taken from the old run itself: DeepSpeed must hold its masters, moments,
steps, groups, buffers, loss scaler, scheduler and counters, bit for bit, and a module of the masters rounded.
The losses of the next five steps are finite and the old run's, to LIMIT (relative): the arithmetic of 16 bits
is another torch's, and small gradients round otherwise.  What the model `odd` computes is the harness' own, and
so are its losses: there those of the first world and stage are the measure.
"""
import hashlib
import math
import os
import sys
import tempfile

os.environ['DS_ACCELERATOR'] = 'cpu'
try:
    import checks
    import ds_harness
    import ranks
except ImportError:
    print('interop upgrade: skipped (no torch and DeepSpeed)')
    sys.exit(0)

NOW = '0.19.8'
# Fixture: (world, stage) to go to.
CASES = {
    'old0316_z1_fp16_w2': ((2, 1), (1, 2), (3, 3)),    # interleaved sub-partitions, two groups
    'old0316_z2_fp16_w3': ((3, 2), (2, 1), (2, 3)),    # lean state, a parameter without axes
    'old0316_z3_fp16_w2': ((2, 3), (1, 2), (3, 1)),    # step counted in the groups
    'old0510_z1_fp16_w3': ((3, 1), (2, 2), (2, 3)),
    'old0510_z3_bf16_w3': ((3, 3), (2, 2), (2, 1)),
    'old065_z2_fp16_w2': ((2, 2), (3, 1), (1, 3)),     # WarmupDecayLR
    'old065_z3_fp16_w3': ((3, 3), (2, 2), (1, 1)),     # many sub-groups
    'old077_z0_fp16_w2': ((2, 1), (3, 2), (2, 3)),
    'old077_z1_bf16_w2': ((2, 1), (3, 2), (1, 3)),
}
FIRST = 1e-3                                           # of the first loss: nothing has been updated yet
LIMIT = {'mlp': 1e-3, 'gpt': 3e-2, 'odd': 3e-2}        # the gpt's losses rise steeply
# These keep no hyper-parameters.  Stages 1 and 2 go on with the run's own, stage 3 with the file's: those are
# Adam's defaults, as reshard says.
LEAN = ('old0316_z1_fp16_w2', 'old0316_z2_fp16_w3')
# Nothing says what one name is tied to: stages 1 and 2 lack it, and DeepSpeed has to be asked not to be strict.
UNTIED = ('old065_z3_fp16_w3',)
# That release does not say what is a buffer, and reshard (in a warning) leaves out what may be one.
NO_BUFFERS = ('old0316_z2_fp16_w3',)
UNSAVED = ('scratch',)   # a buffer of the old runs that is not persistent


def digest(t):
    import torch
    t = t.detach().contiguous().reshape(-1)
    return hashlib.sha256(t.view(torch.uint8).numpy().tobytes() if t.numel() else b'').hexdigest()


def tensors_differ(what, got, want):
    """got: name -> tensor; want: name -> what expected.json says of it."""
    lacking = sorted(set(want) - set(got))
    wrong = [n for n, t in want.items() if n in got and
             (str(got[n].dtype), list(got[n].shape), digest(got[n])) !=
             ('torch.' + t['dtype'], t['shape'], t['sha256'])]
    return (['%s lacks %s' % (what, ', '.join(lacking[:3]))] if lacking else []) + \
        (['%s: other values in %d of %d: %s' % (what, len(wrong), len(want), ', '.join(wrong[:3]))] if wrong else [])


def values_differ(what, got, want):
    """The keys that both have; each release has some of its own."""
    both = [k for k in want if k in (got or {}) and k != 'params']
    return ['%s[%s] is %s instead of %s' % (what, k, got[k], want[k]) for k in both if got[k] != want[k]] + \
        (['%s: nothing to compare' % what] if want and not both else [])


def held_differ(name, e, r, stage):
    """What DeepSpeed holds after loading, beside what the old run held."""
    optimizer, steps = e['optimizer'], e['optimizer']['step']
    out = tensors_differ('masters', r.weights, {n: e['weights'][n] for n in e['param_order']})
    for kind, want in optimizer['state'].items():
        out += tensors_differ(kind, r.state.get(kind, {}), want)
    import torch
    out += ['module: %s is not its master rounded' % n for n, v in r.weights.items()
            if not torch.equal(r.module[n], v.to(r.module[n].dtype))]
    buffers = {} if name in NO_BUFFERS else {n: b for n, b in e['buffers'].items() if n not in UNSAVED}
    # today's engine keeps buffers in fp32, the old ones had them in 16 bits
    got = {n: v.to(getattr(torch, buffers[n]['dtype'])) for n, v in r.module.items() if n in buffers}
    out += tensors_differ('buffers', got, buffers)
    counted = set(r.steps) | {g['step'] for g in r.groups if not r.steps}
    if counted != set(steps['state'] + steps['group']):
        out.append('optimizer steps %s instead of %s' % (sorted(counted), steps))
    lean = name in LEAN and stage == 3
    if len(r.groups) < len(optimizer['param_groups']):
        out.append('%d groups only' % len(r.groups))
    for got, want in zip(r.groups, optimizer['param_groups']):
        out += values_differ('group', got, {**want, 'lr': 1e-3, 'weight_decay': 0.0} if lean else want)
    for what, got, want in (('loss_scaler', r.scaler, e['loss_scaler']), ('counters', r.counters, e['counters']),
                            ('scheduler', r.scheduler, (e['lr_scheduler'] or {}).get('state', {}))):
        out += values_differ(what, got, want)
    return out


def losses_differ(name, e, got, want, stage):
    if not all(map(math.isfinite, got)) or len(got) != ds_harness.STEPS:
        return ['losses %s' % got]
    first, later = ds_harness.far(got[:1], want[:1]), ds_harness.far(got, want)
    limit = 0.3 if name in LEAN and stage == 3 else LIMIT[e['model']['kind']]   # of other hyper-parameters
    return ['losses off by %.2g at first, then by %.2g: %s instead of %s' % (first, later, got, want)] \
        if first > FIRST or later > limit else []


def one(a, tmp, name, path, e, measure, world, stage):
    """Problems and a note; measure gets the losses that the next worlds and stages are to have."""
    dst = tempfile.mkdtemp(prefix='%s_w%d_z%d_' % (name, world, stage), dir=tmp)
    src = os.path.join(path, e['checkpoint'])
    problems = checks.reshard(a, src, dst, world, stage, ('--deepspeed-version', NOW))
    if problems:
        return problems
    r = ds_harness.run_one(ds_harness.Case(name, path, dst, world, stage, wrong=name not in LEAN,
                                           strict=name not in UNTIED or stage == 3))
    if r.error:
        return ['DeepSpeed: ' + ds_harness.short(r.error)]
    want = measure or (r.losses if e['model']['kind'] == 'odd' else e['resume']['losses'])
    measure[:] = want
    off = ds_harness.far(r.losses[:1], want[:1]), ds_harness.far(r.losses, want)
    return held_differ(name, e, r, stage) + losses_differ(name, e, r.losses, want, stage), \
        'losses off by %.1e, then %.1e' % off


def main():
    a = checks.arguments('fixtures')
    tally = checks.Tally(a.verbose)
    ranks.prepare()
    with checks.scratch() as tmp:
        for name, targets in CASES.items():
            path, measure = os.path.join(a.fixtures, name), []
            if a.only and name not in a.only:
                continue
            for world, stage in targets if a.only else checks.mine(targets):
                tally.call('%s to world %d stage %d' % (name, world, stage), one, a, tmp, name, path,
                           ds_harness.read_expected(path), measure, world, stage)
    return tally.end('interop upgrade')


if __name__ == '__main__':
    sys.exit(main())
