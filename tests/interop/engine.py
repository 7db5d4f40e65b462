#!/usr/bin/env python3
"""Unmodified DeepSpeed, transformers and peft beside zerotrain: each goes on from what the other wrote.

    engine.py --bin build/bin [--golden ../shared/golden] [--fixtures ../shared/fixtures] [--parts abcd] [-v] [NAME...]

  a  zerotrain saves after update 10; DeepSpeed loads that (strictly), with wrong weights and hyper-parameters before,
     and its updates 11 to 20 are those of the uninterrupted run
  b  zerotrain goes on from DeepSpeed's checkpoints at other world sizes and stages, and through universal folders
  c  transformers loads what --save-model wrote, torch what zero_to_fp32 made of a saved run: same losses and logits
  d  peft loads the adapters of a LoRA run on their base model: same losses and logits; adapters are saved and resumed

Records and data: ../golden/engine.py, whose tolerances hold here too.
"""
import argparse
import contextlib
import importlib.util
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time

os.environ['DS_ACCELERATOR'] = 'cpu'
os.environ.setdefault('TRANSFORMERS_VERBOSITY', 'error')
try:
    import ds_harness
    import torch
except ImportError:
    print('interop engine: skipped (no torch and DeepSpeed)')
    sys.exit(0)

spec = importlib.util.spec_from_file_location('golden_engine', os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'golden',
                                                                           'engine.py'))
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

HALF, LAST = 10, 20       # updates before the save, and in all
LORA = {'gpt2': 'c_attn,c_proj,c_fc', 'llama': 'q_proj,v_proj,down_proj', 'bert': 'query,value,dense'}


# ---- DeepSpeed ----

def make_model(path, dtype=None, classes=None):
    """A model of transformers from a config.json, with weights that no run has."""
    import transformers
    cfg = transformers.AutoConfig.from_pretrained(path)
    cfg._attn_implementation = 'eager'
    cls = {'bert': transformers.AutoModelForSequenceClassification}.get(cfg.model_type, transformers.AutoModelForCausalLM)
    torch.manual_seed(4711)
    return cls.from_config(cfg, attn_implementation='eager').to(dtype or torch.float32)


def param_groups(model, decay):
    """As the records have them: matrices first, then the rest without decay."""
    every = [p for p in model.parameters() if p.requires_grad]
    if not decay:
        return every
    return [{'params': [p for p in every if p.ndim > 1]}, {'params': [p for p in every if p.ndim <= 1], 'weight_decay': 0.0}]


def norm_of(engine):
    norm = engine.get_global_grad_norm()
    return None if norm is None else float(norm)


def rank_main(task, rank, out):
    """One rank: load, go on, tell each update."""
    import deepspeed
    import torch.distributed as dist
    from safetensors.torch import load_file
    ds_harness.patch()
    data = {k[3:]: v for k, v in load_file(task['data']).items() if k.startswith('in/')}
    model = make_model(task['model'])
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=param_groups(model, task['groups']), config=task['config'])
    path, _ = engine.load_checkpoint(task['load'], tag=task.get('tag'))
    if path is None:
        raise RuntimeError('DeepSpeed loads nothing from %s' % task['load'])
    rows, gas = [], engine.gradient_accumulation_steps()
    for step in range(engine.global_steps, task['steps']):
        total, skipped = 0.0, engine.skipped_steps
        for j in range(gas):
            loss = engine(**{k: v[step * gas + j, rank] for k, v in data.items()}).loss
            engine.backward(loss)
            total += loss.item() / gas
            lr, scale = engine.get_lr()[0], getattr(engine.optimizer, 'cur_scale', None)
            engine.step()
        every = [None] * task['world']
        dist.all_gather_object(every, total)
        rows.append({'step': engine.global_steps, 'loss': sum(every) / len(every), 'lr': lr, 'grad_norm': norm_of(engine),
                     'loss_scale': scale and float(scale), 'skipped': engine.skipped_steps > skipped})
    if rank == 0:
        torch.save({'rows': rows, 'samples': engine.global_samples, 'skipped': engine.skipped_steps}, out)


