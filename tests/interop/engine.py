#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified DeepSpeed, transformers and peft beside zerotrain: each goes on from what the other wrote.

    engine.py --bin build/bin [--golden ../shared/golden] [--fixtures ../shared/fixtures] [--parts abcd] [-v] [NAME...]

  a  zerotrain saves after update 10; DeepSpeed loads that (strictly), with wrong weights and hyper-parameters before,
     and its updates 11 to 20 are those of the uninterrupted run
  b  zerotrain goes on from DeepSpeed's checkpoints at other world sizes and stages, and through universal folders
  c  transformers loads what --save-model wrote, torch what zero_to_fp32 made of a saved run: same losses and logits
  d  peft loads the adapters of a LoRA run on their base model: same losses and logits; adapters are saved and resumed

Records and data: ../replay/deepspeed.py, whose tolerances hold here too.
"""
import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys

os.environ['DS_ACCELERATOR'] = 'cpu'
os.environ.setdefault('TRANSFORMERS_VERBOSITY', 'error')
try:
    import checks
    import ds_harness
    import ranks
    import torch
except ImportError:
    print('interop engine: skipped (no torch and DeepSpeed)')
    sys.exit(0)

spec = importlib.util.spec_from_file_location('golden_engine', os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'replay',
                                                                           'deepspeed.py'))
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
    cls = {'bert': transformers.AutoModelForSequenceClassification,
           't5': transformers.AutoModelForSeq2SeqLM}.get(cfg.model_type, transformers.AutoModelForCausalLM)
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


def build_ops(config):
    """What DeepSpeed compiles for this optimizer, once, before any rank waits for it."""
    from deepspeed.accelerator import get_accelerator
    kind = config['optimizer']['type'].lower()
    name = {'adagrad': 'CPUAdagradBuilder', 'lion': 'CPULionBuilder'}.get(kind)
    if not name and 'offload_optimizer' in config['zero_optimization']:
        name = 'CPUAdamBuilder'
    if name:
        get_accelerator().create_op_builder(name).load(verbose=False)


def deepspeed_goes_on(task):
    """(result of rank 0, what went wrong)."""
    build_ops(task['config'])
    r, error = ranks.run_ranks(task['world'], lambda rank, out: rank_main(task, rank, out), 120)
    return r, error and 'DeepSpeed, ' + ds_harness.short(error)


# ---- a: what zerotrain saved, in DeepSpeed ----

# Records of two ranks; those of one and three are all taken.  Muon is not among them: muon.py has its runs.
RECORDS = ['gpt2_z%d_%s' % (stage, kind) for stage in range(4) for kind in ('fp32', 'bf16', 'fp16')] + [
    'gpt2_z1_fp32_groups', 'gpt2_z3_bf16_groups', 'gpt2_z2_fp32_roundrobin', 'gpt2_z3_fp32_subgroups', 'gpt2_z1_bf16_gas2_accum32',
    'gpt2_z3_bf16_gas2', 'gpt2_z3_bf16_offload', 'gpt2_z1_fp32_onecycle', 'gpt2_z2_fp32_sgd', 'gpt2_z1_fp32_adagrad',
    'gpt2_z2_fp32_lion_offload', 'gpt2_z2_fp32_torch_adam', 'llama_z3_bf16', 'bert_z2_fp32', 'bert_z3_fp16']
# And beside the records (world, stage, dtype, decay): the uninterrupted run is zerotrain's own.
MADE = ((1, 1, 'fp32', True), (1, 2, 'fp16', True), (1, 3, 'bf16', False), (3, 1, 'fp16', True), (3, 2, 'bf16', True),
        (3, 3, 'fp16', False), (3, 0, 'bf16', True), (2, 2, 'fp16', True))

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
    todo = [run for run in runs.values() if r.all and 'muon' not in run['name'] or run['name'] in RECORDS or run['world'] != 2]
    for world, stage, kind, decay in MADE:
        name = 'gpt2_w%d_z%d_%s%s' % (world, stage, kind, '_decay' if decay else '')
        todo.append(variant(base, name, world, stage, kind, decay))
    for run in todo:
        if golden.unscaled(run):
            continue
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


# ---- b: DeepSpeed's checkpoints, in zerotrain ----

# (world, stage) to go on with; a third number: through a universal folder
ELSEWHERE = {
    'gpt2_z0_fp32': ((1, 3), (4, 1)),
    'gpt2_z1_fp32': ((3, 3), (1, 2), (4, 3, 1)),
    'gpt2_z2_fp32': ((1, 0), (4, 3), (3, 1), (1, 1, 1)),
    'gpt2_z3_fp32': ((1, 1), (4, 2), (2, 0), (3, 2, 1)),
    'gpt2_z1_fp32_groups': ((1, 3), (4, 2), (4, 1, 1)),
    'gpt2_z3_fp32_subgroups': ((4, 1), (1, 3)),
    'gpt2_z2_fp32_roundrobin': ((3, 2), (4, 3)),
    'gpt2_z1_fp32_onecycle': ((1, 3), (4, 2)),
    'gpt2_z0_bf16': ((1, 2), (4, 3)),
    'gpt2_z1_bf16': ((3, 0), (1, 1)),
    'gpt2_z2_bf16': ((1, 3), (4, 1), (4, 3, 1)),
    'gpt2_z3_bf16': ((1, 1), (4, 2)),
    'gpt2_z3_bf16_groups': ((1, 2), (4, 3)),
    'gpt2_z2_bf16_offload': ((4, 3),),
    'gpt2_z1_bf16_gas2_accum32': ((1, 1), (4, 2)),
    'gpt2_w3_z1_bf16': ((2, 2), (1, 3)),
    'gpt2_w3_z3_bf16': ((2, 3), (1, 2)),
    'gpt2_z1_fp16': ((4, 3), (1, 2)),
    'gpt2_z2_fp16': ((4, 1), (3, 3), (4, 2, 1)),
    'gpt2_z3_fp16': ((1, 1), (3, 2), (4, 2), (4, 3, 1)),
    'llama_z3_bf16': ((1, 2), (4, 3), (3, 1)),
}


def part_b(r, runs):
    for name, targets in ELSEWHERE.items():
        for world, stage, *universal in targets:
            what = '%s at world %d, stage %d%s' % (name, world, stage, ', universal' if universal else '')
            yield what, lambda x=(runs[name], world, stage, bool(universal)): elsewhere(r, *x)
    for name in ('hf_trainer_llama_z3_bf16_w2', 'hf_trainer_bert_z2_fp32_w2'):
        yield name, lambda n=name: trainer_goes_on(r, n)


def relayout(r, run, world):
    """(file, micro batch) with the record's samples, update by update, for another number of ranks.  Where they cannot be
    divided each rank gets all of them: the mean gradient is the same.  In fp16 twice the ranks get everything twice: where
    a scaled gradient overflows depends on the size of a micro batch."""
    from safetensors.torch import load_file, save_file
    data = {k: v for k, v in load_file(os.path.join(r.golden, 'run_data_%s.safetensors' % run['model'])).items()
            if k.startswith('in/')}
    gas = run['ds_config']['gradient_accumulation_steps']
    out, micro = {}, 0
    for name, t in data.items():
        t = t[:, :run['world']]
        t = t.reshape(t.shape[0] // gas, gas * t.shape[1] * t.shape[2], *t.shape[3:])
        n = t.shape[1]
        if golden.kind_of(run['ds_config']) == 'fp16' and world == 2 * run['world']:
            micro = n // (gas * run['world'])
            t = t.reshape(-1, run['world'], micro, *t.shape[2:]).repeat(1, 2, *[1] * (t.ndim - 1))
        elif n % (world * gas) == 0:
            micro = n // (world * gas)
            t = t.reshape(-1, world, micro, *t.shape[2:])
        else:
            micro = n // gas
            t = t.reshape(-1, 1, micro, *t.shape[2:]).expand(-1, world, *[-1] * (t.ndim - 1))
        out[name] = t.contiguous()
    path = os.path.join(r.work, 'data.safetensors')
    save_file(out, path)
    return path, micro


def elsewhere(r, run, world, stage, universal):
    source = os.path.join(r.golden, run['ckpt'])
    data, micro = relayout(r, run, world)
    limits = limits_of(run)
    if universal:
        folder = os.path.join(r.work, 'universal')
        shutil.rmtree(folder, ignore_errors=True)
        p = subprocess.run([os.path.join(r.bin, 'ckpt'), 'convert', '-q', '--to', 'universal', source, folder], capture_output=True,
                           text=True, check=False)
        if p.returncode:
            return ['convert: exit %d: %s' % (p.returncode, p.stderr.strip())], ''
        source = folder
    other = {**run, 'ds_config': json.loads(json.dumps(run['ds_config']))}
    c = other['ds_config']
    c['train_micro_batch_size_per_gpu'] = micro
    c['zero_optimization']['stage'] = stage
    if stage == 0:
        c.pop('data_types', None)
    if golden.kind_of(c) == 'fp32':   # 1e-6 of the loss, instead of the noise of one layout
        limits[0], limits[1] = 1e-6 * min(run['mean_loss']), 1e-5
    lines, problem = r.train(other, world, ['--load', source], LAST, data)
    if problem:
        return [problem], ''
    if golden.kind_of(c) == 'fp16' and world != 2 * run['world']:
        # smaller gradients of larger micro batches overflow later: equal up to there
        same = next((i for i, x in enumerate(lines) if x['skipped'] != bool(run['overflow'][HALF + i])), len(lines))
        if len(lines) != LAST - HALF or same < 5:
            return ['%d updates, %d like the record' % (len(lines), same)], ''
        lines, run = lines[:same], {**run, 'mean_loss': run['mean_loss'][:HALF + same]}
    if golden.kind_of(c) == 'fp16' and (stage == 3) != (run['ds_config']['zero_optimization']['stage'] == 3):
        # where the scale doubles stage 3 tells the norm divided by the new one, the others by the old
        for x, want in zip(lines, run['grad_norm'][HALF:]):
            half = 2 if stage == 3 else 0.5
            if x['grad_norm'] is not None and abs(x['grad_norm'] * half / golden.number(want) - 1) < limits[1]:
                x['grad_norm'] *= half
    return golden.compare_steps(lines, run, HALF, limits, stage > 0)


def trainer_goes_on(r, name):
    """A folder of transformers' Trainer, with its "auto" configuration: the next two updates beside DeepSpeed's."""
    from safetensors.torch import save_file
    fixture = os.path.join(r.fixtures, name)
    with open(os.path.join(fixture, 'expected.json'), encoding='utf-8') as f:
        e = json.load(f)
    folder = os.path.join(fixture, e['checkpoint'])
    with open(os.path.join(folder, 'config.json'), encoding='utf-8') as f:
        model = json.load(f)
    gen = torch.Generator().manual_seed(5)
    ids = torch.randint(0, model['vocab_size'], (6, 2, 2, 8), generator=gen)
    labels = torch.randint(0, 3, (6, 2, 2), generator=gen) if model['model_type'] == 'bert' else ids.clone()
    data = os.path.join(r.work, 'trainer.safetensors')
    save_file({'in/input_ids': ids, 'in/labels': labels}, data)
    config = json.loads(json.dumps(e['ds_config']))
    config.update(train_micro_batch_size_per_gpu=2, gradient_accumulation_steps=1, gradient_clipping=1.0)
    config.pop('train_batch_size')
    config['optimizer']['params'] = {'lr': 0.005, 'betas': [0.9, 0.999], 'eps': 1e-8, 'weight_decay': 0.01, 'torch_adam': True}
    config['scheduler']['params'] = {'warmup_min_lr': 0, 'warmup_max_lr': 0.005, 'warmup_num_steps': 1, 'total_num_steps': 6}
    bf16 = config.pop('bf16', None) is not None
    if bf16:
        config['bf16'] = {'enabled': True}
    result, problem = deepspeed_goes_on({'world': 2, 'model': os.path.join(folder, 'config.json'), 'groups': False, 'data': data,
                                         'config': config, 'load': folder, 'steps': 6})
    if problem:
        return [problem], ''
    metrics, auto = os.path.join(r.work, 'm.jsonl'), os.path.join(r.work, 'auto.json')
    with open(auto, 'w', encoding='utf-8') as f:
        json.dump(e['ds_config'], f)
    lines, problem = zerotrain(r, 2, ['--deepspeed_config', auto, '--model', folder, '--data', data, '--max-steps', 6, '--load', folder,
                                      '--metrics', metrics, '--per_device_train_batch_size', 2, '--learning_rate', 0.005,
                                      '--weight_decay', 0.01] + (['--bf16'] if bf16 else []), metrics)
    if problem:
        return [problem], ''
    rows = result['rows']
    want = {'mean_loss': [x['loss'] for x in rows], 'grad_norm': [x['grad_norm'] for x in rows], 'lr': [[x['lr']] for x in rows],
            'scale': [None] * len(rows), 'overflow': [x['skipped'] for x in rows]}
    for x in lines:
        x['step'] -= e['global_step']
    problems, note = golden.compare_steps(lines, want, 0, (7.7e-3, 2.5e-2) if bf16 else (2.3e-6, 1e-5), False)
    expected = [x['learning_rate'] for x in e['next_steps'][:1]]   # told after the step: the next one's
    if abs(lines[-1]['lr'] - expected[0]) > 1e-9:
        problems.append('lr %s, the Trainer had %s' % (lines[-1]['lr'], expected[0]))
    return problems, note


def zerotrain(r, world, args, metrics=None):
    """(lines of metrics, problem)."""
    cmd = (['mpirun', '--oversubscribe', '--bind-to', 'none', '-n', str(world)] if world > 1 else []) + \
        [os.path.join(r.bin, 'zerotrain'), '--threads', '1', '--quiet', '--force'] + [str(x) for x in args]
    if metrics and os.path.exists(metrics):
        os.remove(metrics)
    p = subprocess.run(cmd, capture_output=True, text=True, env=r.env, timeout=900, check=False)
    if p.returncode:
        return [], 'exit %d: %s' % (p.returncode, p.stderr.strip()[:300])
    if not metrics:
        return [], None
    with open(metrics, encoding='utf-8') as f:
        return [json.loads(x) for x in f], None


# ---- c: what is exported, in transformers ----

def samples(r, model):
    """A file of samples to evaluate, and the same as tensors: the record's, one after the other."""
    from safetensors.torch import load_file, save_file
    data = load_file(os.path.join(r.golden, 'run_data_%s.safetensors' % model))
    batch = {k[3:]: v.reshape(-1, *v.shape[3:])[:24].contiguous() for k, v in data.items() if k.startswith('in/')}
    path = os.path.join(r.work, 'samples.safetensors')
    save_file(batch, path)
    return path, batch


