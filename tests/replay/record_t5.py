#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record runs of T5 under DeepSpeed on processors, as tests/replay/deepspeed.py reads them.

    record_t5.py [-o FOLDER] [NAME...]      wants torch, transformers, deepspeed, safetensors

Writes to tests/fixtures/golden/t5: run_data_MODEL.safetensors (initial weights w0/, inputs in/ [micro step, rank, sample,
token]), run_model_MODEL.json, runs_wN.json (losses, norms, rates of each update), run_NAME.safetensors (final weights) and,
of some runs, a checkpoint after update 10.  Weights and inputs are random, of a fixed seed; there is no dropout; attention
is computed in explicit form (eager).  The ranks are processes with gloo: DS_ACCELERATOR=cpu GLOO_SOCKET_IFNAME=lo.
"""
import argparse
import copy
import glob
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.pop(0)   # this folder's deepspeed.py is not the library

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS, SAVED, MICRO, ACCUMULATION = 20, 10, 2, 2
SIZES = dict(vocab_size=97, d_model=16, d_kv=6, d_ff=28, num_layers=2, num_heads=3, decoder_start_token_id=0, dropout_rate=0.0,
             relative_attention_num_buckets=8, relative_attention_max_distance=16)
# settings; tokens of a source and of a target; whether sources are padded
MODELS = {'t5': ({'num_decoder_layers': 1}, 19, 9, True),
          't5_gated': ({'feed_forward_proj': 'gated-gelu', 'tie_word_embeddings': False}, 11, 14, False)}
# name: (model, ranks, stage, accumulation, dtype, checkpoint)
RUNS = {'t5_w1_z0_fp32': ('t5', 1, 0, 1, 'fp32', False),
        't5_gated_w1_z3_fp32': ('t5_gated', 1, 3, 1, 'fp32', False),
        't5_gated_z0_fp32': ('t5_gated', 2, 0, 1, 'fp32', False),
        't5_z1_fp32': ('t5', 2, 1, 1, 'fp32', False),
        't5_gated_z2_fp32_gas2': ('t5_gated', 2, 2, 2, 'fp32', True),
        't5_z3_fp32': ('t5', 2, 3, 1, 'fp32', True),
        't5_z2_bf16': ('t5', 2, 2, 1, 'bf16', False),
        't5_gated_w3_z1_fp32': ('t5_gated', 3, 1, 1, 'fp32', False),
        't5_w3_z3_fp32': ('t5', 3, 3, 1, 'fp32', False)}


def make(name):
    """The model in fp32, its weights spread as training finds them, its norms not 1."""
    import torch
    import transformers
    settings = MODELS[name][0]
    torch.manual_seed(11)
    model = transformers.T5ForConditionalGeneration._from_config(transformers.T5Config(**SIZES, **settings),
                                                                 attn_implementation='eager')
    if settings.get('tie_word_embeddings') is False:   # T5 1.1 is loaded like this; _from_config ties
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * (0.2 if p.ndim == 1 else 0.15) + (1 if 'norm' in key else 0))
    return model


def inputs(name):
    """[micro step, rank, sample, token], tokens of unequal frequency, so that there is something to learn."""
    import torch
    _, source, target, padded = MODELS[name]
    g = torch.Generator().manual_seed(12)
    lead = (STEPS * ACCUMULATION, 3, MICRO)

    def draw(n):
        return (1 + (SIZES['vocab_size'] - 1) * torch.rand(*lead, n, generator=g) ** 2).long().clamp(max=SIZES['vocab_size'] - 1)
    out = {'input_ids': draw(source), 'labels': draw(target)}
    out['labels'][:, :, 1, target - 3:] = -100
    if padded:
        out['attention_mask'] = torch.ones_like(out['input_ids'])
        out['attention_mask'][:, :, 0, source - 5:] = 0
    return out


def write_model(name, folder):
    from safetensors.torch import save_file
    model = make(name)
    config = model.config.to_dict()
    config['architectures'] = [type(model).__name__]
    with open(os.path.join(folder, 'run_model_%s.json' % name), 'w') as f:
        json.dump(config, f, indent=1, sort_keys=True)
        f.write('\n')
    tensors = {'w0/' + k: p.detach().clone() for k, p in model.named_parameters()}
    tensors.update({'in/' + k: v for k, v in inputs(name).items()})
    save(tensors, os.path.join(folder, 'run_data_%s.safetensors' % name), save_file)


def save(tensors, path, save_file):
    save_file({k: v.contiguous() for k, v in tensors.items()}, path)
    os.chmod(path, 0o644)


def ds_config(stage, accumulation, kind):
    c = {'train_micro_batch_size_per_gpu': MICRO, 'gradient_accumulation_steps': accumulation, 'gradient_clipping': 0.5,
         'optimizer': {'type': 'AdamW', 'params': {'lr': 0.004, 'betas': [0.9, 0.95], 'eps': 1e-8, 'weight_decay': 0.01}},
         'scheduler': {'type': 'WarmupDecayLR', 'params': {'total_num_steps': 24, 'warmup_min_lr': 0, 'warmup_max_lr': 0.004,
                                                           'warmup_num_steps': 4, 'warmup_type': 'linear'}},
         'zero_optimization': {'stage': stage}}
    if stage == 3:
        c['zero_optimization'].update(stage3_param_persistence_threshold=0, sub_group_size=2000)
    if kind == 'bf16':
        c['bf16'] = {'enabled': True}
    return c


# ---- a rank ----

def norm_of(engine):
    """Of the averaged gradients; DeepSpeed has none in fp32 at stage 0."""
    import torch
    norm = engine.get_global_grad_norm()
    if norm is None:
        return float(torch.sqrt(sum((p.grad.double() ** 2).sum() for p in engine.module.parameters())))
    return float(norm)


def train(engine, data, rank, accumulation, out, checkpoint):
    import torch
    for step in range(STEPS):
        losses = []
        out['lr'].append([g['lr'] for g in engine.optimizer.param_groups])
        for k in range(accumulation):
            i = step * accumulation + k
            loss = engine(**{n: t[i, rank] for n, t in data.items()}).loss
            losses.append(float(loss.detach()))
            engine.backward(loss)
            before = norm_of(engine) if k == accumulation - 1 and engine.zero_optimization_stage() == 0 else None
            engine.step()
        out['grad_norm'].append(before if before is not None else norm_of(engine))
        every = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(every, losses)
        out['loss'].append(every)
        out['mean_loss'].append(sum(sum(x) for x in every) / (len(every) * accumulation))
        if checkpoint and step + 1 == SAVED:
            engine.save_checkpoint(checkpoint)


def rank_main(name, result):
    import deepspeed
    import torch
    from deepspeed.utils import safe_get_full_fp32_param
    from safetensors.torch import save_file
    model_name, world, stage, accumulation, kind, saved = RUNS[name]
    torch.set_num_threads(1)
    deepspeed.init_distributed('gloo')
    config = ds_config(stage, accumulation, kind)
    model = make(model_name).train()
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=copy.deepcopy(config))[0]
    out = {'name': name, 'model': model_name, 'world': world, 'groups': False, 'ds_config': config, 'loss': [], 'mean_loss': [],
           'grad_norm': [], 'lr': [], 'scale': [None] * STEPS, 'overflow': [0] * STEPS}
    train(engine, inputs(model_name), engine.global_rank, accumulation, out, os.path.join(result, 'ckpt') if saved else None)
    plain = stage == 0
    final = {k: (p.detach() if plain else safe_get_full_fp32_param(p)).float().clone() for k, p in engine.module.named_parameters()}
    if engine.global_rank == 0:
        save(final, os.path.join(result, 'final.safetensors'), save_file)
        with open(os.path.join(result, 'run.json'), 'w') as f:
            json.dump(out, f)


# ---- all ----

def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def record(name, folder):
    """Run the ranks, and take their results."""
    world, saved = RUNS[name][1], RUNS[name][5]
    with tempfile.TemporaryDirectory() as result:
        env = dict(os.environ, DS_ACCELERATOR='cpu', GLOO_SOCKET_IFNAME='lo', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(free_port()),
                   WORLD_SIZE=str(world))
        ranks = [subprocess.Popen([sys.executable, os.path.abspath(__file__), '--rank', result, name], stdout=subprocess.DEVNULL,
                                  env=dict(env, RANK=str(r), LOCAL_RANK=str(r))) for r in range(world)]
        if any([p.wait() for p in ranks]):
            raise SystemExit('record_t5: a rank of %s failed' % name)
        shutil.copy(os.path.join(result, 'final.safetensors'), os.path.join(folder, 'run_%s.safetensors' % name))
        with open(os.path.join(result, 'run.json')) as f:
            run = json.load(f)
        if saved:
            run['ckpt'] = 'ckpt_%s' % name
            to = os.path.join(folder, run['ckpt'])
            shutil.rmtree(to, ignore_errors=True)
            shutil.copytree(os.path.join(result, 'ckpt'), to)
            for script in glob.glob(os.path.join(to, '*.py')):
                os.unlink(script)
    return run


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('-o', default=os.path.join(ROOT, 'tests/fixtures/golden/t5'))
    p.add_argument('--rank', help=argparse.SUPPRESS)
    p.add_argument('name', nargs='*')
    a = p.parse_args()
    if a.rank:
        return rank_main(a.name[0], a.rank)
    try:
        import deepspeed
        import torch
        import transformers
    except ImportError as e:
        print('record_t5: cannot record: %s' % e)
        return 2
    os.makedirs(a.o, exist_ok=True)
    for name in MODELS:
        write_model(name, a.o)
    versions = {'torch': torch.__version__, 'deepspeed': deepspeed.__version__, 'transformers': transformers.__version__}
    names = a.name or list(RUNS)
    for world in sorted({RUNS[n][1] for n in names}):
        runs = [record(n, a.o) for n in names if RUNS[n][1] == world]
        with open(os.path.join(a.o, 'runs_w%d.json' % world), 'w') as f:
            json.dump({'versions': versions, 'attention': 'eager', 'steps': STEPS, 'runs': runs}, f)
            f.write('\n')
    print('recorded %d runs in %s' % (len(names), a.o))
    return 0


if __name__ == '__main__':
    sys.exit(main())
