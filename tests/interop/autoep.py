#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""AutoEP runs (mixtures of experts in DeepSpeed 0.19) read by ckpt, and DeepSpeed goes on from what `ckpt reshard` makes.

    autoep.py --bin build/bin [NAME...] [-v]
    autoep.py --make NAME FOLDER          a run alone: FOLDER/run, FOLDER/truth.safetensors (how the fixtures were made)

For each run of RUNS the unmodified DeepSpeed trains a tiny model to update SAVED, saves, and goes on to END: its losses are the
measure.  Then
  * the weights that `ckpt convert --to hf` writes are the module's, gathered from all ranks, under the hub's names, and
    transformers loads them all;
  * `ckpt reshard` writes each of TARGETS, other stages, worlds and expert-parallel sizes (--ep-size where the source's would
    fit, too), and as a universal checkpoint, from which any size goes on; DeepSpeed loads each and goes on to END.
All ranks get the same batches, so that losses do not depend on the world.
"""
import os
import subprocess
import sys

import checks
import ranks

os.environ['DS_ACCELERATOR'] = 'cpu'
os.environ['TORCHDYNAMO_DISABLE'] = '1'
os.environ['GLOO_SOCKET_IFNAME'] = 'lo'
SAVED, END, VOCAB = 3, 6, 64
TINY = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
            vocab_size=VOCAB, max_position_embeddings=32, tie_word_embeddings=False)
QWEN = dict(TINY, moe_intermediate_size=16, head_dim=8, num_experts=4, num_experts_per_tok=2)
DEEP = dict(TINY, moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1,
            num_key_value_heads=2, kv_lora_rank=8, q_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8,
            n_group=1, topk_group=1)
FAMILIES = {   # name: (class of transformers, its configuration, names of experts in the hub, layer's name there)
    'qwen3_moe': ('Qwen3Moe', QWEN, ('gate_proj', 'down_proj', 'up_proj'), 'mlp'),
    'qwen2_moe': ('Qwen2Moe', dict(QWEN, shared_expert_intermediate_size=16), ('gate_proj', 'down_proj', 'up_proj'), 'mlp'),
    'mixtral': ('Mixtral', dict(TINY, num_local_experts=4, num_experts_per_tok=2), ('w1', 'w2', 'w3'), 'block_sparse_moe'),
    'deepseek_v3': ('DeepseekV3', DEEP, ('gate_proj', 'down_proj', 'up_proj'), 'mlp'),
    'deepseek_v2': ('DeepseekV2', DEEP, ('gate_proj', 'down_proj', 'up_proj'), 'mlp'),
}
# name: family, stage, world, expert-parallel size; `more` of zero_optimization, of the model, of the configuration
RUNS = {
    'qwen3_z1_w2': dict(family='qwen3_moe', stage=1, world=2, ep=2),
    'qwen3_z2_w4': dict(family='qwen3_moe', stage=2, world=4, ep=2, groups=True),
    'qwen3_z3_w2': dict(family='qwen3_moe', stage=3, world=2, ep=2),
    'qwen3_z3_w4': dict(family='qwen3_moe', stage=3, world=4, ep=2, groups=True, zero={'sub_group_size': 1500}),
    'qwen3_e8_ep4': dict(family='qwen3_moe', stage=1, world=4, ep=4, model={'num_experts': 8}),
    'qwen3_ep1': dict(family='qwen3_moe', stage=2, world=2, ep=1, model={'tie_word_embeddings': True}),
    'qwen3_z3_ep1': dict(family='qwen3_moe', stage=3, world=2, ep=1),
    'qwen3_fp16': dict(family='qwen3_moe', stage=2, world=2, ep=2, kind='fp16'),
    'qwen3_offload': dict(family='qwen3_moe', stage=2, world=2, ep=2, zero={'offload_optimizer': {'device': 'cpu'}}, torch=False),
    'qwen3_round': dict(family='qwen3_moe', stage=2, world=4, ep=2, zero={'round_robin_gradients': True}),
    'qwen3_aligned': dict(family='qwen3_moe', stage=1, world=2, ep=2, zero={'parameter_alignment': True},
                          model={'head_dim': 6}),
    'qwen2_z1': dict(family='qwen2_moe', stage=1, world=2, ep=2),
    'mixtral_z2': dict(family='mixtral', stage=2, world=2, ep=2),
    'mixtral_z3': dict(family='mixtral', stage=3, world=2, ep=2),
    'deepseek3_z1': dict(family='deepseek_v3', stage=1, world=2, ep=2),
    'deepseek3_z3': dict(family='deepseek_v3', stage=3, world=2, ep=2),
    'deepseek2_z2': dict(family='deepseek_v2', stage=2, world=2, ep=2),
}
# run: (stage, world, expert-parallel size, universal)
TARGETS = {
    'qwen3_z1_w2': ((1, 2, 2, False), (2, 4, 2, False), (3, 2, 2, False), (1, 1, 1, False), (3, 3, 1, False), (1, 2, 1, False), (3, 4, 4, False),
                    (1, 2, 2, True), (2, 4, 4, True), (3, 2, 1, True), (3, 4, 2, True)),
    'qwen3_z2_w4': ((1, 2, 2, False), (3, 4, 2, False), (2, 1, 1, False), (1, 4, 4, True)),
    'qwen3_z3_w2': ((3, 2, 2, False), (3, 4, 2, False), (1, 2, 2, False), (3, 1, 1, False), (3, 2, 1, False), (2, 4, 4, False),
                    (1, 2, 1, True), (3, 4, 4, True)),
    'qwen3_z3_w4': ((1, 2, 2, False), (3, 1, 1, False), (3, 4, 2, False), (3, 4, 4, False)),
    'qwen3_e8_ep4': ((3, 4, 4, False), (2, 2, 2, False), (1, 4, 1, False), (2, 4, 2, False), (1, 2, 2, True)),
    'qwen3_ep1': ((3, 2, 1, False), (2, 2, 2, False), (2, 2, 2, True)),
    'qwen3_z3_ep1': ((1, 2, 1, False), (3, 2, 2, True)),
    'qwen3_fp16': ((1, 2, 2, False), (3, 2, 2, False)),
    'qwen3_offload': ((1, 2, 2, False), (3, 2, 2, False)),
    'qwen3_round': ((2, 1, 1, False), (1, 4, 2, False), (3, 4, 2, False)),
    'qwen3_aligned': ((2, 4, 2, False), (3, 2, 2, False)),
    'qwen2_z1': ((2, 2, 2, False), (3, 2, 1, True)),
    'mixtral_z2': ((3, 2, 2, False), (1, 1, 1, False)),
    'mixtral_z3': ((2, 2, 2, False),),
    'deepseek3_z1': ((3, 2, 2, False), (2, 1, 1, False), (3, 2, 2, True)),
    'deepseek3_z3': ((1, 2, 2, False), (3, 1, 1, False)),
    'deepseek2_z2': ((1, 1, 1, False),),
}
LIMIT = 3e-3   # of losses: worlds and stages add up gradients in 16 bits in other orders


def patch():
    """transformers' registry of recorders raises on a missing key; DeepSpeed's AutoEP counts on None."""
    import transformers.utils.output_capturing as capturing
    registry, get = capturing._CanRecordRegistry, capturing._CanRecordRegistry.get

    def lenient(self, key, otherwise=None):
        try:
            found = get(self, key)
        except Exception:
            return otherwise
        return otherwise if found is None else found
    registry.get = lenient


def build(run):
    import transformers
    prefix, settings, _, _ = FAMILIES[run['family']]
    config = getattr(transformers, prefix + 'Config')(**dict(settings, **run.get('model', {})))
    return config, getattr(transformers, prefix + 'ForCausalLM')(config)


def ds_config(run, stage, ep, universal):
    zero = {k: v for k, v in run.get('zero', {}).items() if k != 'sub_group_size' or stage == 3}
    if stage == 3:
        zero.pop('round_robin_gradients', None)
        zero.pop('parameter_alignment', None)
    config = {'train_micro_batch_size_per_gpu': 2, 'gradient_clipping': 1.0,
              'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-3, 'torch_adam': run.get('torch', True)}},
              'scheduler': {'type': 'WarmupLR', 'params': {'warmup_num_steps': 10, 'warmup_max_lr': 1e-3}},
              run.get('kind', 'bf16'): {'enabled': True}, 'zero_optimization': {'stage': stage, **zero},
              'expert_parallel': {'enabled': True, 'autoep_size': ep}, 'zero_allow_untested_optimizer': True}
    if run.get('kind') == 'fp16':
        config['fp16']['initial_scale_power'] = 8
    if universal:
        config['checkpoint'] = {'load_universal': True}
    return config


def truth(engine, run, world, ep, path):
    """The module's weights of all ranks under the hub's names, in its own dtype."""
    import torch
    import deepspeed
    import torch.distributed as dist
    from safetensors.torch import save_file
    _, _, roles, layer = FAMILIES[run['family']]
    mine = {}
    for name, p in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters([p], enabled=hasattr(p, 'ds_id')):
            mine[name] = p.detach().clone()
    for name, b in engine.module.named_buffers():
        if 'e_score_correction_bias' in name:
            mine[name] = b.detach().clone()
    everyone = [None] * world
    dist.all_gather_object(everyone, {k: v for k, v in mine.items() if '.experts.w' in k})
    if dist.get_rank() != 0:
        return
    out, gated = {}, any('.shared_experts_gate.' in k for k in mine)
    for name, t in mine.items():
        if '.experts.w' in name:
            prefix, w = name.rsplit('.', 1)
            for i, one in enumerate(torch.cat([everyone[r][name] for r in range(ep)])):
                out['%s.%d.%s.weight' % (prefix.replace('.mlp.', '.%s.' % layer), i, roles[int(w[1]) - 1])] = one.contiguous()
            continue
        if '.mlp.router.' in name:
            name = name.replace('.mlp.router.gate.', '.mlp.router.').replace('.mlp.router.', '.%s.gate.' % layer)
        if gated:
            name = name.replace('.shared_experts_gate.', '.shared_expert_gate.').replace('.shared_experts.', '.shared_expert.')
        out[name] = t.contiguous()
    save_file(out, path, {'format': 'pt'})


def rank_main(job, rank, out):
    import json
    import torch
    import deepspeed
    patch()
    run = RUNS[job['name']]
    torch.manual_seed(5 if job['load'] else 3)   # what a checkpoint should bring must come from it
    config, model = build(run)
    params = list(model.parameters())
    if run.get('groups'):
        params = [{'params': [p for p in params if p.ndim > 1], 'name': 'decay'},
                  {'params': [p for p in params if p.ndim <= 1], 'weight_decay': 0.0, 'name': 'plain'}]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=params,
                                           config=ds_config(run, job['stage'], job['ep'], job['universal']))
    first = 0
    if job['load']:
        path, _ = engine.load_checkpoint(job['load'])
        if path is None or engine.global_steps != SAVED:
            raise RuntimeError('DeepSpeed loads nothing, or not step %d' % SAVED)
        first = SAVED
    data = torch.Generator().manual_seed(1)
    batches = [torch.randint(0, VOCAB, (2, 8), generator=data) for _ in range(END)]
    losses = []
    for step in range(first, END):
        loss = engine(input_ids=batches[step], labels=batches[step]).loss
        engine.backward(loss)
        engine.step()
        losses.append(float(loss))
        if job['save'] and step == SAVED - 1:
            engine.save_checkpoint(os.path.join(job['save'], 'run'))
            truth(engine, run, job['world'], job['ep'], os.path.join(job['save'], 'truth.safetensors'))
    if rank == 0:
        if job['save']:
            config.save_pretrained(os.path.join(job['save'], 'config'))
            with open(os.path.join(job['save'], 'losses.json'), 'w', encoding='utf-8') as f:
                json.dump(losses, f)
        torch.save(losses[SAVED - first:], out)


def deepspeed_run(name, stage, world, ep, load=None, save=None, universal=False):
    job = dict(name=name, stage=stage, world=world, ep=ep, load=load, save=save, universal=universal)
    return ranks.run_ranks(world, lambda rank, out: rank_main(job, rank, out), 900)


def ckpt(arguments, *command):
    done = subprocess.run([os.path.join(arguments.bin, 'ckpt'), *command], capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()[-500:]


def weights(arguments, name, folder):
    """What convert --to hf makes is the truth, and transformers finds every weight of its model."""
    import torch
    import transformers
    from safetensors.torch import load_file
    run, made, problems = RUNS[name], os.path.join(folder, 'hf'), []
    kind = {'bf16': torch.bfloat16, 'fp16': torch.float16}[run.get('kind', 'bf16')]
    code, text = ckpt(arguments, 'convert', os.path.join(folder, 'run'), made, '--to', 'hf', '--config',
                      os.path.join(folder, 'config'), '--dtype', run.get('kind', 'bf16'), '--strict')
    if code:
        return ['convert: status %d: %s' % (code, text)]
    ours, want = load_file(os.path.join(made, 'model.safetensors')), load_file(os.path.join(folder, 'truth.safetensors'))
    if sorted(ours) != sorted(want):
        return ['names differ: %s' % sorted(set(ours) ^ set(want))[:6]]
    problems += ['%s differs' % k for k in want if not torch.equal(ours[k].to(kind), want[k].to(kind))]
    prefix = FAMILIES[run['family']][0]
    _, info = getattr(transformers, prefix + 'ForCausalLM').from_pretrained(made, output_loading_info=True)
    problems += ['transformers: %s: %s' % (k, sorted(info[k])[:3]) for k in ('missing_keys', 'unexpected_keys', 'mismatched_keys')
                 if info[k]]
    return problems


def target(arguments, name, folder, to, want):
    stage, world, ep, universal = to
    made = os.path.join(folder, 'to_%d_%d_%d_%d' % to)
    command = ['reshard', os.path.join(folder, 'run'), made, '--strict']
    command += ['--to', 'universal'] if universal else ['--stage', str(stage), '--world', str(world)]
    if not universal and ep != RUNS[name]['ep'] and world % RUNS[name]['ep'] == 0:
        command += ['--ep-size', str(ep)]
    code, text = ckpt(arguments, *command)
    if code:
        return ['reshard: status %d: %s' % (code, text)]
    code, text = ckpt(arguments, 'verify', made)
    if code:
        return ['verify: status %d: %s' % (code, text)]
    losses, error = deepspeed_run(name, stage, world, ep, load=made, universal=universal)
    if losses is None:
        return [error[-900:]]
    apart = max(abs(a - b) for a, b in zip(losses, want))
    return ['losses %s, DeepSpeed\'s own %s' % (losses, want)] if not apart <= LIMIT else []


def main():
    if sys.argv[1:2] == ['--make']:
        ranks.prepare(builders=())
        run, folder = RUNS[sys.argv[2]], os.path.abspath(sys.argv[3])
        os.makedirs(folder, exist_ok=True)
        losses, error = deepspeed_run(sys.argv[2], run['stage'], run['world'], run['ep'], save=folder)
        return print(losses if losses is not None else error) or losses is None
    arguments = checks.arguments()
    ranks.prepare(builders=())
    arguments.bin = os.path.abspath(arguments.bin)
    tally = checks.Tally(arguments.verbose)
    for name in arguments.only or RUNS:
        run = RUNS[name]
        with checks.scratch() as folder:
            own, error = deepspeed_run(name, run['stage'], run['world'], run['ep'], save=folder)
            if own is None:
                tally.add(name, ['DeepSpeed itself: ' + error[-900:]])
                continue
            tally.add('%s: weights' % name, weights(arguments, name, folder))
            for to in TARGETS.get(name, ()):
                tally.add('%s to stage %d, %d ranks, expert-parallel %d%s' % (name, *to[:3], ', universal' if to[3] else ''),
                          target(arguments, name, folder, to, own))
    return tally.end('AutoEP')


if __name__ == '__main__':
    sys.exit(main())
