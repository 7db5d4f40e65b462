#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resume from universal checkpoints of ours in the real DeepSpeed, at several stages and worlds.

    universal.py --bin build/bin FIXTURES [NAME...]

Each fixture is converted by ds_to_universal and loaded with load_universal.  Masters and moments that the engine
then holds must be the fixture's bit for bit; step counts, hyper-parameters, loss scale, counters and client state
the fixture's; and the losses of the next steps must be those that its own run had (exactly at its own world and stage,
else within rounding: sums over ranks come in another order).
"""
import argparse
import hashlib
import os
import subprocess
import sys
import tempfile

import checks
import ds_harness
import ranks
from ds_harness import Case, far, read_expected, short

# fixture, then (world, stage) to resume at, and the release to write for where it is not the newest
CASES = [
    ('uni_z3_w4', [(2, 3)], '0.16.4'),
    ('uni_z2_w2', [(3, 1)], '0.16.4'),
    ('uni_z1_w3', [(3, 1), (2, 2), (2, 3)]),
    ('uni_z2_w2', [(2, 2), (3, 1), (3, 3)]),
    ('uni_z3_w4', [(4, 3), (2, 3), (3, 2)]),
    ('z1_bf16_w3_groups', [(3, 1), (2, 2), (2, 3)]),
    ('z1_bf16_w2_fp32acc', [(3, 2)]),
    ('z2_bf16_w4_roundrobin', [(4, 2), (3, 2), (2, 3)]),
    ('z2_bf16_w2_aligned', [(3, 2)]),
    ('z2_fp32_w3_frozen', [(3, 2), (2, 3)]),
    ('z3_fp16_w3_subgroups', [(3, 3), (2, 1)]),
    ('z3_bf16_w5_odd', [(2, 3), (2, 2)]),
    ('z2_bf16_w2_offload', [(2, 2)]),
    ('old095_z1_fp16_w3', [(2, 2)]),
]
# Relative distance of losses: other worlds add gradients in another order.
NEAR = {'fp32': 1e-5, 'bf16': 2e-2, 'fp16': 5e-3}
# Stage 3 in DeepSpeed gives group 0's to all groups; ours leaves out what differs, so each keeps its run's own.
CONFIGURED = ('weight_decay',)


def digest(t):
    return hashlib.sha256(t.detach().float().cpu().contiguous().numpy().tobytes()).hexdigest()


def same(what, got, want, bad):
    if got != want:
        bad.append('%s: %r, expected %r' % (what, got, want))


def compare_tensors(r, e, bad):
    """Masters and moments, by hash."""
    for name, t in (r.weights or {}).items():
        rec = e['weights'].get(name)
        if rec and rec['dtype'] == 'float32' and digest(t) != rec['sha256']:
            bad.append('weight %s differs' % name)
    if not r.weights:
        bad.append('no weights')
    for kind, of in e['optimizer']['state'].items():
        for name, rec in of.items():
            t = (r.state or {}).get(kind, {}).get(name)
            if t is None:
                bad.append('%s/%s is missing' % (kind, name))
            elif rec['dtype'] == 'float32' and digest(t) != rec['sha256']:
                bad.append('%s/%s differs' % (kind, name))


def compare_values(r, e, case, bad):
    for key in ('global_steps', 'global_samples', 'skipped_steps'):
        if key in e['counters']:
            same(key, r.counters.get(key), e['counters'][key], bad)
    for name, want in (e.get('client_state') or {}).items():
        if isinstance(want, (int, float, str, list)):
            same('client state ' + name, (r.client or {}).get(name), want, bad)
    if e.get('loss_scaler') and e['loss_scaler'].get('dynamic'):
        for key in ('cur_scale', 'cur_iter', 'last_overflow_iter'):
            same('loss scaler ' + key, (r.scaler or {}).get(key), e['loss_scaler'].get(key), bad)
    groups = e['optimizer']['param_groups']
    for g, (got, want) in enumerate(zip(r.groups, groups)):
        for key in ('lr', 'weight_decay', 'eps'):
            if key not in want or (case.stage == 3 and key in CONFIGURED and len(groups) > 1):
                continue
            same('group %d %s' % (g, key), got.get(key), want[key], bad)


def check(case, r, e, losses):
    """What is wrong, as texts."""
    bad = []
    if r.error:
        return ['DeepSpeed: ' + short(r.error)]
    compare_tensors(r, e, bad)
    compare_values(r, e, case, bad)
    losses = losses[:len(r.losses)]
    off, own = far(r.losses, losses), case.world == e['world'] and case.stage == e['stage']
    limit = NEAR[e['dtype']] if not own else 1e-6
    if off > limit:
        bad.append('losses off by %.2g: %s, expected %s' % (off, r.losses, losses))
    return bad


def with_own(module):
    """Models that begin with the buffers and frozen parameters of a model file.

    DeepSpeed takes neither from a universal checkpoint: a run makes them itself, as it did at its first start.  The harness
    makes them wrong on purpose.
    """
    import torch
    made = ds_harness.make_model

    def make(e, frozen_values):
        model = made(e, frozen_values)
        with torch.no_grad():
            for name, t in list(model.named_buffers()) + [(n, p) for n, p in model.named_parameters() if not p.requires_grad]:
                if name in module and t.shape == module[name].shape:
                    t.copy_(module[name])
        return model
    return make


def with_steps(gather):
    """gather, after each flat group was given a step count of its own.

    From a universal checkpoint DeepSpeed's stage 3 gives one tensor to all sub-groups, and torch's Adam counts it up once for
    each of them; that is no fault of the files.
    """
    def apart(engine, world, aligned):
        for entry in engine.optimizer.optimizer.state.values():
            if hasattr(entry.get('step'), 'clone'):
                entry['step'] = entry['step'].clone()
        return gather(engine, world, aligned)
    return apart


def model_file(folder):
    """`module` of the model file that has one, and the name of the universal checkpoint."""
    import torch
    with open(os.path.join(folder, 'latest_universal'), encoding='utf-8') as f:
        tag = f.read()
    path = os.path.join(folder, tag, 'mp_rank_00_model_states.pt')
    return torch.load(path, weights_only=False)['module'] if os.path.exists(path) else {}


def native_losses(e, path, name):
    """Losses of the resumed run: as recorded, or, for a model that the harness has its own arithmetic for, as native files give."""
    if e['model']['kind'] != 'odd':
        return e['resume']['losses']
    r = ds_harness.run_one(Case(name, path, os.path.join(path, e['checkpoint']), e['world'], steps=3))
    return r.losses


def convert(args, name, e, out, version):
    source = os.path.join(args.fixtures, name, e['checkpoint'], e['tag'])
    return subprocess.run([os.path.join(args.bin, 'ds_to_universal'), '--quiet', '--keep_objects', '--deepspeed_version', version,
                           '--input_folder', source, '--output_folder', os.path.join(out, 'uni')], capture_output=True, text=True)


def cases_of(root, name, at, folder):
    path = os.path.join(root, name)
    e = read_expected(path)
    for world, stage in at:
        # With this option DeepSpeed loads universal checkpoints into the wrong places, whoever made them.
        drop = ('round_robin_gradients',)
        several = len(e['optimizer']['param_groups']) > 1
        yield Case('%s at stage %d, %d ranks' % (name, stage, world), path, folder, world, stage, universal=True,
                   drop=drop, steps=3, wrong=not (stage == 3 and several)), e


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bin', required=True)
    parser.add_argument('fixtures')
    parser.add_argument('names', nargs='*')
    args = parser.parse_args()
    failed = done = 0
    ranks.prepare()
    ds_harness.gather = with_steps(ds_harness.gather)
    for name, at, *version in CASES if args.names else checks.mine(CASES):
        if args.names and name not in args.names:
            continue
        with tempfile.TemporaryDirectory() as out:
            e = read_expected(os.path.join(args.fixtures, name))
            p = convert(args, name, e, out, version[0] if version else '0.19.8')
            if p.returncode:
                print('FAILED %s: %s' % (name, p.stderr.strip()))
                failed += 1
                continue
            losses = native_losses(e, os.path.join(args.fixtures, name), name)
            made, ds_harness.make_model = ds_harness.make_model, with_own(model_file(out))
            for case, e in cases_of(args.fixtures, name, at, out):
                bad = check(case, ds_harness.run_one(case), e, losses)
                done += 1
                failed += bool(bad)
                for text in bad[:6]:
                    print('FAILED %s: %s' % (case.name, text), flush=True)
            ds_harness.make_model = made
    print('universal: %d resumes from checkpoints of ours, %d failures' % (done, failed))
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
