#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified DeepSpeed goes on from checkpoints that `ckpt reshard` wrote for other worlds and stages.

    reshard_resume.py --bin build/bin FIXTURES [NAME...] [-v]

For each fixture DeepSpeed first loads the original at its own world, and says what it then holds: masters, moments, steps,
the module's weights and buffers, hyper-parameters of each group, loss scaler, scheduler, counters, client state.  The
resharded folder, loaded at its world and stage, must give all that again, bit for bit, and then the losses of the next five
steps: in fp32 those of expected.json to 1e-6 (relative); in 16 bits, where gradients summed in another order round
differently, those of the original when its ranks too get the whole batch each, to BITS16.  DeepSpeed's own zero_to_fp32 must
give the tensors of expected.json from the resharded folder.
"""
import contextlib
import hashlib
import io
import os
import sys
import tempfile

os.environ['DS_ACCELERATOR'] = 'cpu'
try:
    import checks
    import ds_harness
    import ranks
except ImportError:
    print('interop reshard: skipped (no torch and DeepSpeed)')
    sys.exit(0)

FP32, BITS16 = 1e-6, 1e-3
# Fixture: (world, stage) to go to
CASES = {
    'z1_fp32_w2_torchsched': ((1, 3), (3, 2), (3, 1)),   # amsgrad, torch's StepLR
    'z1_fp32_w5': ((2, 2), (4, 3)),                      # fused Adam
    'z1_bf16_w3_groups': ((2, 3), (1, 1), (3, 2)),       # two groups, tied
    'z1_fp16_w2_overflow': ((1, 3), (3, 2), (3, 1)),     # dynamic loss scale, skipped steps
    'z1_fp16_w2_static': ((3, 1),),
    'z1_bf16_w2_fp32acc': ((3, 1), (2, 2), (3, 3)),      # BF16_Optimizer
    'z1_fp16_w3_elastic': ((2, 1), (2, 2), (2, 3)),
    'z2_fp32_w1': ((2, 3), (3, 1)),
    'z2_fp32_w3_frozen': ((2, 2), (2, 3), (4, 1)),
    'z2_fp32_w2_adagrad': ((3, 2), (1, 3)),
    'z2_fp32_w2_lion': ((1, 2), (3, 1)),
    'z2_bf16_w4_roundrobin': ((2, 2), (2, 3), (4, 1), (3, 1)),
    'z2_bf16_w2_aligned': ((3, 2), (2, 3), (3, 1)),
    'z2_bf16_w2_offload': ((3, 2), (2, 3)),
    'z2_bf16_w2_lpmaster': ((3, 2),),
    'z2_bf16_w2_emptyparam': ((3, 2), (1, 1)),
    'z2_bf16_w3_frozen_excl': ((2, 2), (2, 3)),
    'z2_fp16_w4_gas3': ((2, 3), (2, 2)),                 # three groups, clipping, gradient accumulation
    'z2_fp16_w2_onecycle': ((3, 1), (1, 3)),
    'z3_fp32_w2_frozen': ((1, 3), (3, 2), (2, 1)),
    'z3_fp32_w2_sgd': ((3, 3), (1, 2)),
    'z3_fp32_w2_zerodim': ((3, 3), (1, 1)),
    'z3_fp32_w1': ((2, 3), (2, 1)),
    'z3_bf16_w2_gather16': ((3, 2), (1, 3)),             # tied
    'z3_bf16_w2_twinflow': ((3, 3),),
    'z3_bf16_w4_hpz': ((2, 3), (2, 2)),
    'z3_bf16_w4_frozen_excl': ((2, 3), (2, 1)),
    'z3_bf16_w5_odd': ((2, 3), (3, 1)),
    'z3_bf16_w8': ((3, 3), (2, 2)),
    'z3_fp16_w2_offload': ((3, 2), (3, 3)),
    'z3_fp16_w3_subgroups': ((2, 2), (2, 3), (4, 1)),    # two groups, many sub-groups
    'old0126_z2_fp16_w3': ((2, 3), (2, 2)),
    'old0126_z3_bf16_w2': ((2, 2), (3, 3)),
    'old095_z1_fp16_w3': ((2, 3), (2, 1)),
    'old095_z2_bf16_w4_frozen': ((2, 2), (2, 3)),
    'old095_z3_fp16_w3': ((2, 1), (2, 3)),
}
# Losses that may move more, and why.
LOOSE = {
    # Stage 3 rounds a linear layer's product before it adds the bias, the others after: already the first loss shows it.
    'z3_bf16_w2_gather16': 3e-3,
}
# Elastic state holds no hyper-parameters: they come from the configuration.
OWN_GROUPS = ('z1_fp16_w3_elastic',)
# DeepSpeed's script refuses what BF16_Optimizer saves ("unknown zero stage").
NO_SCRIPT = (('z1_bf16_w2_fp32acc', 1),)


def same_bits(a, b):
    import torch
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.numel() == 0 or torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def tensors_differ(what, got, want):
    out = ['%s lacks %s' % (what, ', '.join(sorted(set(want) - set(got))[:3]))] if set(want) - set(got) else []
    out += ['%s has %s' % (what, ', '.join(sorted(set(got) - set(want))[:3]))] if set(got) - set(want) else []
    wrong = [n for n in want if n in got and not same_bits(got[n], want[n])]
    return out + (['%s: other values in %d of %d: %s' % (what, len(wrong), len(want), ', '.join(wrong[:3]))] if wrong else [])


def values_differ(what, got, want):
    """Trees of plain values, and where they differ first."""
    if isinstance(want, dict) and isinstance(got, dict):
        out = []
        for k in list(want) + [k for k in got if k not in want]:
            if k not in got or k not in want:
                out.append('%s[%s] is %s instead of %s' % (what, k, got.get(k, 'absent'), want.get(k, 'absent')))
            else:
                out += values_differ('%s[%s]' % (what, k), got[k], want[k])
        return out
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)) and len(want) == len(got):
        return [x for i, (g, w) in enumerate(zip(got, want)) for x in values_differ('%s[%d]' % (what, i), g, w)]
    return [] if got == want or got != got and want != want else ['%s is %s instead of %s' % (what, got, want)]


def held_differ(got, want):
    """What DeepSpeed holds after loading ours, beside what it holds after loading the original."""
    out = tensors_differ('masters', got.weights, want.weights)
    for kind in sorted(set(want.state) | set(got.state)):
        out += tensors_differ(kind, got.state.get(kind, {}), want.state.get(kind, {}))
    out += tensors_differ('module', got.module, want.module)
    if set(got.steps) != set(want.steps):
        out.append('optimizer steps %s instead of %s' % (sorted(set(got.steps)), sorted(set(want.steps))))
    out += values_differ('param_groups', got.groups, want.groups)
    if got.scaler is not None and want.scaler is not None:
        out += values_differ('loss_scaler', got.scaler, want.scaler)
    for key in ('scheduler', 'counters'):
        out += values_differ(key, getattr(got, key), getattr(want, key))
    return out + values_differ('client', client_state(got.client), client_state(want.client))


def run_differs(name, e, got, want, losses):
    """The next steps: losses, and what was counted and skipped on the way."""
    off = ds_harness.far(got.losses, losses)
    limit = LOOSE.get(name, FP32 if e['dtype'] == 'fp32' else BITS16)
    out = ['losses off by %.2g, more than %.0e: %s instead of %s' %
           (off, limit, ['%.7g' % x for x in got.losses], ['%.7g' % x for x in losses])] if not off <= limit else []
    if set(got.final_steps) != set(want.final_steps):
        out.append('optimizer steps at the end: %s instead of %s' % (sorted(set(got.final_steps)), sorted(set(want.final_steps))))
    for key in ('lr', 'scale', 'skipped'):
        out += values_differ('rows.' + key, *zip(*[(g[key], w[key]) for g, w in zip(got.rows, want.rows)
                                                   if g[key] is not None and w[key] is not None] or [(0, 0)]))
    return out


def client_state(client):
    """What load_checkpoint returns, less what describes the layout."""
    client = {k: v for k, v in (client or {}).items() if k not in ('param_shapes', 'frozen_param_shapes', 'frozen_param_fragments')}
    if isinstance(client.get('ds_config'), dict):
        zero = dict(client['ds_config'].get('zero_optimization') or {})
        zero.pop('stage', None)
        client['ds_config'] = {**client['ds_config'], 'zero_optimization': zero}
    return client


def script_differs(folder, e, stage):
    """DeepSpeed's own consolidation of our folder beside expected.json."""
    current = e['producer']['deepspeed'] == '0.19.8'   # older scripts gave buffers in fp32
    left_out = set(e['frozen']) if stage == 1 else set()   # as of its own stage 1, parameters of no elements too
    import torch
    from deepspeed.utils import zero_to_fp32
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        got = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(folder)
    out = []
    for n, t in e['weights'].items():
        if n in left_out or stage == 1 and 0 in t['shape'] or not current and n in e['buffers']:
            continue
        if n not in got:
            out.append('zero_to_fp32 lacks %s' % n)
            continue
        v = got[n].detach().contiguous()
        data = v.reshape(-1).view(torch.uint8).numpy().tobytes() if v.numel() else b''
        if [str(v.dtype).replace('torch.', ''), list(v.shape), hashlib.sha256(data).hexdigest()] != [t['dtype'], t['shape'], t['sha256']]:
            out.append('zero_to_fp32: %s is %s %s, or of other values' % (n, v.dtype, list(v.shape)))
    return out


