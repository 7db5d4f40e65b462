#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs of DeepSpeed made from random settings, beside what our programs make of their checkpoints.

    differential.py --bin build/bin [--seed N] [--count N | --seconds S] [-v] [--one SEED]

Each run (differential_spec.py) is trained and saved by the unmodified DeepSpeed, and loaded by it again, with
wrong weights and hyper-parameters before: what it then holds and its next losses are the measure.  Then
  * zero_to_fp32 gives what DeepSpeed's own function gives, every floating tensor as float32; of stage 0 the
    engine's masters;
  * ckpt verify finds nothing;
  * ckpt reshard to two other worlds and stages, and ds_to_universal now and then: DeepSpeed loads the result
    strictly, holds the same masters, moments, steps, groups, scaler, scheduler, counters, client state,
    buffers, and has the same next losses.
Every rank gets the same batch, so the mean gradient is the same at any world.

The seed is new in each run and is printed; --one SEED repeats one spec.  A few minutes are enough for dozens.
"""
import argparse
import contextlib
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

os.environ['DS_ACCELERATOR'] = 'cpu'
try:
    import ds_harness
    import ranks
    import differential_spec as specs
    from reshard_resume import client_state, same_bits, values_differ
except ImportError:
    print('interop differential: skipped (no torch and DeepSpeed)')
    sys.exit(0)

NEXT = 3                                                # steps after loading
NEAR = {'fp32': 2e-5, 'bf16': 2e-2, 'fp16': 5e-3}       # of losses: gradients are summed in another order
WRONG = 0.37                                            # learning rate and decay before loading


# ---- model, optimizer, data: in the ranks ----

def make_model(spec, wrong, rest):
    """wrong: other weights than the run's; rest: but its own frozen parameters and buffers."""
    import torch
    from torch import nn
    m = spec['model']
    if m.get('kind') == 'gpt2':
        return make_gpt2(spec, wrong)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            d = m['d']
            self.emb = nn.Embedding(m['vocab'], d)
            self.layers = nn.ModuleList(nn.Linear(d, d) for _ in range(m['layers']))
            self.norm = nn.LayerNorm(d)
            if m['conv']:
                self.conv = nn.Conv1d(d, d, 3, padding=1)
            if m['scalar']:
                self.gain = nn.Parameter(torch.ones(1))
            if m['empty']:
                self.void = nn.Parameter(torch.zeros(0, 3))
            if m['unused']:
                self.spare = nn.Linear(3, d)
            self.head = nn.Linear(d, m['vocab'], bias=False)
            if m['tied']:
                self.head.weight = self.emb.weight
            for kind in m['buffers']:
                value = {'f32': torch.rand(d) + 0.5, 'i64': torch.arange(5) + 2 ** 40,
                         'bool': torch.rand(4) > 0.5, 'bf16': torch.rand(3).bfloat16(),
                         'f64': torch.rand(3, dtype=torch.float64), 'hidden': torch.rand(d)}[kind]
                self.register_buffer('buf_' + kind, value, persistent=kind != 'hidden')

        def forward(self, x, y):
            h = self.emb(x)
            for layer in self.layers:
                h = h + torch.tanh(layer(h))
            if m['conv']:
                h = h + self.conv(h.transpose(1, 2)).transpose(1, 2)
            if 'f32' in m['buffers']:
                h = h * self.buf_f32.to(h.dtype)
            h = self.norm(h)
            if m['scalar']:
                h = h * self.gain
            z = self.head(h)
            return nn.functional.cross_entropy(z.reshape(-1, z.shape[-1]).float(), y.reshape(-1))

    torch.manual_seed(spec['seed'] % 2 ** 31)
    model = Net()
    own = {n: t.clone() for n, t in list(model.named_parameters()) + list(model.named_buffers())}
    freeze(model, spec)
    if wrong:
        torch.manual_seed(1 + spec['seed'] % 2 ** 31)
        with torch.no_grad():
            for n, p in list(model.named_parameters()) + list(model.named_buffers()):
                kept = n == 'buf_hidden' or (rest or spec['exclude_frozen']
                                             and not n.startswith('buf_')) and not p.requires_grad
                p.copy_(own[n] if kept else torch.rand(p.shape)
                        if p.is_floating_point() else torch.zeros_like(p))
    return model


