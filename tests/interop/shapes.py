#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Vocabularies, tied heads and dtypes that convert changes, as transformers loads them.

  shapes.py --bin build/bin

Logits of the tokens that stay are equal bit for bit; tokens that were added get 0; a tied model shares its table, an untied one
does not.
"""
import argparse
import os
import subprocess
import sys
import tempfile

os.environ['HF_HUB_OFFLINE'] = '1'
import torch
import transformers
from transformers import (AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel,
                          LlamaConfig, LlamaForCausalLM)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
passed, failed = 0, 0
BERT_MAP = '''others stay
tie left cls.predictions.decoder.weight = bert.embeddings.word_embeddings.weight
tie left cls.predictions.decoder.bias = cls.predictions.bias
'''


def verdict(label, good, why=''):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print('FAIL %s: %s' % (label, why))


def convert(a, *args):
    p = subprocess.run([os.path.join(a.bin, 'ckpt'), 'convert', '-q'] + list(args), capture_output=True, text=True)
    verdict(' '.join(args), p.returncode == 0, p.stderr)


def logits(auto, path, **how):
    model, info = auto.from_pretrained(path, output_loading_info=True, **how)
    verdict(path, not any(info[k] for k in ('missing_keys', 'unexpected_keys', 'mismatched_keys')), info)
    model.eval()
    with torch.no_grad():
        return model(torch.arange(24).view(2, 12)).logits, model


def shares(model):
    return model.get_input_embeddings().weight.data_ptr() == model.get_output_embeddings().weight.data_ptr()


def vocabulary(a, auto, src, base):
    convert(a, src, src + '_more', '--to', 'hf', '--vocab-size', '128')
    out, model = logits(auto, src + '_more')
    verdict(src + ': rows added', out.shape[-1] == model.config.vocab_size == 128 and torch.equal(out[..., :100], base) and
            not out[..., 100:].any())
    convert(a, src + '_more', src + '_less', '--to', 'hf', '--vocab-size', '100')
    verdict(src + ': and cut', torch.equal(logits(auto, src + '_less')[0], base))
    convert(a, src, src + '_cut', '--to', 'hf', '--vocab-size', '64')
    verdict(src + ': tokens cut', torch.equal(logits(auto, src + '_cut')[0], base[..., :64]))


def ties(a, auto, src, base, head, how):
    convert(a, src, src + '_untied', '--to', 'hf', '--untie', *how)
    out, model = logits(auto, src + '_untied')
    verdict(src + ': untied', torch.equal(out, base) and not shares(model) and not model.config.tie_word_embeddings)
    convert(a, src + '_untied', src + '_tied', '--to', 'hf', '--tie', head)
    out, model = logits(auto, src + '_tied')
    verdict(src + ': tied again', torch.equal(out, base) and shares(model))


def dtypes(a, auto, src, base):
    norms = 'f32:*ln_*' if 'gpt2' in src else 'f32:*[Nn]orm*'
    convert(a, src, src + '_mixed', '--to', 'hf', '--dtype', norms + ',bf16')
    verdict(src + ': mixed dtypes', logits(auto, src + '_mixed')[1].dtype == torch.bfloat16)
    verdict(src + ': and their values', (logits(auto, src + '_mixed', dtype=torch.float32)[0] - base).abs().max() < 0.05)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    a = p.parse_args()
    sizes = {'vocab_size': 100, 'hidden_size': 16, 'intermediate_size': 40, 'num_hidden_layers': 2, 'num_attention_heads': 2}
    torch.manual_seed(0)
    models = {
        'llama': LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=False)),
        'llama_shared': LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True)),
        'gpt2': GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=16, n_layer=2, n_head=2, n_positions=32, bos_token_id=0,
                                           eos_token_id=0)),
        'bert': BertForMaskedLM(BertConfig(**sizes, max_position_embeddings=32)),
    }
    with tempfile.TemporaryDirectory() as tmp:
        with open(os.path.join(tmp, 'bert.map'), 'w') as f:
            f.write(BERT_MAP)
        for name, model in models.items():
            auto = AutoModelForMaskedLM if name == 'bert' else AutoModelForCausalLM
            src = os.path.join(tmp, name)
            model.save_pretrained(src)
            base, _ = logits(auto, src)
            vocabulary(a, auto, src, base)
            if name != 'llama':
                head = 'cls.predictions.decoder.weight' if name == 'bert' else 'lm_head.weight'
                ties(a, auto, src, base, head, ['--map', os.path.join(tmp, 'bert.map')] if name == 'bert' else [])
            dtypes(a, auto, src, base)
    print('shapes: %d passed, %d failed' % (passed, failed))
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
