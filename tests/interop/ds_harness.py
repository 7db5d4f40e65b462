#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resume the fixtures' runs in the real DeepSpeed, at any world size and stage, and say what it loaded and what came next.

    ds_harness.py FIXTURES [NAME...]      every fixture unchanged, at its own world: losses beside expected.json

As a module: Case says what to load and how, run(cases) gives for each a Result.  torch and DeepSpeed are imported once; each
case runs in processes of its own, forked from here (gloo, one thread a rank), so that no case sees another's globals.

At another world size than the checkpoint's every rank is fed the whole global batch of a step, so that the mean
gradient is the source's in exact arithmetic.  The optimizer is built with wrong hyper-parameters and the model with
wrong weights on purpose: what a checkpoint should bring must come from it.
"""
import dataclasses
import json
import os
import re
import sys
import time

import ranks

STEPS = 5
WRONG = {'lr': 0.77, 'weight_decay': 0.33}
KINDS = ('mlp', 'gpt', 'odd', 'reg')
# Keys of zero_optimization that belong to one stage only, or to how the files of the source were written.
STAGE_3 = ('offload_param', 'zero_hpz_partition_size', 'stage3_gather_16bit_weights_on_model_save')
STAGE_12 = ('round_robin_gradients', 'parameter_alignment', 'elastic_checkpoint')


@dataclasses.dataclass
class Case:
    """What to load: folder is a run folder (with `latest`), fixture the folder with expected.json that says what run it is."""
    name: str
    fixture: str
    folder: str
    world: int
    stage: int = 0            # 0: the fixture's
    tag: str = None
    universal: bool = False
    steps: int = STEPS
    config: dict = dataclasses.field(default_factory=dict)   # merged over the fixture's, one level deep
    drop: tuple = ()          # keys of zero_optimization to leave out besides
    strict: bool = True
    wrong: bool = True        # wrong hyper-parameters at first
    whole: bool = False       # feed every rank the whole global batch at the fixture's own world too
    timeout: float = 120
    expected: dict = None     # of the tag; read from the fixture when absent


@dataclasses.dataclass
class Result:
    """What came of it.  error: text of the first rank that failed, else ''."""
    error: str = ''
    losses: list = dataclasses.field(default_factory=list)
    rows: list = dataclasses.field(default_factory=list)      # per step: loss, lr, scale, skipped
    groups: list = dataclasses.field(default_factory=list)    # param_groups after loading, parameters by name
    steps: list = dataclasses.field(default_factory=list)     # optimizer steps of the flat groups
    scaler: dict = None
    scheduler: dict = None
    client: dict = None
    counters: dict = None
    weights: dict = None      # name -> fp32 tensor, after loading
    state: dict = None        # kind -> name -> fp32 tensor
    module: dict = None       # the module's own parameters and buffers by name, in the training dtype
    final: dict = None        # weights after the last step
    final_steps: list = dataclasses.field(default_factory=list)
    seconds: float = 0


SHARED_STEP = 'flat groups share one step count'


# ---- what the fixtures say ----

def read_expected(fixture, tag=None):
    """expected.json, with the fields of another tag laid over when one is asked for."""
    with open(os.path.join(fixture, 'expected.json'), encoding='utf-8') as f:
        e = json.load(f)
    if tag and tag != e.get('tag'):
        e = {**e, **e['other_tags'][tag], 'resume': None}
    return e


def persistent(e):
    """Names of the buffers that are saved; old fixtures do not tell them apart."""
    return e['buffers'] if e.get('persistent_buffers') is None else e['persistent_buffers']


def alone(case, e):
    """True if each rank gets its own part of the batch, as in the fixture's run."""
    return case.world == e['world'] and not case.whole


