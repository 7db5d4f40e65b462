#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Llama's kin in transformers, torch and DeepSpeed beside zerotrain, from Qwen2 to Phi-3; also OPT, GPT-NeoX, BLOOM, T5.

    kin.py --bin build/bin [-v] [NAME...]

Each variant is a small model with random weights that transformers saved.  zerotrain trains it for 8 updates on 1 to 3
ranks at one stage of ZeRO; torch's AdamW trains the model of transformers on the same samples.  Losses agree to 3e-6,
norms of gradients to 1e-5 of theirs, final weights to 1e-5; transformers loads what --save-model wrote, with the class
and the names that it was saved with.  DeepSpeed goes on from what zerotrain saved after update 4.

Adam's eps is 1e-4: with 1e-8 the sign of a gradient that is nothing but rounding moves a weight as far as any other.
"""
import argparse
import json
import os
import shutil
import sys

os.environ['DS_ACCELERATOR'] = 'cpu'
os.environ.setdefault('TRANSFORMERS_VERBOSITY', 'error')
try:
    import checks
    import ranks
    import torch
    import transformers
except ImportError:
    print('interop kin: skipped (no torch, transformers and DeepSpeed)')
    sys.exit(0)
import engine   # skips by itself where DeepSpeed is absent

HALF, LAST, BATCH, SEQ, VOCAB = 4, 8, 2, 11, 61
ROPE = {'rope_parameters': {'rope_type': 'default', 'rope_theta': 1000000.0}}
LLAMA3 = {'rope_parameters': {'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 4.0, 'low_freq_factor': 1.0,
                              'high_freq_factor': 4.0, 'original_max_position_embeddings': 16}}
BASE = {'vocab_size': VOCAB, 'hidden_size': 24, 'intermediate_size': 40, 'num_hidden_layers': 3, 'num_attention_heads': 4,
        'num_key_value_heads': 2, 'max_position_embeddings': 64, 'bos_token_id': 1, 'eos_token_id': 2, 'use_cache': False}
# settings that a kind has instead of BASE
BASES = {'OPT': {'vocab_size': VOCAB, 'hidden_size': 24, 'ffn_dim': 40, 'num_hidden_layers': 3, 'num_attention_heads': 4,
                 'max_position_embeddings': 20, 'dropout': 0.0, 'pad_token_id': 7, 'use_cache': False},
         'GPTNeoX': {'vocab_size': VOCAB, 'hidden_size': 24, 'intermediate_size': 40, 'num_hidden_layers': 3,
                     'num_attention_heads': 3, 'max_position_embeddings': 20, 'use_cache': False},
         'Bloom': {'vocab_size': VOCAB, 'hidden_size': 24, 'n_layer': 3, 'n_head': 3, 'use_cache': False},
         'T5': {'vocab_size': VOCAB, 'd_model': 24, 'd_kv': 6, 'd_ff': 40, 'num_layers': 2, 'num_decoder_layers': 3, 'num_heads': 3,
                'relative_attention_num_buckets': 8, 'relative_attention_max_distance': 9, 'dropout_rate': 0.0, 'pad_token_id': 0,
                'decoder_start_token_id': 0, 'use_cache': False}}
CLASSES = {'T5': 'T5ForConditionalGeneration'}

# kinds with norms of the branches' outputs, which enlarge the roundings of small values
NORMED = ('Olmo2', 'Gemma2', 'Gemma3')

# name: (kind, settings, world, stage, DeepSpeed goes on)
VARIANTS = {
    'qwen2': ('Qwen2', ROPE, 2, 3, True),
    'qwen2 tied, llama3': ('Qwen2', {**LLAMA3, 'tie_word_embeddings': True}, 1, 1, False),
    'qwen3': ('Qwen3', {**ROPE, 'head_dim': 8, 'num_attention_heads': 5, 'num_key_value_heads': 1}, 2, 2, True),
    'qwen3 bias, tied': ('Qwen3', {**ROPE, 'head_dim': 6, 'attention_bias': True, 'tie_word_embeddings': True}, 2, 3, False),
    'qwen3 all heads': ('Qwen3', {'head_dim': 10, 'num_key_value_heads': None}, 1, 0, False),
    'qwen2 windows': ('Qwen2', {**ROPE, 'use_sliding_window': True, 'sliding_window': 4, 'max_window_layers': 1}, 2, 2, False),
    'qwen3 windows': ('Qwen3', {**ROPE, 'head_dim': 8, 'use_sliding_window': True, 'sliding_window': 3,
                                'layer_types': ['sliding_attention', 'full_attention', 'sliding_attention']}, 1, 3, False),
    'mistral': ('Mistral', {'sliding_window': None, 'head_dim': 4}, 1, 1, False),
    'mistral window': ('Mistral', {'sliding_window': 5, 'tie_word_embeddings': False}, 2, 1, True),
    'opt': ('OPT', {}, 2, 3, True),
    'opt after': ('OPT', {'do_layer_norm_before': False, 'word_embed_proj_dim': 10}, 3, 2, True),
    'neox': ('GPTNeoX', {}, 2, 3, True),
    'neox serial': ('GPTNeoX', {'use_parallel_residual': False}, 3, 1, True),
    'bloom': ('Bloom', {}, 2, 3, True),
    'olmo2': ('Olmo2', {}, 2, 3, True),
    'phi3': ('Phi3', {'pad_token_id': 7}, 2, 3, True),
    'phi4': ('Phi3', {'pad_token_id': 7, 'tie_word_embeddings': True, 'num_attention_heads': 3, 'num_key_value_heads': 1,
                      'original_max_position_embeddings': 8,
                      'rope_parameters': {'rope_type': 'longrope', 'rope_theta': 10000.0, 'partial_rotary_factor': 0.75,
                                          'short_factor': [1.0, 1.5, 2.0], 'long_factor': [1.25, 3.0, 8.5]}}, 3, 2, False),
    'gemma2': ('Gemma2', {'head_dim': 8, 'query_pre_attn_scalar': 20, 'sliding_window': 5}, 2, 3, True),
    'gemma3': ('Gemma3', {'head_dim': 8, 'query_pre_attn_scalar': 20, 'sliding_window': 5, 'sliding_window_pattern': 3}, 2, 3, True),
    'gemma2 no caps': ('Gemma2', {**ROPE, 'head_dim': 6, 'attn_logit_softcapping': None, 'final_logit_softcapping': None,
                                  'tie_word_embeddings': False}, 1, 1, False),
    'olmo2 bias, tied': ('Olmo2', {**LLAMA3, 'attention_bias': True, 'tie_word_embeddings': True}, 3, 2, False),
    't5': ('T5', {}, 2, 3, True),
    't5 gated': ('T5', {'feed_forward_proj': 'gated-gelu', 'tie_word_embeddings': False, 'initializer_factor': 0.3},
                 3, 2, False),   # DeepSpeed's harness ties
}


def config_of(stage):
    return {'train_micro_batch_size_per_gpu': BATCH, 'gradient_accumulation_steps': 1, 'gradient_clipping': 0,
            'zero_optimization': {'stage': stage},
            'optimizer': {'type': 'AdamW', 'params': {'lr': 0.003, 'betas': [0.9, 0.98], 'eps': 1e-4, 'weight_decay': 0.02,
                                                      'torch_adam': True}}}


def samples(path, world, kind):
    """Inputs by name, [update, rank, sample, token]; T5's targets are shorter, one is padded, and so is a source."""
    from safetensors.torch import save_file
    g = torch.Generator().manual_seed(3)
    ids = torch.randint(3, VOCAB, (LAST, world, BATCH, SEQ), generator=g)
    data = {'input_ids': ids, 'labels': ids.clone()}
    if kind == 'T5':
        data['labels'] = torch.randint(3, VOCAB, (LAST, world, BATCH, SEQ - 4), generator=g)
        data['labels'][:, :, 0, -2:] = -100
        data['attention_mask'] = torch.ones_like(ids)
        data['attention_mask'][:, :, 1, -3:] = 0
    save_file({'in/' + k: v for k, v in data.items()}, path)
    return data


