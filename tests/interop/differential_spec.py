# SPDX-License-Identifier: Apache-2.0
"""Runs for differential.py, made from a seed: what is trained, how, and what the checkpoint will hold.

A spec is a plain dict (it is printed when a check fails, and made again from its seed).  All in it are
settings that people use with DeepSpeed 0.19.8: optimizers of its configuration and of torch, ZeRO stages,
dtypes, groups, frozen, tied, unused and excluded parameters, buffers, schedulers, loss scales, elastic saves,
accumulation dtypes, offload, client state.
"""
import random

# How an optimizer is asked for.  'ds': by the configuration; 'torch': made by the script and handed in.
# elementwise: its update of an element depends on that element alone, so any partition gives the same run.
# not_stage3: DeepSpeed cannot load its own stage 3 (torch makes this optimizer's state before DeepSpeed puts
# sub-groups in).
# whole_only: state of stage 0 that has no per-element form (Adafactor keeps rows and columns of a matrix).
OPTIMIZERS = {
    'ds_adamw': dict(how='ds', type='AdamW', params=dict(lr=1e-2, betas=[0.8, 0.95], eps=1e-7,
                                                         weight_decay=0.1)),
    'ds_adam': dict(how='ds', type='Adam', params=dict(lr=1e-2, weight_decay=0.05)),
    'ds_adam_l2': dict(how='ds', type='Adam', params=dict(lr=1e-2, weight_decay=0.05, adam_w_mode=False)),
    'ds_adam_torch': dict(how='ds', type='Adam', params=dict(lr=1e-2, weight_decay=0.01, torch_adam=True)),
    'ds_adam_nobias': dict(how='ds', type='Adam', params=dict(lr=1e-2, bias_correction=False)),
    'ds_adagrad': dict(how='ds', type='Adagrad', params=dict(lr=1e-2), not_stage3=True),
    'ds_lion': dict(how='ds', type='Lion', params=dict(lr=1e-3, betas=[0.9, 0.95], weight_decay=0.1),
                    offload=True),
    'ds_sgd': dict(how='ds', type='SGD', params=dict(lr=1e-2, momentum=0.9)),
    'ds_nadam': dict(how='ds', type='NAdam', params=dict(lr=1e-2)),
    'ds_radam': dict(how='ds', type='RAdam', params=dict(lr=1e-2)),
    'ds_muon': dict(how='ds', type='Muon', params=dict(lr=1e-2, momentum=0.9, weight_decay=0.01), muon=True),
    'adamw': dict(how='torch', type='AdamW', params=dict(lr=1e-2, betas=(0.8, 0.95))),
    'amsgrad': dict(how='torch', type='AdamW', params=dict(lr=1e-2, amsgrad=True)),
    'adam_maximize': dict(how='torch', type='Adam', params=dict(lr=1e-4, maximize=True)),
    'adam_capturable': dict(how='torch', type='Adam', params=dict(lr=1e-2, foreach=False)),
    'sgd0': dict(how='torch', type='SGD', params=dict(lr=1e-2)),
    'sgd': dict(how='torch', type='SGD', params=dict(lr=1e-2, momentum=0.8, nesterov=True,
                                                     weight_decay=0.01)),
    'nadam': dict(how='torch', type='NAdam', params=dict(lr=1e-2, momentum_decay=0.01)),
    'radam': dict(how='torch', type='RAdam', params=dict(lr=1e-2)),
    'adamax': dict(how='torch', type='Adamax', params=dict(lr=1e-2)),
    'adadelta': dict(how='torch', type='Adadelta', params=dict(lr=0.5)),
    'adagrad': dict(how='torch', type='Adagrad', params=dict(lr=1e-2, lr_decay=0.01), not_stage3=True),
    'rmsprop': dict(how='torch', type='RMSprop', params=dict(lr=1e-3, momentum=0.5)),
    'rprop': dict(how='torch', type='Rprop', params=dict(lr=1e-3)),
    'asgd': dict(how='torch', type='ASGD', params=dict(lr=1e-2)),
    'adafactor': dict(how='torch', type='Adafactor', params=dict(lr=1e-2), elementwise=False,
                      whole_only=True),
}
# The first are what nearly everybody uses.
OPTIMIZER_ODDS = {'ds_adamw': 8, 'ds_adam': 4, 'adamw': 4, 'ds_muon': 3}
# What zerotrain trains with, too.
ENGINE = ('ds_adamw', 'ds_adam', 'ds_adam_l2', 'ds_adam_torch', 'ds_adam_nobias', 'ds_adagrad', 'ds_lion',
          'ds_sgd', 'ds_muon')