def config_of(case, e):
    """The fixture's ds_config for the case's world and stage."""
    cfg = json.loads(json.dumps(e['ds_config']))
    zero = cfg.setdefault('zero_optimization', {})
    stage = case.stage or e['stage']
    scale = 1 if alone(case, e) else e['world']
    cfg.pop('train_batch_size', None)
    cfg['train_micro_batch_size_per_gpu'] = e['micro'] * scale
    cfg['gradient_accumulation_steps'] = e['gas']
    cfg['zero_allow_untested_optimizer'] = True
    for key in case.drop + (STAGE_3 if stage < 3 else STAGE_12):
        zero.pop(key, None)
    if case.world % zero.get('zero_hpz_partition_size', 1):
        zero.pop('zero_hpz_partition_size')
    zero['stage'] = stage
    if stage == 3:
        zero.setdefault('stage3_param_persistence_threshold', 0)
    if stage > 1:
        cfg.pop('data_types', None)
    if e['producer']['deepspeed'] != '0.19.8':   # its default was no clipping
        cfg.setdefault('gradient_clipping', 0.0)
    if case.universal:
        cfg['checkpoint'] = {'load_universal': True}
    for key, value in case.config.items():
        cfg[key] = {**cfg.get(key, {}), **value} if isinstance(value, dict) else value
    return cfg


# ---- models ----

