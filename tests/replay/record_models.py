#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/fixtures/models: small models of transformers with their losses, logits, hidden states and gradients.

    record_models.py [-o FOLDER] [NAME...]      wants torch, transformers, safetensors
    record_models.py -o tests/fixtures/models_t5 t5 t5_gated

models.json has each model's class, config, order of parameters and its loss in 16 bits; model_NAME.safetensors the
weights (w/), inputs (in/), hidden states (hidden/), logits, loss and gradients (grad/) in fp32, and loss64 and gradnorm64
of the same model in fp64.  With names, entries of other models stay.  Read by tests/unit/engine/model and tests/replay/models.c.  Weights are random, of a fixed seed;
attention is computed in explicit form (eager).
"""
import argparse
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BASE = dict(vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64)
ROPE = dict(rope_parameters={'rope_type': 'default', 'rope_theta': 1000000.0})
LLAMA3 = dict(rope_parameters={'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 8.0, 'low_freq_factor': 1.0,
                               'high_freq_factor': 4.0, 'original_max_position_embeddings': 16})

OPT = dict(vocab_size=53, hidden_size=16, ffn_dim=36, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=20,
           dropout=0.0, pad_token_id=5)
NEOX = dict(vocab_size=53, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=20)
BLOOM = dict(vocab_size=53, hidden_size=18, n_layer=2, n_head=3)
SMALL = dict(vocab_size=41, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32)
# settings that a kind has instead of BASE
BASES = {'OPT': OPT, 'GPTNeoX': NEOX, 'Bloom': BLOOM, 'Olmo2': SMALL, 'Gemma2': SMALL, 'Gemma3': SMALL, 'Phi3': SMALL}

# kinds with norms of the branches' outputs
NORMED = ('Olmo2', 'Gemma2', 'Gemma3')

# name: (kind, settings, masked: at the right side, or 'left')
MODELS = {
    'qwen2': ('Qwen2', {**ROPE}, False),
    'qwen2_tied': ('Qwen2', {**LLAMA3, 'tie_word_embeddings': True, 'num_key_value_heads': 4}, True),
    'qwen3': ('Qwen3', {**ROPE, 'head_dim': 8, 'num_attention_heads': 5, 'num_key_value_heads': 1}, True),
    'mistral': ('Mistral', {'sliding_window': 4, 'head_dim': 4}, True),
    't5': ('T5', {'num_decoder_layers': 3, 'pad_token_id': 0}, True),
    't5_gated': ('T5', {'feed_forward_proj': 'gated-gelu', 'tie_word_embeddings': False, 'd_kv': 5, 'pad_token_id': 3,
                        'decoder_start_token_id': 7, 'relative_attention_num_buckets': 6, 'relative_attention_max_distance': 11}, False),
    'qwen2_windows': ('Qwen2', {**ROPE, 'use_sliding_window': True, 'sliding_window': 5, 'max_window_layers': 1}, False),
    'opt': ('OPT', {}, True),
    'opt_after': ('OPT', {'do_layer_norm_before': False, 'word_embed_proj_dim': 10}, 'left'),
    'opt_gelu': ('OPT', {'activation_function': 'gelu', 'enable_bias': False, 'word_embed_proj_dim': 20, 'tie_word_embeddings': False},
                 False),
    'neox': ('GPTNeoX', {'rope_parameters': {'rope_type': 'default', 'rope_theta': 10000.0, 'partial_rotary_factor': 0.5}}, True),
    'neox_serial': ('GPTNeoX', {'use_parallel_residual': False, 'hidden_act': 'gelu_fast', 'attention_bias': False}, False),
    'bloom': ('Bloom', {}, 'left'),
    'bloom_untied': ('Bloom', {'n_head': 2, 'tie_word_embeddings': False}, True),
    'olmo2': ('Olmo2', {}, True),
    'olmo2_bias': ('Olmo2', {**ROPE, 'attention_bias': True, 'tie_word_embeddings': True, 'num_key_value_heads': 4, 'hidden_act': 'gelu',
                             'pad_token_id': 20}, False),
    'gemma3': ('Gemma3', {'sliding_window': 4, 'head_dim': 6, 'query_pre_attn_scalar': 12, 'num_hidden_layers': 3,
                          'sliding_window_pattern': 3}, True),
    'gemma3_linear': ('Gemma3', {'sliding_window': 3, 'head_dim': 4, 'tie_word_embeddings': False, 'final_logit_softcapping': 4.0,
                                 'layer_types': ['full_attention', 'sliding_attention'],
                                 'rope_parameters': {'full_attention': {'rope_type': 'linear', 'factor': 4.0, 'rope_theta': 50000.0},
                                                     'sliding_attention': {'rope_type': 'default', 'rope_theta': 300.0}}}, 'left'),
    'phi3': ('Phi3', {'pad_token_id': 7, 'sliding_window': 5, 'original_max_position_embeddings': 20,
                      'rope_parameters': {'rope_type': 'longrope', 'short_factor': [1.0, 1.75], 'long_factor': [2, 9.5]}}, True),
    'phi4': ('Phi3', {'pad_token_id': 7, 'num_attention_heads': 2, 'num_key_value_heads': 1, 'tie_word_embeddings': True,
                      'original_max_position_embeddings': 8,
                      'rope_parameters': {'rope_type': 'longrope', 'rope_theta': 5000.0, 'partial_rotary_factor': 0.75,
                                          'short_factor': [1.0, 1.5, 2], 'long_factor': [1.25, 3.0, 8.5]}}, False),
    'gemma2': ('Gemma2', {'sliding_window': 4, 'head_dim': 6, 'query_pre_attn_scalar': 20, 'attn_logit_softcapping': 5.0,
                          'final_logit_softcapping': 4.0}, True),
    'gemma2_full': ('Gemma2', {**ROPE, 'head_dim': 4, 'attn_logit_softcapping': 6.0, 'final_logit_softcapping': None,
                               'attention_bias': True, 'tie_word_embeddings': False, 'hidden_activation': 'silu', 'sliding_window': 3,
                               'layer_types': ['full_attention', 'sliding_attention']}, 'left'),
}
T5 = dict(vocab_size=61, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=4, decoder_start_token_id=0, dropout_rate=0.0,
          relative_attention_num_buckets=12, relative_attention_max_distance=20)


def make(kind, settings):
    """The model in fp32, its weights spread so that none is 0 or 1."""
    import torch
    import transformers
    base = T5 if kind == 'T5' else {**BASES.get(kind, BASE), 'bos_token_id': 1, 'eos_token_id': 2}
    config = getattr(transformers, kind + ('TextConfig' if kind == 'Gemma3' else 'Config'))(**{**base, **settings})
    torch.manual_seed(4)
    of = 'ForConditionalGeneration' if kind == 'T5' else 'ForCausalLM'
    model = getattr(transformers, kind + of)._from_config(config, attn_implementation='eager').eval()
    if settings.get('tie_word_embeddings') is False and kind == 'T5':   # T5 1.1 is loaded like this; _from_config ties
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with torch.no_grad():
        for name, p in model.named_parameters():
            # norms of a branch's output, or of q and k, would enlarge the roundings of small values
            wide = p.ndim == 1 or (kind in NORMED and '.layers.' in name)
            noise = torch.randn(p.shape) * (0.2 if wide else 0.08)
            p.copy_(noise + (1 if 'norm' in name and 'Gemma' not in kind else 0))
    return model


def pairs(masked):
    """Sources and targets of T5, of different lengths."""
    import torch
    g = torch.Generator().manual_seed(8)
    out = {'input_ids': torch.randint(1, T5['vocab_size'], (3, 29), generator=g),
           'labels': torch.randint(1, T5['vocab_size'], (3, 11 if masked else 33), generator=g)}
    out['labels'][1, 7:] = -100
    if masked:
        out['attention_mask'] = torch.ones_like(out['input_ids'])
        out['attention_mask'][1, 9:] = 0
        out['attention_mask'][2, :4] = 0
    return out


def inputs(masked, vocab):
    import torch
    g = torch.Generator().manual_seed(7)
    ids = torch.randint(3, vocab, (3, 13), generator=g)
    labels = ids.clone()
    out = {'input_ids': ids, 'labels': labels}
    if masked:
        mask = torch.ones_like(ids)
        if masked == 'left':
            mask[1, :3] = 0
            mask[2, :7] = 0
        else:
            mask[1, 9:] = 0
            mask[2, 4:] = 0
        labels[mask == 0] = -100
        out['attention_mask'] = mask
    labels[0, 3] = -100
    return out


def run(model, data):
    import torch
    model.zero_grad()
    out = model(**data, output_hidden_states=True)
    out.loss.backward()
    norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters()))
    return out, float(norm)


def record(name, folder):
    import copy
    import torch
    from safetensors.torch import save_file
    kind, settings, masked = MODELS[name]
    model = make(kind, settings)
    data = pairs(masked) if kind == 'T5' else inputs(masked, model.config.vocab_size)
    out, norm32 = run(model, data)
    tensors = {'in/' + k: v for k, v in data.items()}
    tensors.update({'w/' + k: p.detach() for k, p in model.named_parameters()})
    tensors.update({'grad/' + k: p.grad for k, p in model.named_parameters()})
    hidden = out.encoder_hidden_states + out.decoder_hidden_states if kind == 'T5' else out.hidden_states
    tensors.update({'hidden/%d' % i: h.detach() for i, h in enumerate(hidden)})
    tensors.update(logits=out.logits.detach(), loss=out.loss.detach().reshape(1))
    wide, norm = run(copy.deepcopy(model).double(), data)
    if norm != norm:   # a row that sees no key: its lowest number of fp64 is infinite in the softmax, which is fp32
        wide, norm = out, norm32
    tensors.update(loss64=wide.loss.detach().double().reshape(1), gradnorm64=torch.tensor([norm], dtype=torch.float64))
    low = {}
    for text, dtype in (('bf16', torch.bfloat16), ('fp16', torch.float16)):
        o, n = run(copy.deepcopy(model).to(dtype), data)
        low[text] = {'loss': float(o.loss.detach()), 'loss_dtype': str(o.loss.dtype), 'logits_dtype': str(o.logits.dtype), 'gradnorm': n}
    names = [k for k, _ in model.named_parameters()]
    config = model.config.to_dict()
    config.pop('_name_or_path', None)
    path = os.path.join(folder, 'model_%s.safetensors' % name)
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, path)
    os.chmod(path, 0o644)
    return {'name': name, 'cls': type(model).__name__, 'config': config, 'param_order': names,
            'shapes': [list(p.shape) for p in model.parameters()],
            'state_dict_extra_keys': sorted(set(model.state_dict()) - set(names)),
            'numel': sum(p.numel() for p in model.parameters()), 'low_precision': low}


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('-o', default=os.path.join(ROOT, 'tests/fixtures/models'))
    p.add_argument('name', nargs='*')
    a = p.parse_args()
    try:
        import torch
        import transformers
    except ImportError as e:
        print('record_models: cannot record: %s' % e)
        return 2
    torch.set_num_threads(1)
    os.makedirs(a.o, exist_ok=True)
    path = os.path.join(a.o, 'models.json')
    entries = []
    if a.name and os.path.exists(path):
        with open(path, encoding='utf-8') as f:
            entries = [e for e in json.load(f)['models'] if e['name'] not in a.name]
    entries += [record(n, a.o) for n in a.name or [k for k in MODELS if MODELS[k][0] != 'T5']]
    with open(path, 'w') as f:
        json.dump({'versions': {'torch': torch.__version__, 'transformers': transformers.__version__}, 'models': entries}, f, indent=1)
        f.write('\n')
    print('recorded %d models in %s' % (len(entries), a.o))
    return 0


if __name__ == '__main__':
    sys.exit(main())