def evaluate(r, run, config, args, model=None):
    """zerotrain's mean loss over the samples, and the classes' probabilities of a classifier."""
    path, _ = samples(r, run['model'])
    ds, metrics, out = (os.path.join(r.work, x) for x in ('e.json', 'm.jsonl', 'p.jsonl'))
    with open(ds, 'w', encoding='utf-8') as f:
        json.dump(config, f)
    base = ['--deepspeed_config', ds, '--model', model or os.path.join(r.golden, 'run_model_%s.json' % run['model']), '--data', path] + args
    lines, problem = zerotrain(r, 1, base + ['--evaluate', '--metrics', metrics], metrics)
    if problem:
        return None, None, 'evaluate: ' + problem
    probabilities = None
    if run['model'] == 'bert':
        _, problem = zerotrain(r, 1, base + ['--predict', out])
        if problem:
            return None, None, 'predict: ' + problem
        with open(out, encoding='utf-8') as f:
            probabilities = torch.tensor([json.loads(x)['probabilities'] for x in f])
    return lines[-1]['eval_loss'], probabilities, None


def beside(r, run, model, ours, limit):
    """A model of transformers beside what zerotrain said of the samples."""
    loss, probabilities, problem = ours
    if problem:
        return [problem], ''
    _, batch = samples(r, run['model'])
    with torch.no_grad():
        out = model.eval()(**batch)
    problems, far = [], abs(out.loss.item() - loss)
    if not far <= limit:
        problems.append('loss %.7g, transformers %.7g' % (loss, out.loss.item()))
    if probabilities is not None:
        apart = (out.logits.float().softmax(-1) - probabilities).abs().max().item()
        far = max(far, apart)
        if not apart <= limit:
            problems.append('probabilities differ by %.2g' % apart)
    return problems, 'off by %.1e' % far