def gpt2_config(spec):
    import transformers
    m = spec['model']
    return transformers.GPT2Config(vocab_size=m['vocab'], n_embd=m['d'], n_layer=m['layers'], n_head=2,
                                   n_positions=8, attn_pdrop=0.0,
                                   embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0,
                                   attn_implementation='eager')


def make_gpt2(spec, wrong):
    import torch
    import transformers
    torch.manual_seed(spec['seed'] % 2 ** 31 + wrong)
    return transformers.GPT2LMHeadModel(gpt2_config(spec)).float()


def loss_of(engine, spec, x, y):
    return engine(input_ids=x, labels=x).loss if spec['model'].get('kind') == 'gpt2' else engine(x, y)


def freeze(model, spec):
    every = [n for n, _ in model.named_parameters()]
    which = {'none': [], 'first': [n for n in every if n.startswith('layers.0.')], 'emb': ['emb.weight'],
             'half': every[::2],
             'all_but_one': [n for n in every if n != 'norm.weight']}[spec['model']['frozen']]
    for n, p in model.named_parameters():
        p.requires_grad_(n not in which)


def lr_from_groups(spec):
    """Some of DeepSpeed's schedulers take their base rates from the groups at first, and save none."""
    return isinstance(specs.SCHEDULERS[spec['scheduler']], dict)


def make_groups(model, spec, wrong):
    cls, g = specs.OPTIMIZERS[spec['optimizer']], spec['groups']
    params = [p for p in model.parameters() if p.requires_grad and (p.numel() or spec['stage'] < 3)]
    n = min(g['n'], len(params))
    if n == 1 and not g['named']:
        return params
    groups = [{'params': params[i::n], 'lr': g['lrs'][i], 'weight_decay': g['decays'][i]} for i in range(n)]
    for i, group in enumerate(groups):
        if g['named']:
            group['name'] = 'group %d' % i
        if wrong:
            group.update(lr=group['lr'] if lr_from_groups(spec) else WRONG)
            if not cls['how'] == 'ds':
                group.update(weight_decay=WRONG)
        if spec['optimizer'] in ('rprop',):
            group.pop('weight_decay')
    return groups


def make_optimizer(spec, groups, wrong):
    import torch
    cls = specs.OPTIMIZERS[spec['optimizer']]
    if cls['how'] == 'ds':
        return None
    params = dict(cls['params'])
    if wrong and not lr_from_groups(spec):
        params['lr'] = WRONG
    return getattr(torch.optim, cls['type'])(groups, **params)


def make_scheduler(spec):
    from torch.optim import lr_scheduler as s
    name = spec['scheduler']
    if specs.SCHEDULERS[name] != 'torch':
        return None
    return {'StepLR': lambda o: s.StepLR(o, 2, 0.7),
            'LambdaLR': lambda o: s.LambdaLR(o, lambda n: 1 / (1 + n)),
            'CosineAnnealingLR': lambda o: s.CosineAnnealingLR(o, 30),
            'ExponentialLR': lambda o: s.ExponentialLR(o, 0.9),
            'SequentialLR': lambda o: s.SequentialLR(o, [s.ConstantLR(o, 0.5, 2), s.ExponentialLR(o, 0.8)],
                                                     [2])}[name]


def batches(spec, step):
    import torch
    g = torch.Generator().manual_seed(1000 * (spec['seed'] % 10 ** 6) + step)
    return [torch.randint(0, spec['model']['vocab'], (2, 4, 6), generator=g) for _ in range(spec['gas'])]


def client_values(spec):
    import argparse as module
    import torch
    c = dict(spec['client'])
    for key, value in list(c.items()):
        if value == 'TENSOR':
            c[key] = torch.arange(7, dtype=torch.float64) / 3
        elif value == 'OBJECT':
            c[key] = module.Namespace(lr=0.1, name='run', nested=module.Namespace(a=[1, 2]))
        elif value == 'RNG':
            c[key] = {'rng': torch.get_rng_state()[:64].clone(), 'half': torch.ones(3, 2).bfloat16().t()}
    return c