def by_torch(model, data):
    """(losses, norms of gradients): each rank's mean loss counts alike."""
    p = config_of(0)['optimizer']['params']
    opt = torch.optim.AdamW(model.parameters(), lr=p['lr'], betas=p['betas'], eps=p['eps'], weight_decay=p['weight_decay'])
    losses, norms = [], []
    for step in range(LAST):
        opt.zero_grad()
        parts = [model(**{k: v[step, rank] for k, v in data.items()}).loss for rank in range(data['labels'].shape[1])]
        loss = sum(parts) / len(parts)
        loss.backward()
        norms.append(float(torch.sqrt(sum((q.grad ** 2).sum() for q in model.parameters()))))
        losses.append(float(loss.detach()))
        opt.step()
    return losses, norms


def apart(what, got, want, limit, relative=False):
    """What is wrong with a list of numbers."""
    if len(got) != len(want):
        return ['%s: %d numbers, not %d' % (what, len(got), len(want))]
    far = max(abs(a - b) / (abs(b) if relative else 1) for a, b in zip(got, want))
    return [] if far <= limit else ['%s: %.2g apart, %.2g allowed' % (what, far, limit)]


def saved_model(folder, first, trained):
    """The folder that zerotrain wrote, in transformers."""
    problems = []
    with open(os.path.join(folder, 'config.json'), encoding='utf-8') as f:
        config = json.load(f)
    with open(os.path.join(first, 'config.json'), encoding='utf-8') as f:
        if config != json.load(f):
            problems.append('config.json is another')
    auto = transformers.AutoModelForSeq2SeqLM if config.get('is_encoder_decoder') else transformers.AutoModelForCausalLM
    model, info = auto.from_pretrained(folder, attn_implementation='eager', output_loading_info=True)
    problems += ['from_pretrained: %s: %s' % (k, v) for k, v in info.items() if v]
    if type(model) is not type(trained):
        problems.append('class %s' % type(model).__name__)
    theirs = dict(trained.named_parameters())
    far = {n: float((p - theirs[n]).abs().max().detach()) for n, p in model.named_parameters()}
    if set(far) != set(theirs) or max(far.values()) > 1e-5:
        problems.append('weights: %s' % max(far.items(), key=lambda x: x[1])[0])
    return problems, max(far.values())