def part_c(r, runs):
    for name in ('gpt2_z2_fp32', 'gpt2_z3_bf16', 'llama_z3_fp32', 'llama_z2_bf16', 'bert_z1_fp32', 'bert_z3_bf16', 'bert_z2_fp16'):
        yield name + ' exported', lambda n=name: exported(r, runs[n])
        yield name + ' consolidated', lambda n=name: consolidated(r, runs[n])


def loaded(folder, run, **more):
    """By transformers, from a folder, without anything missing or unknown."""
    import transformers
    cls = transformers.AutoModelForSequenceClassification if run['model'] == 'bert' else transformers.AutoModelForCausalLM
    model, info = cls.from_pretrained(folder, attn_implementation='eager', output_loading_info=True, **more)
    wrong = [k for k, v in info.items() if v and k != 'error_msgs'] + list(info.get('error_msgs') or [])
    return model, ['from_pretrained: %s' % {k: info.get(k) for k in wrong}] if wrong else []


def exported(r, run):
    kind, folder, saved = golden.kind_of(run['ds_config']), os.path.join(r.work, 'model'), os.path.join(r.work, 'c')
    for x in (folder, saved):
        shutil.rmtree(x, ignore_errors=True)
    _, problem = r.train(run, run['world'], ['--save-model', folder, '--save', saved], HALF)
    if problem:
        return [problem], ''
    model, problems = loaded(folder, run, dtype='auto')
    want = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16}[kind]
    if {p.dtype for p in model.parameters()} != {want}:
        problems.append('dtypes %s' % {p.dtype for p in model.parameters()})
    limit = {'fp32': 2e-6, 'bf16': 1.6e-2, 'fp16': 2e-3}[kind]
    more, note = beside(r, run, model, evaluate(r, run, run['ds_config'], ['--load', saved]), limit)
    again, _ = beside(r, run, model, evaluate(r, run, run['ds_config'], ['--init', folder], folder), limit)   # and it reads its own
    return problems + more + ['from the folder: ' + x for x in again], note


