#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run handed from DeepSpeed to zerotrain and back: what one saves the other continues.

    engine_resume.py [--engine build/bin/zerotrain] GOLDEN [RUN...]

GOLDEN holds runs of DeepSpeed (runs_w*.json) with the checkpoint that each saved after update 10 and what it computed from
there on.  zerotrain resumes that checkpoint, trains up to update 14 and saves; the unmodified DeepSpeed loads the result
strictly, into a model with other weights, and goes on to 18.  Both parts' losses, learning rates and skipped steps are compared with the
uninterrupted run's.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
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
    metrics = os.path.join(folder, 'metrics.jsonl')
    with open(config, 'w', encoding='utf-8') as f:
        json.dump(run['ds_config'], f)
    command = [engine, '--deepspeed_config', config, '--model', os.path.join(golden, 'run_model_%s.json' % run['model']),
               '--data', os.path.join(golden, 'run_data_%s.safetensors' % run['model']), '--no-shuffle', '--quiet',
               '--load', os.path.join(golden, run['ckpt']), '--max-steps', str(TURN), '--save', os.path.join(folder, 'save'),
               '--metrics', metrics, '--param-groups', 'decay' if run['groups'] else 'single', '--threads', '1']
    if run['world'] > 1:
        command = ['mpirun', '--oversubscribe', '--bind-to', 'none', '-n', str(run['world'])] + command
    env = {**os.environ, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=env, check=False)
    if done.returncode:
        raise RuntimeError('zerotrain: ' + (done.stderr or done.stdout).strip()[-400:])
    with open(metrics, encoding='utf-8') as f:
        rows = [json.loads(line) for line in f if line.strip()]
    return [r['loss'] for r in rows if 'loss' in r]


# ---- DeepSpeed ----

def worker(golden, name, folder, rank):
    """One rank of DeepSpeed, from TURN to END."""
    run = find(golden, name)
    world = run['world']
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_SIZE=str(world),
                      MASTER_ADDR='127.0.0.1', MASTER_PORT='0')
    import torch
    torch.set_num_threads(1)
    torch.distributed.init_process_group('gloo', init_method='file://%s/store' % folder, rank=rank, world_size=world)
    import deepspeed
    from safetensors.torch import load_file
    from transformers import GPT2Config, GPT2LMHeadModel
    sys.path.insert(0, HERE)
    import ds_harness
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
    every = [None] * world
    torch.distributed.all_gather_object(every, rows)
    if rank == 0:
        losses = [sum(map(sum, at)) / world / gas for at in zip(*every)]
        with open(os.path.join(folder, 'result'), 'w', encoding='utf-8') as f:
            json.dump({'loss': losses, 'lr': lrs, 'skipped': engine.skipped_steps}, f)
    torch.distributed.barrier()


def finish(golden, run, folder):
    """What DeepSpeed makes of the save."""
    env = {**os.environ, 'DS_ACCELERATOR': 'cpu', 'OMP_NUM_THREADS': '1', 'PYTHONWARNINGS': 'ignore'}
    logs = [open(os.path.join(folder, 'log%d' % r), 'w+', encoding='utf-8') for r in range(run['world'])]
    ranks = [subprocess.Popen([sys.executable, os.path.abspath(__file__), '--worker', str(r), '--folder', folder, golden,
                               run['name']], stdout=logs[r], stderr=subprocess.STDOUT, env=env) for r in range(run['world'])]
    try:
        for p in ranks:
            p.wait(timeout=900)
    except subprocess.TimeoutExpired:
        pass
    for p in ranks:
        if p.poll() is None:
            p.kill()
            p.wait()
    result = os.path.join(folder, 'result')
    if not os.path.exists(result):
        logs[0].seek(0)
        raise RuntimeError('DeepSpeed: ' + logs[0].read().strip()[-400:])
    with open(result, encoding='utf-8') as f:
        return json.load(f)


# ---- one run ----

def far(a, b):
    return max(abs(x - y) for x, y in zip(a, b)) if len(a) == len(b) and a else float('inf')


def check(engine, golden, name):
    """'' or what is wrong."""
    run = find(golden, name)
    folder = tempfile.mkdtemp()
    try:
        ours = far(train(engine, golden, run, folder), expected(run, FROM, TURN))
        result = finish(golden, run, folder)
    except RuntimeError as e:
        return str(e)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    theirs = far(result['loss'], expected(run, TURN, END))
    rates = far(result['lr'], [row[0] for row in run['resume']['lr'][TURN - FROM:END - FROM]])
    skipped = sum(run['overflow'][:FROM]) + sum(run['resume']['overflow'][:END - FROM])
    limit = LIMIT[precision(run)]
    print('%-28s zerotrain off by %.2g, then DeepSpeed by %.2g' % (name, ours, theirs), flush=True)
    if ours > limit or theirs > limit:
        return 'losses are off by more than %g' % limit
    if rates > 1e-12:
        return 'learning rates are off by %g' % rates
    return '' if result['skipped'] == skipped else '%d skipped steps, not %d' % (result['skipped'], skipped)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--engine', default='build/bin/zerotrain')
    p.add_argument('--worker', type=int)
    p.add_argument('--folder')
    p.add_argument('golden')
    p.add_argument('runs', nargs='*')
    a = p.parse_args()
    if a.worker is not None:
        worker(a.golden, a.runs[0], a.folder, a.worker)
        return 0
    bad = 0
    for name in a.runs or RUNS:
        wrong = check(a.engine, a.golden, name)
        if wrong:
            bad += 1
            print('FAIL %s: %s' % (name, wrong), flush=True)
    print('engine_resume: %d passed, %d failed' % (len(a.runs or RUNS) - bad, bad))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
