#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/fixtures/golden/decoders: short runs of DeepSpeed that deepspeed.py replays.

    record_runs.py [-o FOLDER] [NAME...]      needs torch, transformers, deepspeed, safetensors

For each model the folder gets its config, its first weights (w0/) and inputs (in/), and the final weights; runs_w1.json to
runs_w3.json get losses, norms of gradients and rates of each update, for stages 0 to 3 on one to three ranks.  With names,
runs of other models stay.  Some samples are padded at the left, as positions that count tokens need it.

Adam's eps is 1e-4: with 1e-8 the sign of a gradient that is rounding noise would move a weight as far as any other.
"""
import argparse
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[0] = os.path.join(ROOT, 'tests', 'interop')   # beside this file, deepspeed.py hides the package
os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')
STEPS, BATCH, SEQ, WORLDS = 3, 2, 9, (1, 2, 3)

# name: (kind, settings)
MODELS = {
    'bloom': ('Bloom', dict(vocab_size=41, hidden_size=16, n_layer=2, n_head=4)),
    'neox': ('GPTNeoX', dict(vocab_size=41, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                             max_position_embeddings=12)),
    'gemma2': ('Gemma2', dict(vocab_size=41, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                              num_key_value_heads=2, head_dim=6, query_pre_attn_scalar=10, sliding_window=4, max_position_embeddings=12)),
    'gemma3': ('Gemma3', dict(vocab_size=41, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                              num_key_value_heads=2, head_dim=6, query_pre_attn_scalar=10, sliding_window=4, sliding_window_pattern=2,
                              max_position_embeddings=12)),
    'olmo2': ('Olmo2', dict(vocab_size=41, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                            num_key_value_heads=2, max_position_embeddings=12)),
    'phi3': ('Phi3', dict(vocab_size=41, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                          num_key_value_heads=1, max_position_embeddings=12, pad_token_id=5,
                          rope_parameters={'rope_type': 'default', 'rope_theta': 10000.0, 'partial_rotary_factor': 0.75})),
    'opt': ('OPT', dict(vocab_size=41, hidden_size=16, word_embed_proj_dim=12, ffn_dim=24, num_hidden_layers=2, num_attention_heads=4,
                        max_position_embeddings=12, dropout=0.0, pad_token_id=1)),
}
# names that differ in model folders, as zerotrain writes them
HUB = {'neox': {'lm_head.weight': 'embed_out.weight'}}
# kinds with norms of the branches' outputs, which enlarge the roundings of small values
NORMED = ('Olmo2', 'Gemma2', 'Gemma3')
# (world, stage, dtype); those in 16 bits have no final weights
RUNS = ((1, 0, 'fp32'), (2, 1, 'fp32'), (2, 3, 'fp32'), (3, 2, 'fp32'), (3, 3, 'bf16'))


def config_of(stage, kind):
    c = {'train_micro_batch_size_per_gpu': BATCH, 'gradient_accumulation_steps': 1, 'gradient_clipping': 0.5,
         'zero_optimization': {'stage': stage},
         'optimizer': {'type': 'AdamW', 'params': {'lr': 0.004, 'betas': [0.9, 0.95], 'eps': 1e-4, 'weight_decay': 0.01}}}
    if kind != 'fp32':
        c[kind] = {'enabled': True}
    return c


def make(name):
    import torch
    import transformers
    kind, settings = MODELS[name]
    config = getattr(transformers, kind + ('TextConfig' if kind == 'Gemma3' else 'Config'))(bos_token_id=2, eos_token_id=2, **settings)
    torch.manual_seed(5)
    model = getattr(transformers, kind + 'ForCausalLM')._from_config(config, attn_implementation='eager')
    with torch.no_grad():   # biases and norms as no new model has them
        for p in model.parameters():
            p.add_((0.1 if p.ndim == 1 else 0.15 if kind in NORMED else 0.05) * torch.randn(p.shape))
    return model


def inputs(vocab):
    import torch
    g = torch.Generator().manual_seed(9)
    ids = torch.randint(3, vocab, (STEPS, len(WORLDS), BATCH, SEQ), generator=g)
    mask = torch.ones_like(ids)
    mask[:, :, 1, :2] = 0
    labels = ids.clone()
    labels[mask == 0] = -100
    return {'input_ids': ids, 'attention_mask': mask, 'labels': labels}


def rank_main(name, run, rank, out):
    """Train on one rank; rank 0 saves the record's numbers and the final weights."""
    import deepspeed
    import torch
    world, stage, kind = run
    model = make(name)
    data = inputs(model.config.vocab_size)
    names = [n for n, _ in model.named_parameters()]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config_of(stage, kind))
    losses, norms, rates = [], [], []
    for i in range(STEPS):
        loss = engine(**{k: v[i, rank] for k, v in data.items()}).loss
        every = [torch.zeros(1) for _ in range(world)]
        torch.distributed.all_gather(every, loss.detach().float().reshape(1))
        losses.append([float(x) for x in every])
        engine.backward(loss)
        rates.append([g['lr'] for g in engine.optimizer.param_groups])
        if stage == 0 and kind == 'fp32':   # DeepSpeed reports no norm there
            norms.append(float(torch.sqrt(sum((p.grad.double() ** 2).sum() for p in engine.module.parameters()))))
        engine.step()
        if stage != 0 or kind != 'fp32':
            norms.append(float(engine.get_global_grad_norm()))
    weights = {}
    for n, p in zip(names, engine.module.parameters()):
        with deepspeed.zero.GatheredParameters([p], enabled=stage == 3):
            weights['p/' + HUB.get(name, {}).get(n, n)] = p.detach().float().clone()
    if rank == 0:
        torch.save({'losses': losses, 'norms': norms, 'rates': rates, 'weights': weights}, out)