# ---- what an engine holds ----

def whole_groups(engine):
    """Stage 0: (parameter, its fp32 master, its optimizer state), the state cut out where groups are flat."""
    opt = engine.optimizer
    inner = getattr(opt, 'optimizer', opt)
    if hasattr(opt, 'fp32_groups_flat'):
        for params, flat in zip(opt.fp16_groups, opt.fp32_groups_flat):
            at, entry = 0, inner.state.get(flat, {})
            for p in params:
                cut = slice(at, at + p.numel())
                yield p, flat.detach()[cut].view(p.shape), {k: v[cut].view(p.shape) if hasattr(v, 'numel')
                                                            and v.numel() == flat.numel() else v
                                                            for k, v in entry.items()}
                at += p.numel()
    elif hasattr(opt, 'fp32_groups'):
        for params, masters in zip(opt.fp16_groups, opt.fp32_groups):
            for p, master in zip(params, masters):
                yield p, master.detach(), inner.state.get(master, {})
    else:
        for group in opt.param_groups:
            for p in group['params']:
                yield p, p.detach(), inner.state.get(p, {})


def held_whole(engine):
    """Masters, moments and numbers of a stage 0 engine."""
    import torch
    names = {id(p): n for n, p in engine.module.named_parameters()}
    weights, state, numbers = {}, {}, {}
    for p, master, entry in whole_groups(engine):
        if p.numel() == 0:   # stages of ZeRO leave it out of the optimizer
            continue
        n = names[id(p)]
        weights[n] = master.float().clone()
        for k, v in entry.items():
            if torch.is_tensor(v) and v.numel() == p.numel() and v.dim() == p.dim() and \
                    (p.dim() or k != 'step'):
                state.setdefault(k, {})[n] = v.detach().float().clone()
            elif not torch.is_tensor(v) or v.numel() == 1:
                numbers.setdefault(k, []).append(float(v))
    return weights, state, numbers


def held(engine, world):
    """The same of any engine, whole on each rank."""
    import torch
    opt = engine.optimizer
    flat = any(hasattr(opt, a) for a in ('fp32_partitioned_groups_flat', 'single_partition_of_fp32_groups',
                                         'fp32_groups_flat_partition'))
    if not flat:
        return held_whole(engine)
    weights, state, _ = ds_harness.gather(engine, world, 0)
    numbers = {}
    for _, part, entry, _ in ds_harness.flat_groups(engine, world):
        for k, v in entry.items():
            if not torch.is_tensor(v) or v.numel() == 1 and part.numel() != 1:
                numbers.setdefault(k, []).append(float(v))
    return weights, state, numbers


def seen(engine, world, client):
    import deepspeed
    weights, state, numbers = held(engine, world)
    names = {id(p): n for n, p in engine.module.named_parameters()}
    every = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(every, enabled=engine.zero_optimization_stage() == 3):
        module = {names[id(p)]: p.detach().clone() for p in every}
    module.update({n: b.detach().clone() for n, b in engine.module.named_buffers() if 'hidden' not in n})
    opt, plain = engine.optimizer, ds_harness.plain
    scaler = {k: getattr(opt, k) for k in ('cur_scale', 'cur_iter', 'last_overflow_iter', 'scale_factor',
                                           'scale_window', 'dynamic_loss_scale')
              if hasattr(opt, k)}
    inner = getattr(opt, 'loss_scaler', None)
    if inner is not None:
        scaler.update({k: v for k, v in vars(inner).items() if isinstance(v, (int, float, bool))})
    sched = engine.lr_scheduler
    return dict(weights=weights, state=state, numbers=numbers, module=module, groups=plain(opt.param_groups),
                scaler=plain(scaler),
                scheduler=plain(sched.state_dict()) if sched is not None else None, client=client,
                counters={k: getattr(engine, k) for k in ('global_steps', 'global_samples', 'skipped_steps')})


# ---- one rank ----

