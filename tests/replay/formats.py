#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""zerotrain resumes from every format that has a run's state, and computes the recorded losses.

    formats.py --bin build/bin [FIXTURES]

A run of zerotrain, saved half way, goes through `ckpt reshard` into each format; from each it must go on with the losses of
the run that was not interrupted, schedule and all.  FIXTURES: runs of FSDP and its relatives with the losses that torch
computed next; the first loss shows the weights, the second also moments, step counts and settings (torch's schedules are not
the engine's, so the third has another learning rate).
"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import sys

from training import Work, ds_config, gpt2, read_lines, write_safetensors, write_tokens

LIMIT = 2e-6   # relative, of losses in fp32
HALF, END = 4, 8
# What reshard writes, and the world and stage that go on from there.
FORMATS = {'dcp': (3, 2), 'fsdp-ranks': (2, 3), 'universal': (1, 1)}
# Fixture: stage that goes on.
RUNS = {'fsdp2_llama_w3': 3, 'fsdp2_flatopt_w2': 1, 'fsdp2_stateful_w2': 2, 'tp2_fsdp2_w4': 2, 'fsdp2_empty_w4': 1, 'fsdp1_full_w2': 3,
        'fsdp2_full_w2': 1, 'rl_verl_fsdp2_w2': 2, 'rl_verl_fsdp1_w2': 3, 'rl_verl_hsdp_w4': 1, 'rl_fsdp1_shardedtensor_w3': 2,
        'hsdp2_w4': 2, 'accel_fsdp2_sharded_w2': 2, 'accel_fsdp1_full_w2': 1,
        'accel_fsdp2_full_w2': 3}
# Settings of a run, and those of a configuration that goes on with it, which do not count.
SETTINGS = [('AdamW', {'lr': 0.004, 'eps': 1e-3, 'betas': [0.8, 0.9]}, {'eps': 1e-8, 'lr': 1, 'betas': [0.9, 0.999]}),
            ('Adam', {'lr': 0.004, 'eps': 1e-3, 'bias_correction': False}, {'eps': 1e-8, 'bias_correction': True}),
            ('AdamW', {'lr': 0.004, 'eps': 1e-3, 'torch_adam': True}, {'eps': 1e-8}),
            ('SGD', {'lr': 0.1, 'momentum': 0.8, 'dampening': 0, 'nesterov': True}, {'momentum': 0.3, 'nesterov': False}),
            ('SGD', {'lr': 0.1, 'momentum': 0.8, 'dampening': 0.5}, {'dampening': 0}),
            ('Adagrad', {'lr': 0.05, 'eps': 0.01, 'lr_decay': 0.1}, {'lr_decay': 0, 'eps': 1e-10}),
            ('Lamb', {'lr': 0.01, 'max_coeff': 2, 'min_coeff': 0.2}, {'max_coeff': 10, 'min_coeff': 0.01}),
            ('Lion', {'lr': 0.001, 'betas': [0.8, 0.9]}, {'betas': [0.9, 0.99]}),
            ('Muon', {'lr': 0.01, 'momentum': 0.8, 'ns_method': 'standard'}, {'momentum': 0.95, 'ns_method': 'gram'}),
            ('SGD', {'lr': 0.1, 'momentum': 0}, {'momentum': 0.9}, 'momentum_buffer'),
            ('SGD', {'lr': 0.1, 'momentum': 0.9}, {'momentum': 0}, 'set optimizer.params.momentum to 0.9'),
            ('Adam', {'lr': 0.01, 'weight_decay': 0.1, 'torch_adam': True, 'adam_w_mode': False}, {'adam_w_mode': True},
             'decoupled_weight_decay is False')]
# what else a configuration has that does not count
OTHERS = {'SGD': {'momentum': 0.1}, 'Adagrad': {'eps': 0.5, 'lr_decay': 0.5}}
BARE = 'rl_verl_fsdp2_w2'   # loses its optimizer
# Other names, by a layout map; the limit for bf16 is that of two orders of sums.
SHAPE = ('hidden_size', 'num_hidden_layers', 'num_attention_heads', 'num_key_value_heads', 'intermediate_size', 'vocab_size')
MAPPED = {'titan_llama3_w2': ('torchtitan:hf', lambda e: [e['config'][k] for k in ('dim', 'n_layers', 'n_heads', 'n_kv_heads', 'hidden_dim',
                                                                                'vocab_size')], LIMIT),
          'titan_llama3_fused_w3': ('torchtitan:hf', lambda e: [e['config'][k] for k in ('dim', 'n_layers', 'n_heads', 'n_kv_heads', 'hidden_dim',
                                                                                      'vocab_size')], LIMIT),
          'mcore_llama_distopt_dp2': ('torch_dist:megatron:hf', lambda e: (16, 2, 4, 2, 22, 48), 1e-4)}
passed, failed = 0, 0


def verdict(name, problem):
    global passed, failed
    passed += not problem
    failed += bool(problem)
    if problem:
        print('FAIL %s: %s' % (name, problem), flush=True)


def differs(have, want, limit=LIMIT):
    if len(have) != len(want) or not want:
        return '%d losses, expected %d' % (len(have), len(want))
    off = max(abs(a - b) / abs(b) if a == a else float('inf') for a, b in zip(have, want))
    return '' if off <= limit else 'losses off by %.2g: %s instead of %s' % (off, have, want)


def train(work, world, args, what='loss'):
    """Losses of the updates of a run, which must end well; or another thing that its metrics say of each."""
    metrics = work.fresh('metrics')
    status, _, err = work.run(world, [*args, '--no-shuffle', '--metrics', metrics])
    if status != 0:
        raise RuntimeError('zerotrain: exit %s: %s' % (status, err.strip()[-400:]))
    return [x[what] for x in read_lines(metrics) if what in x]


def own_run(work, ckpt):
    """From zerotrain's own save through each format."""
    data, model = work.path('data.safetensors'), work.write('config.json', gpt2())
    write_tokens(data, 64, 12, 97)

    def options(stage, world):
        return ['--deepspeed_config', work.write('ds.json', ds_config(stage, 6 // world)), '--model', model, '--data', data]

    whole = train(work, 2, [*options(2, 2), '--max-steps', END])
    saved = work.path('run')
    first = train(work, 2, [*options(2, 2), '--max-steps', END, '--save', saved, '--save-every', HALF])
    verdict('the same run', differs(first, whole))
    for name, (world, stage) in FORMATS.items():
        out = work.fresh(name)
        p = subprocess.run([ckpt, 'reshard', '-q', '--to', name, '-t', 'global_step%d' % HALF, saved, out], capture_output=True, text=True)
        if p.returncode:
            verdict(name, 'reshard: exit %d: %s' % (p.returncode, p.stderr.strip()))
            continue
        folder = out if name == 'universal' else os.path.join(out, 'global_step%d' % HALF)
        folder = folder if os.path.isdir(folder) else out
        try:
            got = train(work, world, [*options(stage, world), '--max-steps', END, '--load', folder])
            verdict('%s to %d ranks of stage %d' % (name, world, stage), differs(got, whole[HALF:]))
        except RuntimeError as x:
            verdict(name, str(x))


def own_settings(work, name, params, other, refused=''):
    """What a checkpoint says of a group holds for the updates of a run that goes on, whatever its configuration has; or it is
    refused, and named."""
    data, model, saved = work.path('data.safetensors'), work.write('config.json', gpt2()), work.fresh('run')
    write_tokens(data, 64, 12, 97)

    def options(world, p):
        config = ds_config(1, 6 // world, zero_allow_untested_optimizer=True)
        config['optimizer'] = {'type': name, 'params': p}
        del config['scheduler']
        return ['--deepspeed_config', work.write('ds.json', config), '--model', model, '--data', data, '--max-steps', END]

    whole = train(work, 2, [*options(2, params), '--save', saved, '--save-every', HALF])
    load = [*options(1, {**params, **other}), '--load', saved, '--load-tag', 'global_step%d' % HALF]
    if refused:
        status, _, err = work.run(1, load)
        return '' if status and refused in err else 'exit %s: %s' % (status, err.strip()[-300:])
    plain = train(work, 1, options(1, {**params, **other}))
    return differs(train(work, 1, load), whole[HALF:]) or ('' if differs(plain, whole, 1e-5) else 'the settings change nothing')


def read_ids(path):
    """Tensors of token ids of a safetensors file: name -> (shape, values)."""
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        raw = f.read()
    out = {}
    for name, t in header.items():
        a, b = t['data_offsets']
        out[name] = t['shape'], struct.unpack('<%dq' % ((b - a) // 8), raw[a:b])
    return out


def shifted(path, out, skip=0):
    """The fixture's batches for a model that shifts its labels: one token more, and -100 before the first label; samples in a row.
    skip: so many batches are left out."""
    both = read_ids(path)
    shape, x = both['x']
    y, n = both['y'][1], shape[-1]
    rows = len(x) // n
    first = rows // shape[0] * skip
    ids = [t for r in range(first, rows) for t in (*x[r * n:(r + 1) * n], 0)]
    labels = [t for r in range(first, rows) for t in (-100, *y[r * n:(r + 1) * n])]
    write_safetensors(out, {name: ('I64', [rows - first, n + 1], struct.pack('<%dq' % len(v), *v))
                            for name, v in (('input_ids', ids), ('labels', labels))})
    return rows // shape[0]


def without_optimizer(work, folder):
    """Files of each rank without those of the optimizer are weights, and resumed as such only when that is said."""
    with open(os.path.join(folder, 'expected.json'), encoding='utf-8') as f:
        e = json.load(f)
    data, bare = work.fresh('data.safetensors'), work.fresh('bare')
    batch = shifted(os.path.join(folder, 'batches.safetensors'), data)
    shutil.copytree(os.path.join(folder, e['checkpoint']), bare, ignore=shutil.ignore_patterns('optim_*'))
    config = work.write('ds.json', {'train_micro_batch_size_per_gpu': batch, 'optimizer': {'type': 'AdamW', 'params': {'lr': 0.01}}})
    options = ['--deepspeed_config', config, '--model', work.write('config.json', e['hf_config']), '--data', data, '--load', bare,
               '--max-steps', 1]
    status, _, err = work.run(1, options)
    if not status or 'no training state' not in err or '--module-only' not in err:
        return 'exit %s: %s' % (status, err.strip()[-300:])
    return '' if len(train(work, 1, [*options, '--module-only'])) == 1 else 'no update was made'


def of_mapped(work, folder, ckpt, layouts, config, limit):
    """A run of another framework gets Hugging Face's names, its moments too, which the engine's Llama has."""
    with open(os.path.join(folder, 'expected.json'), encoding='utf-8') as f:
        e = json.load(f)
    data, out, c = work.fresh('data.safetensors'), work.fresh('mapped'), config(e)
    batch = shifted(os.path.join(folder, 'batches.safetensors'), data)
    model = work.write('config.json', dict(zip(SHAPE, c), model_type='llama', rope_theta=10000, rms_norm_eps=1e-5, hidden_act='silu',
                                           max_position_embeddings=16, tie_word_embeddings=False))
    p = subprocess.run([ckpt, 'reshard', '-q', '--map', layouts, '--config', model, '--to', 'dcp', '--to-tag', 'x',
                        os.path.join(folder, e['checkpoint']), out], capture_output=True, text=True)
    if p.returncode:
        return 'reshard: exit %d: %s' % (p.returncode, p.stderr.strip())
    half = e['spec'].get('dtype') == 'bf16'
    settings = work.write('ds.json', {'train_micro_batch_size_per_gpu': batch // 2, 'zero_optimization': {'stage': 2}, 'gradient_clipping': 1.0,
                                      'bf16': {'enabled': half}, 'optimizer': {'type': 'AdamW', 'params': {'lr': 0.77, 'torch_adam': True}}})
    got = train(work, 2, ['--model', model, '--data', data, '--max-steps', e['next_steps'][0]['step'] + 1, '--param-groups', 'decay' if e['spec'].get('groups') else 'single',
                          '--deepspeed_config', settings, '--load', os.path.join(out, 'x')])
    return differs(got, [s['loss'] for s in e['next_steps'][:2]], limit)


def of_fixture(work, folder, stage):
    with open(os.path.join(folder, 'expected.json'), encoding='utf-8') as f:
        e = json.load(f)
    data = work.fresh('data.safetensors')
    steps = e.get('steps') or e['next_steps'][0]['step'] - 1
    # SGD counts no steps: the run begins at 0, and its data and schedule too
    begun = 0 if e['optimizer'].get('name') == 'SGD' else steps
    batch = shifted(os.path.join(folder, 'batches.safetensors'), data, steps - begun)
    settings = {'lr': 0.77, 'weight_decay': 0.33, **OTHERS.get(e['optimizer'].get('name'), {'eps': 0.5, 'torch_adam': True})}
    config = {'train_micro_batch_size_per_gpu': batch, 'gradient_clipping': 0.0, 'zero_optimization': {'stage': stage},
              'optimizer': {'type': e['optimizer'].get('name', 'AdamW'), 'params': settings}, 'zero_allow_untested_optimizer': True}
    several = len(e['optimizer']['param_groups']) > 1
    options = ['--model', work.write('config.json', e['hf_config']), '--data', data, '--max-steps', begun + 2,
               '--param-groups', 'decay' if several else 'single', '--deepspeed_config']
    load = ['--load', os.path.join(folder, e['checkpoint'])]
    problem = differs(train(work, 1, [*options, work.write('ds.json', config), *load]), [s['loss'] for s in e['next_steps'][:2]])
    config['scheduler'] = {'type': 'WarmupLR', 'params': {'warmup_max_lr': 0.01, 'warmup_num_steps': 50, 'warmup_type': 'linear'}}
    config = work.write('ds.json', config)
    fresh, rates = train(work, 1, [*options, config], 'lr'), train(work, 1, [*options, config, *load], 'lr')
    # the update after the resume has the checkpoint's own rate
    return problem or ('' if rates[1:] == fresh[begun + 1:] else 'learning rates %s instead of %s' % (rates[1:], fresh[begun + 1:]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('fixtures', nargs='?')
    a = p.parse_args()
    work = Work(a.bin)
    if not a.fixtures:
        own_run(work, os.path.join(os.path.abspath(a.bin), 'ckpt'))
    cases = [('%s %s' % how[::2][:2], own_settings, how) for how in SETTINGS if not a.fixtures]
    for name, check, more in cases:
        try:
            verdict(name, check(work, *more))
        except RuntimeError as x:
            verdict(name, str(x))
    cases = [(name, of_fixture, (stage,)) for name, stage in RUNS.items()] + [(BARE, without_optimizer, ())]
    cases += [(name, of_mapped, (os.path.join(os.path.abspath(a.bin), 'ckpt'), *how)) for name, how in MAPPED.items()]
    for name, check, more in cases if a.fixtures else ():
        try:
            verdict(name, check(work, os.path.join(os.path.abspath(a.fixtures), name), *more))
        except (OSError, RuntimeError, KeyError) as x:
            verdict(name, '%s: %s' % (type(x).__name__, x))
    print('resumed from other formats: %d passed, %d failed' % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