def child(task, rank, folder):
    """One rank, in a forked process; never returns."""
    code, world = 1, task['world']
    log = os.open(os.path.join(folder, 'log%d' % rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_SIZE=str(world),
                          MASTER_ADDR='127.0.0.1', MASTER_PORT='0')
        torch.distributed.init_process_group('gloo', init_method='file://%s/store' % folder, rank=rank, world_size=world)
        rank_main(task, rank, os.path.join(folder, 'result'))
        torch.distributed.barrier()
        code = 0
    except BaseException:
        import traceback
        with open(os.path.join(folder, 'error%d' % rank), 'w', encoding='utf-8') as f:
            f.write(traceback.format_exc())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def deepspeed_goes_on(task):
    """(result of rank 0, what went wrong)."""
    with tempfile.TemporaryDirectory() as folder:
        pids = {}
        for rank in range(task['world']):
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                child(task, rank, folder)
            pids[pid] = rank
        failed, late = ds_harness.reap(pids, 120)
        if late:
            return None, 'DeepSpeed hangs'
        if failed:
            path = os.path.join(folder, 'error%d' % failed[0])
            text = open(path, encoding='utf-8').read() if os.path.exists(path) else 'died'
            return None, 'DeepSpeed, rank %d: %s' % (failed[0], ds_harness.short(text))
        return torch.load(os.path.join(folder, 'result'), weights_only=False), None


# ---- a: what zerotrain saved, in DeepSpeed ----

def limits_of(run):
    limits = list(golden.tolerance(run))
    limits[0] += golden.RESUMED[golden.kind_of(run['ds_config'])]
    return limits


def variant(run, name, world=None, stage=None, kind=None, groups=None):
    """A run that is not on record: another world, stage, dtype or grouping."""
    r = json.loads(json.dumps({k: run[k] for k in ('name', 'model', 'world', 'groups', 'ds_config')}))
    r.update(name=name, world=world or r['world'], groups=run['groups'] if groups is None else groups)
    c = r['ds_config']
    if stage is not None:
        c['zero_optimization']['stage'] = stage
    if kind:
        c.pop('bf16', None)
        c.pop('fp16', None)
    if kind == 'bf16':
        c['bf16'] = {'enabled': True}
    if kind == 'fp16':
        c['fp16'] = {'enabled': True, 'loss_scale': 0, 'initial_scale_power': 20, 'loss_scale_window': 5, 'hysteresis': 1,
                     'min_loss_scale': 1}
    return r


def from_lines(run, lines):
    """Metrics lines as a record."""
    return {**run, 'mean_loss': [x['loss'] for x in lines], 'grad_norm': [x['grad_norm'] for x in lines],
            'lr': [[x['lr']] for x in lines], 'scale': [x['loss_scale'] for x in lines], 'overflow': [x['skipped'] for x in lines]}


def part_a(r, runs):
    """(name, check) of everything that DeepSpeed is to continue."""
    base = runs['gpt2_z1_fp32']
    todo = list(runs.values())
    for world in (1, 3):
        for stage in range(4):
            for kind in ('fp32', 'bf16', 'fp16'):
                name = 'gpt2_w%d_z%d_%s%s' % (world, stage, kind, '_decay' if (stage + world) % 2 else '')
                todo.append(variant(base, name, world, stage, kind, bool((stage + world) % 2)))
    for stage in range(4):
        for kind in ('fp32', 'bf16', 'fp16'):
            todo.append(variant(base, 'gpt2_w2_z%d_%s_decay' % (stage, kind), 2, stage, kind, True))
    for run in todo:
        yield run['name'] + ' saved for DeepSpeed', lambda run=run: saved_for_deepspeed(r, run)


def saved_for_deepspeed(r, run):
    folder = os.path.join(r.work, 'a')
    shutil.rmtree(folder, ignore_errors=True)
    if 'mean_loss' not in run:
        lines, problem = r.train(run, run['world'], [], LAST)
        if problem:
            return [problem], ''
        run = from_lines(run, lines)
    _, problem = r.train(run, run['world'], ['--save', folder], HALF)
    if problem:
        return [problem], ''
    task = {'world': run['world'], 'model': os.path.join(r.golden, 'run_model_%s.json' % run['model']), 'groups': run['groups'],
            'data': os.path.join(r.golden, 'run_data_%s.safetensors' % run['model']), 'config': run['ds_config'], 'load': folder,
            'steps': LAST}
    result, problem = deepspeed_goes_on(task)
    if problem:
        return [problem], ''
    rows = result['rows']
    for i, row in enumerate(rows):   # none of its own: what the record computed beside it
        if row['grad_norm'] is None:
            row['grad_norm'] = run['grad_norm'][HALF + i]
        if row['loss_scale'] is None:
            row['loss_scale'] = run['scale'][HALF + i]
    return golden.compare_steps(rows, run, HALF, limits_of(run), True)


# ---- all parts ----

def read_runs(folder):
    runs = {}
    for world in (1, 2, 3):
        with open(os.path.join(folder, 'runs_w%d.json' % world), encoding='utf-8') as f:
            runs.update({x['name']: x for x in json.load(f)['runs']})
    return runs


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--golden', default='../shared/golden')
    p.add_argument('--fixtures', default='../shared/fixtures')
    p.add_argument('--parts', default='abcd')
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('only', nargs='*', help='parts of names')
    a = p.parse_intermixed_args()
    start, passed, failed = time.time(), 0, 0
    ds_harness.prepare(('ShareMemCommBuilder', 'FusedAdamBuilder'))   # the rest is compiled where a run wants it
    import transformers  # noqa: F401  (before any fork)
    transformers.AutoModelForCausalLM, transformers.AutoModelForSequenceClassification
    r = golden.Runner(a.bin, a.golden)
    runs = read_runs(a.golden)
    parts = {'a': part_a}
    for part in a.parts:
        for name, check in parts[part](r, runs):
            if a.only and not any(x in name for x in a.only):
                continue
            try:
                problems, note = check()
            except Exception as x:  # a failure of any kind is a failed check
                problems, note = ['%s: %s' % (type(x).__name__, x)], ''
            passed += not problems
            failed += bool(problems)
            if problems:
                print('FAIL %s: %s%s' % (name, '; '.join(problems[:4])[:900], ' (%s)' % note if note else ''), flush=True)
            elif a.verbose:
                print('ok   %s: %s' % (name, note), flush=True)
    shutil.rmtree(r.work, ignore_errors=True)
    print('interop engine: %d passed, %d failed (%.0f s)' % (passed, failed, time.time() - start))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