@dataclasses.dataclass
class Task:
    """Train from the beginning and save into folder (world, stage: the spec's), or load from it and go on."""
    spec: dict
    folder: str
    load: bool
    world: int
    stage: int
    tag: str = None
    universal: bool = False
    steps: int = NEXT


def train(engine, spec, first, count):
    losses = []
    for step in range(first, first + count):
        total = 0.0
        for x, y in batches(spec, step):
            loss = loss_of(engine, spec, x, y)
            engine.backward(loss)
            engine.step()
            total += loss.item() / spec['gas']
        losses.append(total)
    return losses


def rank_main(task, rank, out):
    import deepspeed
    import torch
    ds_harness.patch()
    spec = task.spec
    # elastic state holds no hyper-parameters, universal checkpoints give those of one group to all
    wrong = task.load and not spec['zero'].get('elastic_checkpoint') and not task.universal
    model = make_model(spec, task.load, task.universal)
    cfg = specs.config(spec, task.stage)
    if task.universal:
        cfg['checkpoint'] = {'load_universal': True}
        # with it DeepSpeed puts universal files in other places
        cfg['zero_optimization'].pop('round_robin_gradients', None)
    if wrong and 'optimizer' in cfg and not lr_from_groups(spec):
        cfg['optimizer']['params']['lr'] = WRONG
    groups = make_groups(model, spec, wrong)
    optimizer = make_optimizer(spec, groups, wrong)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=None if optimizer else groups,
                                           optimizer=optimizer,
                                           lr_scheduler=make_scheduler(spec), config=cfg)
    r = {}
    if task.load:
        path, client = engine.load_checkpoint(task.folder, tag=task.tag,
                                              load_module_strict=not spec['exclude_frozen'])
        if path is None:
            raise RuntimeError('DeepSpeed loads nothing from %s' % task.folder)
        r = seen(engine, task.world, {k: v for k, v in (client or {}).items() if k in spec['client']
                                      or k == 'ds_config'})
        r['losses'] = train(engine, spec, engine.global_steps, task.steps)
        r['after'] = held(engine, task.world)[2]
        r['skipped_later'] = engine.skipped_steps - r['counters']['skipped_steps']
    else:
        r['losses'] = train(engine, spec, 0, spec['steps'])
        engine.save_checkpoint(task.folder, tag=spec['tag'], client_state=client_values(spec),
                               exclude_frozen_parameters=spec['exclude_frozen'])
        r['weights'] = held(engine, task.world)[0]
    if rank == 0:
        torch.save(r, out)


def run_task(task, timeout=900):
    """(what rank 0 saw, '') or (None, the error)."""
    return ranks.run_ranks(task.world, lambda rank, out: rank_main(task, rank, out), timeout)


# ---- comparisons ----

def tensors_differ(what, got, want, may_lack=(), zeros=False):
    """zeros: got may have more, if it is zero (state that stage 0 has not made yet)."""
    out = []
    for n in sorted(set(want) - set(got)):
        if n not in may_lack:
            out.append('%s lacks %s' % (what, n))
    for n in sorted(set(got) - set(want)):
        if not zeros or got[n].any():
            out.append('%s has %s besides' % (what, n))
    wrong = [n for n in want if n in got and not same_bits(got[n], want[n])]
    return out + (['%s: other values in %d of %d: %s' % (what, len(wrong), len(want), ', '.join(wrong[:3]))]
                  if wrong else [])