def make_model(e, frozen_values):
    import torch
    from torch import nn
    F = nn.functional
    opts = dict(e['model'])
    kind = opts.pop('kind')
    upcast = e.get('arithmetic', 'native') != 'native'

    def lin(m, x):
        """A linear layer in the run's arithmetic."""
        return m(x)

    class Mlp(nn.Module):
        def __init__(self, vocab=37, d=13, h=29, mid=0):
            super().__init__()
            self.emb = nn.Embedding(vocab, d)
            self.fc1 = nn.Linear(d, h)
            self.mid = nn.ModuleList(nn.Linear(h, h) for _ in range(mid))
            self.out = nn.Linear(h, vocab, bias=False)

        def forward(self, x, y):
            h = F.relu(lin(self.fc1, self.emb(x)))
            for m in self.mid:
                h = F.relu(lin(m, h))
            z = lin(self.out, h)
            return F.cross_entropy(z.reshape(-1, z.shape[-1]).float(), y.reshape(-1))

    class Attn(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.heads = heads
            self.c_attn = nn.Linear(d, 3 * d)
            self.c_proj = nn.Linear(d, d)

        def forward(self, x, mask):
            b, t, d = x.shape
            q, k, v = (p.view(b, t, self.heads, d // self.heads).transpose(1, 2) for p in self.c_attn(x).split(d, 2))
            a = (q @ k.transpose(-2, -1)) / (d // self.heads) ** 0.5
            a = a.masked_fill(~mask[:t, :t], float('-inf')).softmax(-1)
            return self.c_proj((a @ v).transpose(1, 2).reshape(b, t, d))

    class Mlp2(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.c_fc = nn.Linear(d, h)
            self.c_proj = nn.Linear(h, d)

        def forward(self, x):
            return self.c_proj(F.gelu(self.c_fc(x), approximate='tanh'))

    class Block(nn.Module):
        def __init__(self, d, heads, h):
            super().__init__()
            self.ln_1 = nn.LayerNorm(d)
            self.attn = Attn(d, heads)
            self.ln_2 = nn.LayerNorm(d)
            self.mlp = Mlp2(d, h)

        def forward(self, x, mask):
            x = x + self.attn(self.ln_1(x), mask)
            return x + self.mlp(self.ln_2(x))

    class Gpt(nn.Module):
        def __init__(self, vocab=31, ctx=8, d=12, heads=3, h=20, layers=2, tie=True, mask_buffer=True):
            super().__init__()
            self.wte = nn.Embedding(vocab, d)
            self.wpe = nn.Embedding(ctx, d)
            self.h = nn.ModuleList(Block(d, heads, h) for _ in range(layers))
            self.ln_f = nn.LayerNorm(d)
            self.lm_head = nn.Linear(d, vocab, bias=False)
            if tie:
                self.lm_head.weight = self.wte.weight
            mask = torch.tril(torch.ones(ctx, ctx, dtype=torch.bool))
            if mask_buffer:
                self.register_buffer('mask', torch.zeros_like(mask))
            else:
                self.mask = mask

        def forward(self, x, y):
            h = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
            for block in self.h:
                h = block(h, self.mask)
            z = self.lm_head(self.ln_f(h))
            return F.cross_entropy(z.reshape(-1, z.shape[-1]).float(), y.reshape(-1))

    class Reg(nn.Module):
        def __init__(self, dims):
            super().__init__()
            layers = []
            for a, b in zip(dims, dims[1:]):
                layers += [nn.Linear(a, b), nn.Tanh()]
            self.net = nn.Sequential(*layers[:-1])

        def forward(self, x, y):
            z = self.net(x.to(self.net[0].weight.dtype))
            return F.mse_loss(z.float(), y)

    class Odd(nn.Module):
        """The parameters of the fixtures' model; what it computes is ours, so its losses compare among our runs only."""
        def __init__(self, vocab=23, d=7, ch=5, zero_dim=False, bn=True, void=False):
            super().__init__()
            self.gate = nn.Parameter(torch.ones(1))
            if zero_dim:
                self.temp = nn.Parameter(torch.tensor(1.0))
            self.emb = nn.Embedding(vocab, d)
            self.conv = nn.Conv1d(d, ch, 3, padding=1)
            if bn:
                self.bn = nn.BatchNorm1d(ch)
            self.scales = nn.ParameterList(nn.Parameter(torch.ones(n)) for n in (ch, 1, ch))
            self.heads = nn.ModuleDict({'a_b': nn.Linear(ch, d), 'z-9': nn.Linear(d, d, bias=False)})
            self.out = nn.Linear(d, vocab, bias=False)
            self.out.weight = self.emb.weight
            if void:
                self.void = nn.Parameter(torch.zeros(e['module']['void']['shape']))
            for name, b in e['buffers'].items():
                if '.' not in name:
                    self.register_buffer(name, torch.zeros(b['shape'], dtype=getattr(torch, b['dtype'])),
                                         persistent=name in persistent(e))

        def forward(self, x, y):
            h = self.conv(self.emb(x).transpose(1, 2))
            if hasattr(self, 'bn'):   # no statistics: a batch's own depend on how it was cut, and stored ones are each rank's
                h = h * self.bn.weight[:, None] + self.bn.bias[:, None]
            h = h.transpose(1, 2) * self.scales[0] * self.scales[1] + self.scales[2]
            h = self.heads['z-9'](torch.tanh(self.heads['a_b'](h)))
            z = self.out(h) * self.gate * (self.temp if hasattr(self, 'temp') else 1)
            return F.cross_entropy(z.reshape(-1, z.shape[-1]).float(), y.reshape(-1))

    torch.manual_seed(4711)
    if kind == 'any':
        return any_model(e)
    model = {'mlp': Mlp, 'gpt': Gpt, 'reg': Reg, 'odd': Odd}[kind](**opts)
    if upcast:
        in_fp32(model)
    params = dict(model.named_parameters())
    assert list(params) == [n for n in e['param_order'] if n in params] and len(params) == len(e['param_order']), \
        'the model is not the fixture\'s: %s, %s' % (list(params), e['param_order'])
    for name in e['frozen']:
        params[name].requires_grad_(False)
        if name in frozen_values:
            params[name].data.copy_(frozen_values[name])
    return model


def any_model(e):
    """A model of the names that a checkpoint has: each module's loss is of its own parameters, the model's the sum."""
    import zlib
    import torch
    from torch import nn

    class Any(nn.Module):
        def forward(self, *_):
            loss = sum(m() for m in self.children())
            for name, p in self._parameters.items():
                if p is not None and p.numel():
                    x = p.float().reshape(-1)
                    c = torch.arange(1, x.numel() + 1) % 7 + 1 + len(name)
                    loss = loss + (x * c).sin().mean() + (x * x).mean()
            return loss

    def owner(name):
        at = root
        for part in name.split('.')[:-1]:
            if part not in at._modules:
                at.add_module(part, Any())
            at = at._modules[part]
        return at, name.split('.')[-1]

    root = Any()
    for name, shape in e['shapes'].items():
        value = torch.empty(shape).normal_(0, 0.1, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
        value = e['began'].get(name, value)
        at, last = owner(name)
        at.register_parameter(last, nn.Parameter(value, requires_grad=name not in e['frozen']))
    params = dict(root.named_parameters())
    for alias, name in e['tied'].items():
        at, last = owner(alias)
        at.register_parameter(last, params[name])
    for name, b in e['buffers'].items():
        at, last = owner(name)
        at.register_buffer(last, torch.zeros_like(b))
    return root


def in_fp32(model):
    """`upcast to fp32`: every layer computes in fp32 on upcast parameters and rounds its output."""
    import torch
    from torch import nn

    class Upcast(torch.autograd.Function):
        @staticmethod
        def forward(ctx, p):
            ctx.dtype = p.dtype
            return p.float()

        @staticmethod
        def backward(ctx, g):
            return g.to(ctx.dtype)

    def wrap(m):
        plain = m.forward

        def forward(x):
            dtype = m.weight.dtype
            kept = {n: p for n, p in m._parameters.items() if p is not None}
            up = {n: Upcast.apply(p) for n, p in kept.items()}
            x = x.float() if x.is_floating_point() else x
            if isinstance(m, nn.Linear):
                y = nn.functional.linear(x, up['weight'], up.get('bias'))
            elif isinstance(m, nn.Embedding):
                y = nn.functional.embedding(x, up['weight'])
            elif isinstance(m, nn.LayerNorm):
                y = nn.functional.layer_norm(x, m.normalized_shape, up['weight'], up['bias'], m.eps)
            elif isinstance(m, nn.Conv1d):
                y = nn.functional.conv1d(x, up['weight'], up['bias'], padding=m.padding)
            else:
                return plain(x)
            return y.to(dtype)
        m.forward = forward

    for m in model.modules():
        if isinstance(m, (nn.Linear, nn.Embedding, nn.LayerNorm, nn.Conv1d)):
            wrap(m)


# ---- the engine ----

def make_groups(model, e, wrong):
    """Parameter groups as the run had them, with hyper-parameters to be overwritten."""
    params = dict(model.named_parameters())
    if e['optimizer']['cls'].startswith('Muon'):   # DeepSpeed makes these groups itself
        return [p for p in params.values() if p.requires_grad]
    groups = []
    for g in e['optimizer']['param_groups']:
        one = {k: v for k, v in g.items() if k in ('lr', 'weight_decay', 'betas', 'eps')}
        one['lr'] = 1e-3 if one.get('lr') is None else one['lr']
        if wrong:
            one.update(WRONG)
        if 'scheduler' in e['ds_config']:   # some take their base rates from the groups and save none
            one['lr'] = e['ds_config'].get('optimizer', {'params': g})['params']['lr']
        if 'params' in g:
            names = g['params']
        else:
            names = [n for n, p in params.items() if p.requires_grad and (p.numel() or e['stage'] < 3)]
        groups.append({'params': [params[n] for n in names], **one})
    return groups


def step_adamw(name):
    """The AdamW of the older runs: it counts steps as an int in the state, or in the parameter group as FusedAdam does."""
    import torch
    if name not in ('IntStepAdamW', 'GroupStepAdamW'):
        return None

    class StepAdamW(torch.optim.Optimizer):
        def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
            super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

        @torch.no_grad()
        def step(self, closure=None):
            for g in self.param_groups:
                if name.startswith('Group'):
                    g['step'] = g.get('step', 0) + 1
                for p in g['params']:
                    if p.grad is not None:
                        self.update(p, self.state[p], g)

        def update(self, p, s, g):
            if 'exp_avg' not in s:
                s['exp_avg'], s['exp_avg_sq'] = torch.zeros_like(p), torch.zeros_like(p)
            if name.startswith('Int'):
                s['step'] = s.get('step', 0) + 1
            n, (b1, b2) = s.get('step') or g['step'], g['betas']
            p.mul_(1 - g['lr'] * g['weight_decay'])
            s['exp_avg'].mul_(b1).add_(p.grad, alpha=1 - b1)
            s['exp_avg_sq'].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            denominator = (s['exp_avg_sq'].sqrt() / (1 - b2 ** n) ** 0.5).add_(g['eps'])
            p.addcdiv_(s['exp_avg'], denominator, value=-g['lr'] / (1 - b1 ** n))

    return StepAdamW


def hybrid_state(name):
    """An SGD that counts steps both as an int and as a tensor of one element, as a class of DeepSpeed's tests does."""
    import torch
    if name != 'HybridState':
        return None

    class HybridState(torch.optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, dict(lr=lr))

        @torch.no_grad()
        def step(self, closure=None):
            for g in self.param_groups:
                for p in g['params']:
                    if p.grad is not None:
                        s = self.state[p]
                        s['integer_step'] = s.get('integer_step', 0) + 1
                        s['tensor_step'] = s.get('tensor_step', torch.zeros(1)) + 1
                        p.add_(p.grad, alpha=-g['lr'])

    return HybridState


def make_optimizer(e, groups):
    """Of runs that made their own; None: DeepSpeed makes it from the configuration."""
    import torch
    if 'optimizer' in e['ds_config']:
        return None
    first = {k: v for k, v in e['optimizer']['param_groups'][0].items() if k not in ('params', 'initial_lr', 'step')}
    name = e['optimizer']['cls']
    cls = step_adamw(name) or hybrid_state(name) or getattr(torch.optim, name)
    if name == 'Adafactor':
        from transformers import Adafactor as cls
    import inspect
    known = inspect.signature(cls.__init__).parameters
    first = {k: v for k, v in first.items() if k in known and k not in ('lr', 'weight_decay')}
    return cls(groups, lr=WRONG['lr'], **first)


def make_scheduler(e):
    """A scheduler of torch's, where the run had one."""
    import torch
    s = e.get('lr_scheduler')
    if not s or 'scheduler' in e['ds_config']:
        return None
    if s['cls'] != 'StepLR':
        raise RuntimeError('no scheduler %s' % s['cls'])
    return lambda opt: torch.optim.lr_scheduler.StepLR(opt, step_size=s['state']['step_size'], gamma=s['state']['gamma'])


def patch():
    """What the fixtures' runs patched too: fp16 on the CPU, parameters without axes."""
    import logging
    import warnings
    import torch
    from deepspeed.accelerator import get_accelerator
    warnings.simplefilter('ignore')
    a = get_accelerator()
    a.is_fp16_supported = lambda: True
    a.supported_dtypes = lambda: [torch.float, torch.half, torch.bfloat16]
    logging.getLogger('DeepSpeed').setLevel(logging.CRITICAL)
    as_bytes = torch.Tensor.view
    # DeepSpeed broadcasts parameters as views of bytes, which torch refuses of a tensor without axes.
    torch.Tensor.view = lambda t, *a, **k: as_bytes(t.reshape(1) if t.dim() == 0 and a == (torch.uint8,) else t, *a, **k)


def flat_groups(engine, world):
    """(parameters in layout order, rank's flat fp32 partition, its optimizer state, stage-3 rule?) of each flat group."""
    opt = engine.optimizer
    inner = getattr(opt, 'optimizer', opt)
    if hasattr(opt, 'fp32_partitioned_groups_flat'):
        for i, flat in enumerate(opt.fp32_partitioned_groups_flat):
            yield opt.fp16_groups[i], flat, inner.state.get(flat, {}), True
    elif hasattr(opt, 'single_partition_of_fp32_groups'):
        for i, flat in enumerate(opt.single_partition_of_fp32_groups):
            yield opt.round_robin_bit16_groups[i], flat, inner.state.get(flat, {}), False
    else:
        for i, flat in enumerate(opt.fp32_groups_flat_partition):
            yield opt.bf16_groups[i], flat, inner.state.get(flat, {}), False


def gather(engine, world, aligned):
    """Weights and moments as the optimizer holds them, whole, on every rank; steps of the groups."""
    import torch
    import torch.distributed as dist
    names = {id(p): n for n, p in engine.module.named_parameters()}
    weights, state, steps, places = {}, {}, [], []
    for params, flat, entry, each in flat_groups(engine, world):
        mine = {'': flat.detach().float()}
        for k, v in entry.items():
            if torch.is_tensor(v) and v.dim() == 1 and v.numel() == flat.numel():
                mine[k] = v.detach().float()
            elif k.endswith('step'):
                steps.append(float(v))
                places += [v.data_ptr()] if torch.is_tensor(v) else []
        ranks = [None] * world
        dist.all_gather_object(ranks, mine)
        at = 0
        for i, p in enumerate(params):
            shape = getattr(p, 'ds_shape', p.shape)
            numel = getattr(p, 'ds_numel', p.numel())
            for k in mine:
                if each:
                    n = -(-numel // world)
                    whole = torch.cat([r[k][at:at + n] for r in ranks])[:numel]
                else:
                    whole = torch.cat([r[k] for r in ranks])[at:at + numel]
                (state.setdefault(k, {}) if k else weights)[names[id(p)]] = whole.view(shape).clone()
            at += -(-numel // world) if each else numel
            if aligned and not each and i + 1 < len(params):
                at = -(-at // aligned) * aligned
    assert len(set(places)) == len(places), SHARED_STEP + ': it will be counted up by each'
    return weights, state, steps


def plain(x):
    """Values that JSON can say; numbers of any width as they are."""
    import torch
    if isinstance(x, dict):
        return {str(k): plain(v) for k, v in x.items() if k != 'params'}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if torch.is_tensor(x):
        return x.item() if x.numel() == 1 else x.tolist()
    return x if isinstance(x, (int, float, str, bool, type(None))) else str(x)


def seen(engine, e, world, client):
    """What the engine holds after loading."""
    import torch
    import deepspeed
    aligned = 0
    if engine.config.get('zero_optimization', {}).get('parameter_alignment'):
        aligned = 8 if e['dtype'] in ('bf16', 'fp16') else 4
    weights, state, steps = gather(engine, world, aligned)
    names = {id(p): n for n, p in engine.module.named_parameters()}
    every = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(every, enabled=engine.zero_optimization_stage() == 3):
        module = {names[id(p)]: p.detach().clone() for p in every}
    module.update({n: b.detach().clone() for n, b in engine.module.named_buffers() if n in persistent(e)})
    opt = engine.optimizer
    scaler = getattr(opt, 'loss_scaler', None)
    sched = engine.lr_scheduler
    return dict(groups=plain(opt.param_groups if hasattr(opt, 'param_groups') else opt.optimizer.param_groups), steps=steps,
                scaler=plain(vars(scaler)) if scaler is not None else None,
                scheduler=plain(sched.state_dict()) if sched is not None else None, client=plain(client),
                counters={'global_steps': engine.global_steps, 'global_samples': engine.global_samples,
                          'skipped_steps': engine.skipped_steps}, weights=weights, state=state, module=module)


def batch(case, e, data, step, gas, rank):
    if data is None:
        import torch
        return torch.zeros(1), torch.zeros(1)
    x, y = (data[k][step] for k in 'xy')
    if alone(case, e):
        return x[rank, gas], y[rank, gas]
    return x[:, gas].reshape(-1, *x.shape[3:]), y[:, gas].reshape(-1, *y.shape[3:])


def train(engine, case, e, data, rank):
    import torch
    import torch.distributed as dist
    rows = []
    for step in range(e['global_step'], e['global_step'] + case.steps):
        total, skipped = 0.0, engine.skipped_steps
        for g in range(e['gas']):
            loss = engine(*batch(case, e, data, step, g, rank))
            engine.backward(loss)
            total += loss.item() / e['gas']
            engine.step()
        every = [None] * case.world
        dist.all_gather_object(every, total)
        rows.append({'loss': sum(every) / case.world, 'lr': plain(engine.get_lr()), 'skipped': engine.skipped_steps > skipped,
                     'scale': getattr(engine.optimizer, 'cur_scale', None) and float(engine.optimizer.cur_scale)})
    return rows


def rank_main(case, e, rank, out):
    import torch
    import deepspeed
    from safetensors.torch import load_file
    has_run = e['model']['kind'] != 'any'
    data = load_file(os.path.join(case.fixture, 'batches.safetensors')) if has_run else None
    init = {}
    if has_run and e.get('exclude_frozen_parameters'):   # what the save left out comes from where the run had it from
        init = load_file(os.path.join(case.fixture, 'init.safetensors'))
    patch()
    model = make_model(e, init)
    cfg = config_of(case, e)
    groups = make_groups(model, e, case.wrong)
    optimizer = make_optimizer(e, groups)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=None if optimizer else groups, optimizer=optimizer,
                                           lr_scheduler=make_scheduler(e), config=cfg)
    folder = case.folder.replace('{rank}', str(rank))   # each rank may have a disk of its own
    path, client = engine.load_checkpoint(folder, tag=case.tag, load_module_strict=case.strict and
                                          not e.get('exclude_frozen_parameters'))
    if path is None:
        raise RuntimeError('DeepSpeed loads nothing from %s' % folder)
    r = seen(engine, e, case.world, client)
    if case.steps:
        r['rows'] = train(engine, case, e, data, rank)
        r['losses'] = [row['loss'] for row in r['rows']]
        aligned = (8 if e['dtype'] in ('bf16', 'fp16') else 4) if cfg['zero_optimization'].get('parameter_alignment') else 0
        r['final'], _, r['final_steps'] = gather(engine, case.world, aligned)
    if rank == 0:
        torch.save(r, out)


# ---- cases ----

def run_one(case):
    start = time.time()
    e = case.expected or read_expected(case.fixture, case.tag)
    case = dataclasses.replace(case, fixture=os.path.abspath(case.fixture), folder=os.path.abspath(case.folder))
    r, error = ranks.run_ranks(case.world, lambda rank, out: rank_main(case, e, rank, out), case.timeout)
    return Result(seconds=time.time() - start, error=error, **(r or {}))


def run(cases):
    """(case, Result) of each case, in turn."""
    ranks.prepare()
    for case in cases:
        yield case, run_one(case)


def short(error):
    """The first line of the exception that ended a traceback, and where it was raised."""
    lines = [x.rstrip() for x in error.strip().splitlines() if x.strip()]
    where = [x.strip() for x in lines if x.strip().startswith('File ')][-1:]
    # the frames of torch's C++ may follow the exception's own words
    named = [x for x in lines if re.match(r'[\w.]+(Error|Exception|Exit|Interrupt)\b', x)]
    return ' '.join([(named or lines or ['?'])[-1].strip()] + where)[:300]


def far(a, b):
    """Largest relative distance of two lists of losses."""
    if len(a) != len(b) or not a:
        return float('inf')
    return max(abs(x - y) / max(abs(y), 1e-30) if x == x else float('inf') for x, y in zip(a, b))


def main():
    root, only = sys.argv[1], sys.argv[2:]
    cases = []
    for name in sorted(os.listdir(root)):
        path = os.path.join(root, name)
        if not name.startswith(('z1_', 'z2_', 'z3_', 'uni_', 'old0')) or only and name not in only:
            continue
        e = read_expected(path)
        if e['stage'] and e.get('model', {}).get('kind') in KINDS:
            cases.append(Case(name, path, os.path.join(path, e['checkpoint']), e['world'], tag=e['tag'], drop=()))
    for case, r in run(cases):
        e = read_expected(case.fixture)
        if r.error:
            print('%-26s %4.1f s  FAILS %s' % (case.name, r.seconds, short(r.error)))
        else:
            print('%-26s %4.1f s  losses off by %.2g' % (case.name, r.seconds, far(r.losses, e['resume']['losses'])), flush=True)


if __name__ == '__main__':
    main()