def record(name, run, folder):
    """One entry of runs_w*.json."""
    import ranks
    from safetensors.torch import save_file
    world, stage, kind = run
    got, error = ranks.run_ranks(world, lambda rank, out: rank_main(name, run, rank, out), 120)
    if error:
        raise RuntimeError('%s on %d ranks, stage %d: %s' % (name, world, stage, error))
    entry = {'name': '%s_w%d_z%d_%s' % (name, world, stage, kind), 'model': name, 'world': world, 'groups': False,
             'ds_config': config_of(stage, kind), 'loss': got['losses'], 'mean_loss': [sum(x) / len(x) for x in got['losses']],
             'grad_norm': got['norms'], 'lr': got['rates'], 'scale': [None] * STEPS, 'overflow': [0] * STEPS, 'weights': None}
    if kind == 'fp32':   # the same for all stages
        entry['weights'] = '%s_w%d_fp32' % (name, world)
        path = os.path.join(folder, 'run_%s.safetensors' % entry['weights'])
        save_file(got['weights'], path)
        os.chmod(path, 0o644)
    return entry


def record_model(name, folder):
    from safetensors.torch import save_file
    model = make(name)
    config = model.config.to_dict()
    config.pop('_name_or_path', None)
    config['architectures'] = [type(model).__name__]
    with open(os.path.join(folder, 'run_model_%s.json' % name), 'w') as f:
        json.dump(config, f)
        f.write('\n')
    tensors = {'in/' + k: v for k, v in inputs(config['vocab_size']).items()}
    tensors.update({'w0/' + k: p.detach().contiguous() for k, p in model.named_parameters()})
    path = os.path.join(folder, 'run_data_%s.safetensors' % name)
    save_file(tensors, path)
    os.chmod(path, 0o644)
    return [record(name, run, folder) for run in RUNS]


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('-o', default=os.path.join(ROOT, 'tests/fixtures/golden/decoders'))
    p.add_argument('name', nargs='*')
    a = p.parse_args()
    try:
        import deepspeed
        import ranks
        import torch
        import transformers
    except ImportError as e:
        print('record_runs: cannot record: %s' % e)
        return 2
    ranks.prepare()
    os.makedirs(a.o, exist_ok=True)
    names = a.name or list(MODELS)
    entries = [e for n in names for e in record_model(n, a.o)]
    for world in WORLDS:
        path = os.path.join(a.o, 'runs_w%d.json' % world)
        old = []
        if os.path.exists(path):
            with open(path, encoding='utf-8') as f:
                old = [e for e in json.load(f)['runs'] if e['model'] not in names]
        with open(path, 'w') as f:
            json.dump({'versions': {x.__name__: x.__version__ for x in (torch, deepspeed, transformers)}, 'attention': 'eager',
                       'steps': STEPS, 'runs': old + [e for e in entries if e['world'] == world]}, f)
            f.write('\n')
    print('recorded %d runs in %s' % (len(entries), a.o))
    return 0


if __name__ == '__main__':
    sys.exit(main())