SCHEDULERS = {
    'none': None,
    'WarmupLR': dict(type='WarmupLR', params=dict(warmup_min_lr=1e-4, warmup_max_lr=1e-2,
                                                  warmup_num_steps=6)),
    'WarmupDecayLR': dict(type='WarmupDecayLR', params=dict(warmup_max_lr=1e-2, warmup_num_steps=3,
                                                            total_num_steps=40)),
    'WarmupCosineLR': dict(type='WarmupCosineLR', params=dict(warmup_num_steps=3, total_num_steps=40)),
    'OneCycle': dict(type='OneCycle', params=dict(cycle_min_lr=1e-3, cycle_max_lr=1e-2,
                                                  cycle_first_step_size=4, cycle_momentum=False)),
    'LRRangeTest': dict(type='LRRangeTest', params=dict(lr_range_test_min_lr=1e-3, lr_range_test_step_size=2,
                                                        lr_range_test_step_rate=1)),
    'StepLR': 'torch', 'LambdaLR': 'torch', 'CosineAnnealingLR': 'torch', 'ExponentialLR': 'torch',
    'SequentialLR': 'torch',
}


def model_of(r):
    """Sizes that are no multiples of worlds or alignments, and parts that checkpoints treat differently."""
    return dict(vocab=r.choice((11, 23, 37)), d=r.choice((5, 8, 13)), layers=r.randint(1, 3),
                tied=r.random() < 0.4,
                frozen=r.choice(('none', 'none', 'none', 'first', 'emb', 'half', 'all_but_one')),
                unused=r.random() < 0.25,
                scalar=r.random() < 0.3, empty=r.random() < 0.15, conv=r.random() < 0.3,
                buffers=r.sample(('f32', 'i64', 'bool', 'f64', 'hidden', 'bf16'), r.choice((0, 0, 1, 3))))


def gpt2_of(r):
    """A language model of transformers that zerotrain has too."""
    return dict(kind='gpt2', vocab=r.choice((23, 37)), d=r.choice((8, 12)), layers=r.randint(1, 2), tied=True,
                frozen='none',
                unused=False, scalar=False, empty=False, conv=False, buffers=[])


def groups_of(r, cls):
    """How parameters are put into groups, and what each sets."""
    n = 1 if cls['how'] == 'ds' and cls.get('muon') else r.choice((1, 1, 1, 2, 3))
    return dict(n=n, decays=[r.choice((0.0, 0.01, 0.1)) for _ in range(n)],
                lrs=[r.choice((1e-2, 3e-3)) for _ in range(n)],
                named=r.random() < 0.2)


def zero_of(r, stage, dtype, cls):
    z = {'stage': stage}
    if stage in (1, 2):
        if r.random() < 0.2:
            z['round_robin_gradients'] = True
        # DeepSpeed loads no other
        if r.random() < 0.3 and cls['type'] in ('Adam', 'AdamW') and 'amsgrad' not in cls['params']:
            z['elastic_checkpoint'] = True
        if r.random() < 0.3:
            z['reduce_bucket_size'] = r.choice((50, 500))
        if r.random() < 0.2:
            z['contiguous_gradients'] = False
    if stage == 3:
        z['stage3_param_persistence_threshold'] = r.choice((0, 0, 10, 100000))
        if r.random() < 0.4:
            z['sub_group_size'] = r.choice((40, 150, 1000))
        if cls.get('muon'):
            z['reduce_scatter'] = False
    if stage and (cls.get('offload') or r.random() < 0.15):
        z['offload_optimizer'] = {'device': 'cpu', 'pin_memory': False}
        if cls['how'] == 'torch':
            z.pop('offload_optimizer')
    return z


def precision_of(r, dtype, stage):
    c = {}
    if dtype == 'bf16':
        c['bf16'] = {'enabled': True}
        if stage == 1 and r.random() < 0.3:
            c['data_types'] = {'grad_accum_dtype': 'fp32'}
        if stage == 1 and 'data_types' in c and r.random() < 0.3:
            c['bf16']['immediate_grad_update'] = True
    if dtype == 'fp16':
        c['fp16'] = {'enabled': True}
        if r.random() < 0.3:
            c['fp16']['loss_scale'] = r.choice((128, 1024))
        else:
            c['fp16'].update(initial_scale_power=r.choice((4, 8, 20, 24)),
                             loss_scale_window=r.choice((2, 3, 100)),
                             hysteresis=r.choice((1, 2, 3)), min_loss_scale=r.choice((1, 2)))
            if r.random() < 0.3:
                c['fp16']['consecutive_hysteresis'] = True
    return c


def client_of(r):
    """What scripts hand to save_checkpoint beside the model; objects of own classes only now and then."""
    c = {}
    for i in range(r.choice((0, 1, 3))):
        c['key%d' % i] = r.choice((1, -5, 2 ** 40, 1.5, float('inf'), 'text \u2713', None, True,
                                   [1, 2, [3.5, 'x']], (1, ('a', None)),
                                   {'a': {'b': [1]}, 3: 'int key'}, b'bytes', {1, 2}))
    if r.random() < 0.2:
        c['tensor'] = 'TENSOR'
    if r.random() < 0.15:
        c['object'] = 'OBJECT'
    if r.random() < 0.3:
        c['tensors'] = 'RNG'
    return c