def objects_same(a, b):
    import torch
    if torch.is_tensor(a) and torch.is_tensor(b):
        return same_bits(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(objects_same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(objects_same(x, y) for x, y in zip(a, b))
    return a == b


def numbers_differ(what, got, want, stage0):
    """Numbers of optimizer states (steps and others): the same set; of stage 0 the largest, where some
    parameters have none or FusedAdam counts in one alone."""
    out = []
    for k in sorted(set(got) | set(want)):
        g, w = sorted(set(got.get(k, []))), sorted(set(want.get(k, [])))
        if g != w and not (stage0 and w and set(g) - {0.0} == {max(w)}):
            out.append('%s %s is %s instead of %s' % (what, k, g, w))
    return out


def without_groups(spec, target):
    """Elastic files hold no hyper-parameters: stage 3 gets the configuration's, and the program says so; zerotrain
    goes on with the rate of the schedule, where DeepSpeed's scheduler begins anew."""
    if not spec['zero'].get('elastic_checkpoint'):
        return False
    return target['stage'] == 3 if target['kind'] == 'reshard' else target['kind'] == 'zerotrain' and lr_from_groups(spec)


def without_first_name(spec, error):
    """Stages 0 and 1 name no frozen parameters: that of a tie of excluded ones is the second name in the module,
    for which DeepSpeed does not look."""
    m = spec['model']
    missed = m['tied'] and m['frozen'] == 'emb' and "KeyError: 'emb.weight'" in error
    return spec['stage'] < 2 and spec['exclude_frozen'] and missed


def universal_fails(target, want, error):
    """What DeepSpeed's loader of universal checkpoints has not: at stage 3 a run without a step count (the program
    warns), and a step of its own for each sub-group of torch's optimizers; a rank without an element of a group."""
    stage3 = ds_harness.SHARED_STEP in error or "KeyError: 'step'" in error and not want['state']
    return target['stage'] == 3 and stage3 or 'IndexError: list index out of range' in error and \
        'in load_hp_checkpoint_state_from_checkpoint_dir' in error


def held_differ(spec, target, got, want):
    """What DeepSpeed holds after loading ours, beside what it holds after loading its own."""
    uni, stage0 = target['kind'] == 'universal', spec['stage'] == 0
    unused = {n for n in want['weights'] if n.startswith('spare.')}
    out = tensors_differ('masters', got['weights'], want['weights'])
    # whole matrices have Muon's momentum in each engine in another form: the losses are the proof
    for kind in sorted((set(want['state']) | set(got['state'])) -
                       ({'momentum_buffer'} if spec['optimizer'] == 'ds_muon' else set())):
        out += tensors_differ('state ' + kind, got['state'].get(kind, {}), want['state'].get(kind, {}),
                              zeros=stage0 and bool(unused))
    out += numbers_differ('state', got['numbers'], want['numbers'], stage0)
    if not uni:
        out += tensors_differ('module', got['module'], want['module'])
        out += [] if without_groups(spec, target) else values_differ('groups', got['groups'], want['groups'])
        out += values_differ('scheduler', got['scheduler'], want['scheduler'])
    out += values_differ('scaler', {k: v for k, v in got['scaler'].items() if k in want['scaler']},
                         {k: v for k, v in want['scaler'].items() if k in got['scaler']})
    out += values_differ('counters', got['counters'], want['counters'])
    for k in spec['client']:
        if not objects_same(got['client'].get(k), want['client'].get(k)):
            out.append('client state %s is %r instead of %r' % (k, got['client'].get(k),
                                                                want['client'].get(k)))
    out += values_differ('client', client_state({'ds_config': got['client'].get('ds_config')}).keys(),
                         client_state({'ds_config': want['client'].get('ds_config')}).keys())
    return out


def unscaled(spec):
    """Stage 0 of 0.19.8 does not scale the loss, and divides gradients by the scale: only the others overflow
    and skip steps, and moments are of other gradients than theirs."""
    return spec['stage'] == 0 and spec['dtype'] == 'fp16'


def losses_off(spec, target, got, want):
    """How far losses are from those of the run itself; only the first where one of both is unscaled, or has
    other hyper-parameters (stages 1 and 2 make Adagrad anew: a scheduler keeps the old one)."""
    other = target['stage'] > 0 or target['kind'] == 'zerotrain'
    first = without_groups(spec, target) or other and (unscaled(spec) or 'adagrad' in spec['optimizer']
                                                       and spec['stage'] == 0)
    n = 1 if first else NEXT
    return ds_harness.far(got[:n], want[:n])


def losses_differ(spec, target, got, want):
    # gets group 0's settings
    several = target['kind'] == 'universal' and target['stage'] == 3 and spec['groups']['n'] > 1
    if not specs.OPTIMIZERS[spec['optimizer']].get('elementwise', True) or several:
        return []
    if unscaled(spec) and got['skipped_later'] != want['skipped_later']:
        return []
    off = losses_off(spec, target, got['losses'], want['losses'])
    out = [] if off <= NEAR[spec['dtype']] else \
        ['losses off by %.2g: %s instead of %s' % (off, got['losses'], want['losses'])]
    return out + (numbers_differ('at the end', got['after'], want['after'], spec['stage'] == 0)
                  if len(want['losses']) == NEXT else [])


# ---- our programs ----

def call(a, *args):
    p = subprocess.run([os.path.join(a.bin, args[0])] + [str(x) for x in args[1:]], capture_output=True,
                       text=True, check=False, timeout=900)
    return p.returncode, p.stderr.strip() or p.stdout.strip()


def script(folder, tag):
    """What DeepSpeed's own consolidation gives."""
    from deepspeed.utils import zero_to_fp32
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(folder, tag=tag)


def weights_differ(a, spec, folder, tag, made, out):
    """zero_to_fp32 beside DeepSpeed's function, floating tensors as float32."""
    import torch
    rc, text = call(a, 'zero_to_fp32', '-q', folder, out, '-t', tag, '--no-fsync')
    if rc:
        return ['zero_to_fp32: exit %d: %s' % (rc, text)]
    if spec['stage'] == 0 and ('not certain' in text or 'with certainty' in text):
        # stage 0 saves masters without names: where they are not certain, the 16-bit weights come, as is said
        return []
    got = torch.load(os.path.join(out, 'pytorch_model.bin'), weights_only=True)
    try:
        want = script(folder, tag) if spec['stage'] else made['weights']
    except Exception as x:  # ours reads more; that it does is checked by the masters
        if spec['verbose']:
            print('  (DeepSpeed\'s script: %s: %s)' % (type(x).__name__, str(x)[:200]))
        want = made['weights']
    bad = []
    for n, t in want.items():
        t = t.detach()
        t = t.float() if t.is_floating_point() else t
        if n not in got:
            bad.append('zero_to_fp32 lacks %s' % n)
        elif not same_bits(got[n].contiguous(), t.contiguous()):
            bad.append('zero_to_fp32: %s is %s %s instead of %s %s, or of other values' %
                       (n, got[n].dtype, list(got[n].shape), t.dtype, list(t.shape)))
    return bad


def refusal_is_right(spec, text):
    """Stage 0 state without a per-element form cannot be partitioned; of several groups, it has no names."""
    several = spec['groups']['n'] > 1 or spec['model']['frozen'] != 'none' or spec['model']['unused']
    if spec['stage'] == 0 and several and ('no training state was read' in text
                                           or 'holds no training state' in text):
        return True
    return specs.OPTIMIZERS[spec['optimizer']].get('whole_only') and spec['stage'] == 0 and \
        ('variance' in text or 'cannot be cut' in text)


def go(a, spec, target, folder, tag, out):
    """Run the program for a target.  (path to load, its tag, problems)"""
    objects = ['--keep-objects'] if 'object' in spec['client'] else []
    if target['kind'] == 'reshard':
        rc, text = call(a, 'ckpt', 'reshard', '-q', folder, out, '--world', target['world'], '--stage',
                        target['stage'], '-t', tag, *objects)
        return out, tag, [] if rc == 0 else ['reshard: exit %d: %s' % (rc, text)]
    objects = [o.replace('-objects', '_objects') for o in objects]
    rc, text = call(a, 'ds_to_universal', '-q', '--input_folder', os.path.join(folder, tag),
                    '--output_folder',
                    os.path.join(out, 'universal'), *objects)
    return out, 'universal', [] if rc == 0 else ['ds_to_universal: exit %d: %s' % (rc, text)]


def write_data(spec, world, path):
    """The batches as zerotrain draws them in order: what the run has had, then each for every rank."""
    import torch
    from safetensors.torch import save_file
    # zerotrain goes on at the last whole batch of its own size
    had = torch.zeros(spec['steps'] * spec['gas'] * spec['world'] // world * world * 4, 6, dtype=torch.int64)
    every = [x for step in range(spec['steps'], spec['steps'] + 2 * NEXT) for x, _ in batches(spec, step)
             for _ in range(world)]
    save_file({'input_ids': torch.cat([had] + every), 'labels': torch.cat([had] + every)}, path)


def zerotrain(a, spec, target, folder, tag, out, data):
    """NEXT updates from DeepSpeed's checkpoint.  (losses, problems)"""
    with open(os.path.join(out, 'config.json'), 'w', encoding='utf-8') as f:
        f.write(gpt2_config(spec).to_json_string())
    with open(os.path.join(out, 'ds.json'), 'w', encoding='utf-8') as f:
        json.dump(specs.config(spec, target['stage']), f)
    metrics = os.path.join(out, 'metrics')
    args = [os.path.join(a.bin, 'zerotrain'), '--deepspeed_config', os.path.join(out, 'ds.json'), '--model',
            out, '--data', data,
            '--no-shuffle', '--quiet', '--load', folder, '--load-tag', tag, '--max-steps',
            str(spec['steps'] + NEXT), '--save',
            os.path.join(out, 'run'), '--metrics', metrics, '--threads', '1', '--force']
    if target['world'] > 1:
        args = ['mpirun', '--oversubscribe', '--bind-to', 'none', '-n', str(target['world'])] + args
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
    p = subprocess.run(args, capture_output=True, text=True, check=False, timeout=900, env=env)
    if p.returncode:
        return [], ['zerotrain: exit %d: %s' % (p.returncode, (p.stderr or p.stdout).strip()[:400])]
    with open(metrics, encoding='utf-8') as f:
        return [json.loads(x)['loss'] for x in f if '"loss"' in x], []


def engine_target(a, spec, target, folder, tag, want, tmp):
    """zerotrain goes on from DeepSpeed's checkpoint in another world and stage, DeepSpeed from its."""
    out = tempfile.mkdtemp(dir=tmp)
    data = os.path.join(out, 'data.safetensors')
    write_data(spec, target['world'], data)
    losses, problems = zerotrain(a, spec, target, folder, tag, out, data)
    if problems:
        return problems
    near = NEAR[spec['dtype']] * 3   # products are summed in other orders than torch's
    off = losses_off(spec, target, losses, want['losses'])
    if off > near:
        return ['zerotrain\'s losses are off by %.2g: %s instead of %s' %
                (off, losses, want['losses'][:NEXT])]
    got, error = run_task(Task(spec, os.path.join(out, 'run'), True, target['world'], target['stage']))
    if error:
        return ['DeepSpeed, from zerotrain\'s: ' + ds_harness.short(error)]
    off = ds_harness.far(got['losses'], want['losses'][NEXT:])
    problems = [] if off <= near or unscaled(spec) or without_groups(spec, target) else \
        ['DeepSpeed\'s losses from zerotrain\'s are off by %.2g: %s instead of %s' %
         (off, got['losses'], want['losses'][NEXT:])]
    rates = ('lr', 'initial_lr')
    # where every step was skipped, DeepSpeed has no state yet, and zerotrain has one of zeros
    groups = [[{k: v for k, v in g.items() if k not in rates and (k, v) != ('step', 0)} for g in x['groups']]
              for x in (got, want)]
    after = [{k: v for k, v in x['after'].items() if set(v) != {0.0}} for x in (got, want)]
    problems += values_differ('groups', *groups)
    skipped = want['counters']['skipped_steps'] + want['skipped_later'], got['counters']['skipped_steps']
    if (unscaled(spec) or unscaled(dict(spec, stage=target['stage']))) and skipped[0] != skipped[1]:
        return problems
    same = {k: v for k, v in want['counters'].items() if k == 'skipped_steps'}
    return problems + numbers_differ('at the end', *after, spec['stage'] == 0 or target['stage'] == 0) + \
        values_differ('counters', {k: got['counters'][k] for k in same}
                      if not want['skipped_later'] else same, same)


def one_target(a, spec, target, folder, tag, want, tmp):
    if target['kind'] == 'zerotrain':
        return engine_target(a, spec, target, folder, tag, want, tmp)
    out = tempfile.mkdtemp(dir=tmp)
    path, to_tag, problems = go(a, spec, target, folder, tag, out)
    if problems:
        return [] if refusal_is_right(spec, problems[0]) else problems
    got, error = run_task(Task(spec, path, True, target['world'], target['stage'], to_tag,
                               target['kind'] == 'universal'))
    if error and (without_first_name(spec, error) or target['kind'] == 'universal' and universal_fails(target, want, error)):
        return []
    if error:
        return ['DeepSpeed: ' + ds_harness.short(error)]
    return held_differ(spec, target, got, want) + losses_differ(spec, target, got, want)


def one(a, seed, tmp):
    """(problems by what was tried, None) of one spec, or why it is none: DeepSpeed itself does not run it."""
    spec = specs.make(seed)
    spec['verbose'] = a.verbose
    folder = tempfile.mkdtemp(dir=tmp)
    made, error = run_task(Task(spec, folder, False, spec['world'], spec['stage']))
    if error:
        return {}, 'DeepSpeed does not run it: ' + ds_harness.short(error)
    if any(not t.isfinite().all() for t in made['weights'].values()):
        return {}, 'DeepSpeed runs it into NaN: stage 3 does not clear gradients of parameters that are not used'
    tag = open(os.path.join(folder, 'latest'), encoding='utf-8').read().strip()
    twice = any(t['kind'] == 'zerotrain' for t in spec['targets'])
    want, error = run_task(Task(spec, folder, True, spec['world'], spec['stage'], tag, steps=2 * NEXT
                                if twice else NEXT))
    found = {'weights': weights_differ(a, spec, folder, tag, made, os.path.join(tmp, 'fp32'))}
    rc, text = call(a, 'ckpt', 'verify', '-q', folder, '-t', tag)
    found['verify'] = ['verify: exit %d: %s' % (rc, text)] if rc else []
    if error:
        return found, 'DeepSpeed does not load it: ' + ds_harness.short(error)
    for target in spec['targets']:
        found['%s w%d z%d' % (target['kind'], target['world'], target['stage'])] = \
            one_target(a, spec, target, folder, tag, want, tmp)
    return found, None


def describe(spec):
    keep = {k: v for k, v in spec.items() if k not in ('verbose', 'targets', 'seed')}
    return json.dumps(keep, default=str)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--seed', type=int, default=None)
    p.add_argument('--count', type=int, default=10 ** 9)
    p.add_argument('--seconds', type=float, default=None)
    p.add_argument('--one', type=int, default=None)
    p.add_argument('--keep', action='store_true', help='leave the files')
    p.add_argument('-v', '--verbose', action='store_true')
    a = p.parse_args()
    a.bin = os.path.abspath(a.bin)
    seed = a.one if a.one is not None else a.seed if a.seed is not None else int(time.time())
    count = 1 if a.one is not None else a.count
    start, passed, failed, none, made = time.time(), 0, 0, 0, 0
    print('interop differential: seeds from %d on' % seed, flush=True)
    ranks.prepare()
    while made + none < count and (a.seconds is None or time.time() - start < a.seconds):
        tmp = tempfile.mkdtemp(dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None)
        try:
            found, why_not = one(a, seed, tmp)
        except Exception as x:  # a failure of any kind is a failed check
            found, why_not = {'?': [traceback.format_exc()[-600:] or str(x)]}, None
        finally:
            if a.keep:
                print(tmp)
            else:
                shutil.rmtree(tmp, ignore_errors=True)
        made, none = made + (not why_not), none + bool(why_not)
        if why_not and a.verbose:
            print('seed %d: %s' % (seed, why_not), flush=True)
        bad = {k: v for k, v in found.items() if v}
        passed, failed = passed + len(found) - len(bad), failed + len(bad)
        for what, problems in bad.items():
            print('FAIL seed %d %s: %s' % (seed, what, '; '.join(problems[:4])[:1200]), flush=True)
        if bad or a.verbose:
            print('     seed %d: %s' % (seed, describe(specs.make(seed))), flush=True)
        seed += 1
    print('interop differential: %d checkpoints, %d settings that DeepSpeed does not run or load (%.0f s)' %
          (made, none, time.time() - start))
    print('interop differential: %d passed, %d failed' % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
