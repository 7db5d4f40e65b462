#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ckpt mem of a config.json alone, beside the parameters of the model that transformers makes of it.

    mem.py --bin build/bin

Models are made on torch's meta device, which holds no weights: defaults of each family, and small ones with tied
embeddings, biases, grouped heads and heads of another width.  The largest module is DeepSpeed's: the one with most
parameters of its own, tied ones included.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault('TRANSFORMERS_VERBOSITY', 'error')
try:
    import torch
    import transformers
except ImportError:
    print('interop mem: skipped (no torch and transformers)')
    sys.exit(0)

SMALL = {'num_hidden_layers': 3, 'hidden_size': 64, 'intermediate_size': 176, 'num_attention_heads': 8,
         'num_key_value_heads': 2, 'vocab_size': 1000}
YARN = {'rope_type': 'yarn', 'factor': 4.0, 'rope_theta': 10000.0}

# class, its config, settings
MODELS = [
    ('LlamaForCausalLM', 'LlamaConfig', {}),
    ('LlamaForCausalLM', 'LlamaConfig', SMALL),
    ('LlamaForCausalLM', 'LlamaConfig', {**SMALL, 'tie_word_embeddings': True, 'attention_bias': True, 'mlp_bias': True}),
    ('LlamaForCausalLM', 'LlamaConfig', {**SMALL, 'head_dim': 16, 'rope_parameters': YARN}),
    ('Qwen2ForCausalLM', 'Qwen2Config', {}),
    ('Qwen2ForCausalLM', 'Qwen2Config', {**SMALL, 'tie_word_embeddings': True, 'use_sliding_window': True}),
    ('Qwen3ForCausalLM', 'Qwen3Config', {}),
    ('Qwen3ForCausalLM', 'Qwen3Config', {**SMALL, 'tie_word_embeddings': True, 'attention_bias': True}),
    ('MistralForCausalLM', 'MistralConfig', {}),
    ('MistralForCausalLM', 'MistralConfig', {**SMALL, 'head_dim': 24, 'hidden_act': 'gelu'}),
    ('Olmo2ForCausalLM', 'Olmo2Config', {}),
    ('Olmo2ForCausalLM', 'Olmo2Config', {**SMALL, 'tie_word_embeddings': True, 'attention_bias': True, 'rope_parameters': YARN}),
    ('Gemma3ForCausalLM', 'Gemma3TextConfig', {}),
    ('Gemma3ForCausalLM', 'Gemma3TextConfig', {**SMALL, 'head_dim': 24, 'tie_word_embeddings': False}),
    ('Phi3ForCausalLM', 'Phi3Config', {}),
    ('Phi3ForCausalLM', 'Phi3Config', {**SMALL, 'tie_word_embeddings': True, 'pad_token_id': 0}),
    ('Gemma2ForCausalLM', 'Gemma2Config', {}),
    ('Gemma2ForCausalLM', 'Gemma2Config', {**SMALL, 'head_dim': 24, 'tie_word_embeddings': False, 'attention_bias': True}),
    ('GPT2LMHeadModel', 'GPT2Config', {}),
    ('GPT2LMHeadModel', 'GPT2Config', {'tie_word_embeddings': False, 'n_inner': 100, 'activation_function': 'relu'}),
    ('OPTForCausalLM', 'OPTConfig', {}),
    ('OPTForCausalLM', 'OPTConfig', {'hidden_size': 1024, 'word_embed_proj_dim': 512, 'num_attention_heads': 16,
                                     'do_layer_norm_before': False, 'ffn_dim': 100}),
    ('GPTNeoXForCausalLM', 'GPTNeoXConfig', {'num_hidden_layers': 2, 'attention_bias': False}),
    ('GPTNeoXForCausalLM', 'GPTNeoXConfig', {'num_hidden_layers': 2, 'tie_word_embeddings': True}),
    ('BloomForCausalLM', 'BloomConfig', {'n_layer': 3, 'hidden_size': 128}),
    ('BertForMaskedLM', 'BertConfig', {}),
    ('BertForSequenceClassification', 'BertConfig', {}),
    ('BertForSequenceClassification', 'BertConfig', {'num_labels': 5}),
]
UNKNOWN = [('MixtralForCausalLM', 'MixtralConfig', 'mixtral'), ('BertModel', 'BertConfig', 'bert')]


def estimate(ckpt, name, config, folder):
    config.architectures = [name]
    config.save_pretrained(folder)
    return subprocess.run([ckpt, 'mem', '--json', folder], capture_output=True, text=True, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', default='build/bin')
    ckpt = os.path.join(parser.parse_args().bin, 'ckpt')
    bad = 0
    for name, kind, settings in MODELS:
        config = getattr(transformers, kind)(**settings)
        with torch.device('meta'):
            model = getattr(transformers, name)(config)
        model.tie_weights()
        want = (sum(p.numel() for p in model.parameters()),
                max(sum(p.numel() for p in m.parameters(recurse=False)) for m in model.modules()))
        with tempfile.TemporaryDirectory() as folder:
            run = estimate(ckpt, name, config, folder)
        found = json.loads(run.stdout) if run.returncode == 0 else {}
        if (found.get('params'), found.get('largest_layer')) != want:
            print(f'mem: {name} {settings}: expected {want}, found {found or run.stderr}')
            bad += 1
    for name, kind, model_type in UNKNOWN:
        with tempfile.TemporaryDirectory() as folder:
            run = estimate(ckpt, name, getattr(transformers, kind)(), folder)
        if run.returncode != 3 or name not in run.stderr or f'model_type {model_type}' not in run.stderr:
            print(f'mem: {name}: expected to be refused by its name and type, found {run.returncode}: {run.stderr}')
            bad += 1
    print(f'interop mem: {len(MODELS) + len(UNKNOWN)} models, {bad} differ')
    sys.exit(1 if bad else 0)


main()