def consolidated(r, run):
    """zero_to_fp32 of a saved run: weights of --save-weights, bit for bit, and in torch the losses of the run in fp32."""
    from safetensors.torch import load_file
    saved, out, weights = (os.path.join(r.work, x) for x in ('c', 'fp32', 'w.safetensors'))
    for x in (saved, out):
        shutil.rmtree(x, ignore_errors=True)
    _, problem = r.train(run, run['world'], ['--save', saved, '--save-weights', weights], HALF)
    if problem:
        return [problem], ''
    os.mkdir(out)
    p = subprocess.run([os.path.join(r.bin, 'zero_to_fp32'), saved, os.path.join(out, 'model.safetensors')], capture_output=True,
                       text=True, check=False)
    if p.returncode:
        return ['zero_to_fp32: exit %d: %s' % (p.returncode, p.stderr.strip())], ''
    whole, own = load_file(os.path.join(out, 'model.safetensors')), load_file(weights)
    problems = ['--save-weights: %s differs' % n for n in own if n not in whole or not torch.equal(own[n], whole[n])]
    model = make_model(os.path.join(r.golden, 'run_model_%s.json' % run['model']))
    missing = model.load_state_dict(whole, strict=False)
    if [x for x in missing.missing_keys if x != 'lm_head.weight'] or missing.unexpected_keys:
        problems.append('torch: %s' % (missing,))
    config = {k: v for k, v in run['ds_config'].items() if k not in ('bf16', 'fp16')}
    more, note = beside(r, run, model, evaluate(r, run, config, ['--load', saved]), 2e-6)
    return problems + more, note