def make(seed):
    """The spec of a seed."""
    r = random.Random(seed)
    names = [n for n in OPTIMIZERS for _ in range(OPTIMIZER_ODDS.get(n, 1))]
    name = r.choice(names)
    cls = OPTIMIZERS[name]
    stage, world = r.choice((0, 1, 1, 2, 2, 3, 3)), r.choice((1, 2, 2, 3))
    dtype = r.choice(('fp32', 'fp32', 'bf16', 'bf16', 'fp16'))
    if cls.get('offload'):
        stage = max(1, stage)
    if cls.get('not_stage3'):
        stage = min(2, stage)
    model = model_of(r)
    if stage == 3:   # DeepSpeed's stage 3 does not run with a parameter of no elements
        model['empty'] = False
    if cls.get('muon') and stage == 0 and dtype != 'fp32':
        stage = 2
    groups, scheduler = groups_of(r, cls), r.choice(('none', 'none', 'none') + tuple(SCHEDULERS))
    engine = r.random() < 0.35 and name in ENGINE and SCHEDULERS[scheduler] != 'torch'
    if engine:
        model, groups = gpt2_of(r), dict(groups, n=1, named=False)
    spec = dict(seed=seed, optimizer=name, stage=stage, world=world, dtype=dtype, model=model, groups=groups,
                zero=zero_of(r, stage, dtype, cls), precision=precision_of(r, dtype, stage),
                client=client_of(r),
                scheduler=scheduler, gas=r.choice((1, 1, 2)), steps=r.randint(1, 5),
                clip=r.choice((0.0, 0.0, 0.5)), exclude_frozen=r.random() < 0.1,
                tag=r.choice((None, None, 'my tag', 'ckpt-1')))
    # stage 0 clips gradients, the others what Muon makes of them; whole matrices: an offloaded one takes
    # another path that the CPU lacks
    if cls.get('muon'):
        spec['zero'].pop('offload_optimizer', None)
        spec['clip'] = 0.0
    last = 2 if cls.get('not_stage3') or spec['model']['empty'] else 3
    # of universal checkpoints DeepSpeed's stage 3 loads exp_avg, exp_avg_sq and a step, and nothing else;
    # Muon's momentum and the numbers that NAdam and ASGD keep no stage does
    adam = cls['type'] in ('Adam', 'AdamW') and not cls['params'].get('amsgrad')
    # and with several groups it gives all of them one tensor that counts their steps
    adam = adam and groups['n'] == 1
    alone = cls.get('muon') or cls['type'] in ('NAdam', 'ASGD')
    spec['targets'] = targets_of(r, last, 0 if alone else last if adam else 2)
    if engine:
        spec['targets'] = spec['targets'][:1] + [dict(kind='zerotrain',
                                                      stage=r.randint(int(bool(cls.get('muon'))), last),
                                                      world=r.randint(1, 3)) for _ in range(2)]
    return spec


def targets_of(r, last, last_universal):
    """Two reshards and now and then a universal folder, to stages up to the last."""
    out = [dict(kind='reshard', stage=r.randint(1, last), world=r.randint(1, 3)) for _ in range(2)]
    if last_universal and r.random() < 0.5:
        out.append(dict(kind='universal', stage=r.randint(1, last_universal), world=r.randint(1, 3)))
    return out


def config(spec, stage=None):
    """The ds_config of the run, or of one that goes on from it at another stage."""
    cls = OPTIMIZERS[spec['optimizer']]
    c = {'train_micro_batch_size_per_gpu': 4, 'gradient_accumulation_steps': spec['gas'],
         'zero_allow_untested_optimizer': True,
         'zero_force_ds_cpu_optimizer': False, 'gradient_clipping': spec['clip'], 'steps_per_print': 10 ** 9}
    c.update({k: dict(v) for k, v in spec['precision'].items()})
    c['zero_optimization'] = dict(spec['zero'])
    if stage is not None and stage != spec['stage']:
        z = c['zero_optimization']
        # how the files of stages 1 and 2 are laid out stays what it was: a run with another setting would
        # misread its own too
        for key in ('sub_group_size', 'stage3_param_persistence_threshold', 'reduce_scatter') + (
                ('round_robin_gradients', 'elastic_checkpoint', 'contiguous_gradients')
                if stage == 3 else ()):
            z.pop(key, None)
        z['stage'] = stage
        if stage == 3:
            z['stage3_param_persistence_threshold'] = 0
            if cls.get('muon'):
                z['reduce_scatter'] = False
        if stage != 1:
            c.pop('data_types', None)
            c.get('bf16', {}).pop('immediate_grad_update', None)
    if cls['how'] == 'ds':
        c['optimizer'] = {'type': cls['type'], 'params': dict(cls['params'])}
    s = SCHEDULERS[spec['scheduler']]
    if isinstance(s, dict):
        c['scheduler'] = {'type': s['type'], 'params': dict(s['params'])}
    return c