def one(a, tmp, name, path, e, original, world, stage):
    """Problems of one case, and a note of how near the losses came."""
    src, dst = os.path.join(path, e['checkpoint']), tempfile.mkdtemp(prefix='%s_w%d_z%d_' % (name, world, stage), dir=tmp)
    problems = checks.reshard(a, src, dst, world, stage)
    if problems:
        return problems, ''
    r = ds_harness.run_one(ds_harness.Case(name, path, dst, world, stage, whole=e['dtype'] != 'fp32',
                                           wrong=name not in OWN_GROUPS))
    if r.error:
        problems = ['DeepSpeed: ' + ds_harness.short(r.error)]
    else:
        # What `odd` computes is the harness' own: there its own losses are the measure, as in 16 bits.
        own = e['model']['kind'] == 'odd' or e['dtype'] != 'fp32'
        problems = held_differ(r, original) + run_differs(name, e, r, original, original.losses if own else e['resume']['losses'])
    if name in OWN_GROUPS and stage == 3:   # the files' groups have torch's own keys besides, which say nothing here
        problems = [x for x in problems if not (x.startswith('param_groups') and 'absent' in x)]
    try:
        if (name, stage) not in NO_SCRIPT and 'differs_in' not in (e['checks'].get('current_zero_to_fp32') or ''):
            problems += script_differs(dst, e, stage)
    except Exception as x:  # a failure of any kind is a failed check
        problems.append('zero_to_fp32: %s: %s' % (type(x).__name__, x))
    return problems, '' if r.error else 'losses off by %.1e' % ds_harness.far(r.losses, original.losses)