# ---- d: adapters ----

def part_d(r, runs):
    try:
        import peft  # noqa: F401
    except ImportError:
        print('interop engine: adapters are skipped (no peft)')
        return
    for name in ('gpt2_z2_fp32', 'gpt2_z3_bf16', 'llama_z3_fp32', 'bert_z1_fp32', 'bert_z3_bf16'):
        yield name + ' adapters', lambda n=name: adapters(r, runs[n])
        yield name + ' adapters resumed', lambda n=name: adapters_resumed(r, runs[n])


def lora(run):
    return ['--lora-rank', '4', '--lora-alpha', '8', '--lora-targets', LORA[run['model']]]


def adapters(r, run):
    import peft
    from safetensors.torch import load_file
    kind, folder, base, saved = golden.kind_of(run['ds_config']), *(os.path.join(r.work, x) for x in ('peft', 'base', 'd'))
    for x in (folder, base, saved):
        shutil.rmtree(x, ignore_errors=True)
    dtype = torch.bfloat16 if kind == 'bf16' else torch.float32
    first = {k[3:]: v for k, v in load_file(os.path.join(r.golden, 'run_data_%s.safetensors' % run['model'])).items()
             if k.startswith('w0/')}
    model = make_model(os.path.join(r.golden, 'run_model_%s.json' % run['model']))
    if model.load_state_dict(first, strict=False).unexpected_keys:
        return ['the base model is another'], ''
    model.to(dtype).save_pretrained(base)
    lines, problem = r.train(run, run['world'], lora(run) + ['--save-model', folder, '--save', saved], HALF)
    if problem:
        return [problem], ''
    problems = [] if lines[-1]['loss'] != lines[0]['loss'] else ['nothing is learnt']
    model, more = loaded(base, run, dtype=dtype)
    model = peft.PeftModel.from_pretrained(model, folder, autocast_adapter_dtype=False)
    moved = [n for n, p in model.named_parameters() if 'lora_B' in n and p.abs().max() > 0]
    if not moved or len(moved) != sum('lora_B' in n for n, _ in model.named_parameters()):
        problems.append('%d adapters are not zero' % len(moved))
    config = run['ds_config']
    ours = evaluate(r, run, config, ['--init', base, '--load', saved] + lora(run))
    also, note = beside(r, run, model, ours, 1.6e-2 if kind == 'bf16' else 2e-6)
    return problems + more + also, note