def check(r, name):
    kind, settings, world, stage, goes_on = VARIANTS[name]
    names = ('first', 'data.safetensors', 'ds.json', 'm.jsonl', 'run', 'out')
    first, data, ds, metrics, saved, out = (os.path.join(r.work, x) for x in names)
    for x in (first, saved, out):
        shutil.rmtree(x, ignore_errors=True)
    torch.manual_seed(11)
    config = getattr(transformers, kind + ('TextConfig' if kind == 'Gemma3' else 'Config'))(**{**BASES.get(kind, BASE), **settings})
    model = getattr(transformers, CLASSES.get(kind, kind + 'ForCausalLM'))._from_config(config, attn_implementation='eager')
    if kind == 'T5' and settings.get('tie_word_embeddings') is False:   # _from_config ties
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with torch.no_grad():   # biases and norms as no new model has them
        for n, p in model.named_parameters():
            if p.ndim == 1:
                p.add_(0.1 * torch.randn(p.shape))
            elif kind in NORMED and 'lm_head' not in n:
                p.mul_(5)
    model.save_pretrained(first)
    inputs = samples(data, world, kind)
    with open(ds, 'w', encoding='utf-8') as f:
        json.dump(config_of(stage), f)
    args = ['--deepspeed_config', ds, '--model', first, '--init', first, '--data', data, '--max-steps', LAST, '--save', saved,
            '--save-every', HALF, '--save-model', out, '--metrics', metrics]
    lines, problem = engine.zerotrain(r, world, args, metrics)
    if problem:
        return [problem], ''
    losses, norms = by_torch(model, inputs)
    problems = apart('losses', [x['loss'] for x in lines], losses, 3e-6)
    problems += apart('norms', [x['grad_norm'] for x in lines], norms, 1e-5, True)
    more, far = saved_model(out, first, model)
    problems += more
    if goes_on:
        result, problem = engine.deepspeed_goes_on({'world': world, 'model': first, 'groups': False, 'data': data,
                                                    'config': config_of(stage), 'load': saved, 'tag': 'global_step%d' % HALF, 'steps': LAST})
        if problem:
            return problems + [problem], ''
        problems += apart('DeepSpeed goes on', [x['loss'] for x in result['rows']], losses[HALF:], 3e-6)
    return problems, 'losses off by %.1e, weights by %.1e' % (max(abs(x['loss'] - y) for x, y in zip(lines, losses)), far)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('only', nargs='*', help='parts of names')
    a = p.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    tally = checks.Tally(a.verbose)
    ranks.prepare(('ShareMemCommBuilder', 'FusedAdamBuilder'))
    transformers.AutoModelForCausalLM
    transformers.utils.logging.disable_progress_bar()
    r = engine.golden.Runner(os.path.abspath(a.bin), os.path.join(root, 'tests/fixtures/golden'))
    for name in [x for x in VARIANTS if any(y in x for y in a.only)] if a.only else checks.mine(VARIANTS):
        tally.call(name, lambda n=name: check(r, n))
    shutil.rmtree(r.work, ignore_errors=True)
    return tally.end('interop kin')


if __name__ == '__main__':
    sys.exit(main())