def original_of(name, path, e, stage):
    """What DeepSpeed does with the fixture itself, at its own world."""
    if name in OWN_GROUPS and stage == 3:   # stage 3 takes its groups from the file: ours are those of the configuration
        params = e['ds_config']['optimizer']['params']
        groups = [{**g, **{k: params[k] for k in params if k in g}} for g in e['optimizer']['param_groups']]
        e = {**e, 'optimizer': {**e['optimizer'], 'param_groups': groups}}
    return ds_harness.run_one(ds_harness.Case(name, path, os.path.join(path, e['checkpoint']), e['world'], tag=e['tag'], expected=e,
                                              whole=e['dtype'] != 'fp32', wrong=name not in OWN_GROUPS))


def retried(a, tmp, name, path, e, original, world, stage):
    """One case; DeepSpeed's stage 3 takes in padding that it never set, so its own runs are not all alike: once more then."""
    for last in (False, True):
        if original.error:
            return ['the original: ' + ds_harness.short(original.error)]
        problems, note = one(a, tmp, name, path, e, original, world, stage)
        if last or not problems or not all(x.startswith('losses off') for x in problems):
            return problems, note
        original = original_of(name, path, e, stage)
    return None


def main():
    a = checks.arguments('fixtures')
    tally = checks.Tally(a.verbose)
    cases = list(CASES.items() if a.only else checks.mine(CASES.items()))
    # what ranks would compile within their time limit is compiled before
    more = [b for word, b in (('adagrad', 'CPUAdagradBuilder'), ('lion', 'CPULionBuilder')) if any(word in name for name, _ in cases)]
    ranks.prepare(('ShareMemCommBuilder', 'CPUAdamBuilder', 'FusedAdamBuilder', *more))
    with checks.scratch() as tmp:
        for name, targets in cases:
            path = os.path.join(a.fixtures, name)
            if a.only and name not in a.only:
                continue
            if not os.path.isdir(path):
                tally.add(name, ['the fixture is absent'])
                continue
            e, originals = ds_harness.read_expected(path), {}
            for world, stage in targets:
                other = name in OWN_GROUPS and stage == 3
                if other not in originals:
                    originals[other] = original_of(name, path, e, stage)
                tally.call('%s to world %d stage %d' % (name, world, stage), retried, a, tmp, name, path, e, originals[other], world, stage)
    return tally.end('interop reshard')


if __name__ == '__main__':
    sys.exit(main())