def adapters_resumed(r, run):
    """Saved, and gone on with at another stage, with the base weights from elsewhere."""
    saved = os.path.join(r.work, 'd')
    shutil.rmtree(saved, ignore_errors=True)
    whole, problem = r.train(run, run['world'], lora(run), LAST)
    if not problem:
        _, problem = r.train(run, run['world'], lora(run) + ['--save', saved], HALF)
    other = json.loads(json.dumps(run))
    other['ds_config']['zero_optimization']['stage'] = 3 if run['ds_config']['zero_optimization']['stage'] < 3 else 2
    if not problem:
        lines, problem = r.train(other, run['world'], lora(run) + ['--load', saved], LAST)
    if problem:
        return [problem], ''
    limits = limits_of(run)
    return golden.compare_steps(lines, from_lines(run, whole), HALF, limits, True)


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
    p.add_argument('--all', action='store_true', help='every record, not only some of each kind')
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('only', nargs='*', help='parts of names')
    a = p.parse_intermixed_args()
    a.bin, a.golden, a.fixtures = (os.path.abspath(x) for x in (a.bin, a.golden, a.fixtures))   # ranks have folders of their own
    tally = checks.Tally(a.verbose)
    ranks.prepare(('ShareMemCommBuilder', 'FusedAdamBuilder'))   # the rest is compiled where a run wants it
    import transformers   # before any fork
    transformers.AutoModelForCausalLM, transformers.AutoModelForSequenceClassification
    transformers.utils.logging.disable_progress_bar()
    r = golden.Runner(a.bin, a.golden)
    runs = read_runs(a.golden)
    parts = {'a': part_a, 'b': part_b, 'c': part_c, 'd': part_d}
    r.fixtures, r.all = a.fixtures, a.all
    for part in a.parts:
        cases = parts[part](r, runs)
        for name, check in cases if a.only else checks.mine(cases):
            if not a.only or any(x in name for x in a.only):
                tally.call(name, check)
    shutil.rmtree(r.work, ignore_errors=True)
    return tally.end('interop engine')


if __name__ == '__main__':
    sys.exit(main())
