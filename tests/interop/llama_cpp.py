#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files that we make of models, beside llama.cpp's own converter and quantizer, as llama.cpp and transformers compute them.

  llama_cpp.py --bin build/bin --llama DIR [NAME...]

DIR is what llama.sh has made.  Of every model F16, Q8_0 and Q4_K_M: llama.cpp says the same tokens from our file as from its own
converter's (of BERT, the same embedding), and cuts texts into the same tokens, which are those of transformers' tokenizer.
transformers reads the F16 file back and computes the logits of the model that it was made of, or of llama.cpp's file where it
takes that for another model.
"""
import argparse
import os
import shutil
import subprocess
import sys

os.environ['HF_HUB_OFFLINE'] = '1'
import torch
import transformers

from checks import Tally, ckpt, mine, scratch

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures')
# The converter knows a tokenizer by a hash; it is told what ours would be.
CONVERT = '''
import runpy, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + '/gguf-py']
import conversion.base
conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
pre, folder, out = sys.argv[2:]
for dtype in 'f16', 'f32':
    sys.argv = ['convert_hf_to_gguf.py', folder, '--outfile', out + dtype, '--outtype', dtype]
    runpy.run_path(sys.path[0] + '/convert_hf_to_gguf.py', run_name='__main__')
'''
TYPES = {'q8_0': 7, 'q4_k_m': 15}
TEXTS = ['', 'hello world', ' The  quick brown fox', "it's 3.14159 or 2 or 42?", 'naïve café, 日本語 and 🙂', 'a\tb\n\nc  d']
LLAMA = {'hidden_size': 256, 'intermediate_size': 512, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2,
         'max_position_embeddings': 128}
MOE = dict(LLAMA, moe_intermediate_size=256, num_experts=4, num_experts_per_tok=2, decoder_sparse_step=1, mlp_only_layers=[])
LLAMA3 = {'rope_type': 'llama3', 'rope_theta': 10000.0, 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,
          'original_max_position_embeddings': 32}
# Name: class, configuration, tokenizer, what it is called.
MODELS = {
    'llama': ('Llama', LLAMA, 'gguf_mixtral', 'default'),
    'llama3': ('Llama', dict(LLAMA, rope_parameters=LLAMA3, tie_word_embeddings=True), 'gguf_llama_deep', 'llama-bpe'),
    'mistral': ('Mistral', dict(LLAMA, head_dim=32, sliding_window=64), 'gguf_mixtral', 'default'),
    'mixtral': ('Mixtral', dict(LLAMA, num_local_experts=4, num_experts_per_tok=2), 'gguf_mixtral', 'default'),
    'qwen2': ('Qwen2', dict(LLAMA, tie_word_embeddings=True), 'gguf_llama_deep', 'qwen2'),
    'qwen3': ('Qwen3', dict(LLAMA, head_dim=64), 'gguf_llama_deep', 'qwen2'),
    'qwen2moe': ('Qwen2Moe', dict(MOE, shared_expert_intermediate_size=256), 'gguf_llama_deep', 'qwen2'),
    # llama.cpp normalizes the weights of Qwen3's experts always
    'qwen3moe': ('Qwen3Moe', dict(MOE, head_dim=64, norm_topk_prob=True), 'gguf_llama_deep', 'qwen2'),
    'gpt2': ('GPT2', {'n_embd': 256, 'n_layer': 2, 'n_head': 4, 'n_positions': 128, 'n_ctx': 128}, 'gguf_llama_deep', 'gpt-2'),
    'bert': ('Bert', {'hidden_size': 256, 'intermediate_size': 512, 'num_hidden_layers': 2, 'num_attention_heads': 4,
                      'max_position_embeddings': 128}, 'gguf_bert', 'default'),
}


def make(name, folder):
    """A model of random weights, large enough that its answers differ, and its tokenizer."""
    kind, config, source, _ = MODELS[name]
    source = os.path.join(FIXTURES, source, 'hf')
    torch.manual_seed(len(name))
    vocab = transformers.AutoConfig.from_pretrained(source).vocab_size
    config = getattr(transformers, kind + 'Config')(**config, vocab_size=vocab)
    config.bos_token_id, config.eos_token_id = 1, 2
    model = getattr(transformers, kind + {'GPT2': 'LMHeadModel', 'Bert': 'Model'}.get(kind, 'ForCausalLM'))(config)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.08)
            else:
                p.add_(torch.randn_like(p) * 0.02)
    # values that F16 has, so that a file of F16 is the model
    model.half().float().save_pretrained(folder)
    for file in os.listdir(source):
        if 'token' in file or file in ('vocab.json', 'merges.txt', 'vocab.txt'):
            shutil.copyfile(os.path.join(source, file), os.path.join(folder, file))
    return vocab


def run(*command):
    p = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if p.returncode:
        raise RuntimeError('%s: exit %d: %s' % (os.path.basename(command[0]), p.returncode, (p.stderr or p.stdout).strip()[-600:]))
    return p.stdout


def answers(a, name, file, vocab):
    """What llama.cpp makes of a file: tokens after three beginnings, or embeddings."""
    judge, out = os.path.join(a.llama, 'llama_run'), []
    for first in (1, 5, 9), (7, 3, 11, 40 % vocab), (20, 21, 22):
        first = [str(x) for x in first]
        out.append(run(judge, 'embed', file, *first) if name == 'bert' else run(judge, 'say', file, '16', *first))
    return out


def compare(a, name, tmp):
    folder, theirs, problems = os.path.join(tmp, name), os.path.join(tmp, name + '.their.'), []
    vocab = make(name, folder)
    run(sys.executable, '-c', CONVERT, a.llama, MODELS[name][3], folder, theirs)
    judge = os.path.join(a.llama, 'llama_run')
    for dtype in 'f16', 'q8_0', 'q4_k_m':
        ours = os.path.join(tmp, '%s.%s.gguf' % (name, dtype))
        ckpt(a, 'convert', '-q', folder, ours, '--dtype', dtype)
        if dtype in TYPES:
            run(judge, 'quantize', theirs + 'f32', theirs + dtype, str(TYPES[dtype]))
        mine, other = answers(a, name, ours, vocab), answers(a, name, theirs + dtype, vocab)
        if mine != other or not mine[0]:
            problems.append('%s: %s instead of %s' % (dtype, mine[0].split()[:8], other[0].split()[:8]))
    return problems


def tokens(a, name, tmp):
    """A text is cut as transformers cuts it, and as llama.cpp's own file has it cut."""
    judge = os.path.join(a.llama, 'llama_run')
    ours = run(judge, 'tokens', os.path.join(tmp, name + '.f16.gguf'), *TEXTS)
    theirs = run(judge, 'tokens', os.path.join(tmp, name + '.their.f16'), *TEXTS)
    return [] if ours == theirs and ours.strip() else ['%r instead of %r' % (ours, theirs)]


def logits(auto, folder, file=None):
    """Of a model folder or a file; the text of what transformers says against it."""
    try:
        with torch.no_grad():
            return auto.from_pretrained(folder, dtype=torch.float32, **({'gguf_file': file} if file else {})).eval()(torch.arange(24).view(2, 12))[0]
    except (NotImplementedError, RuntimeError, ValueError) as x:
        return '%s: %s' % (type(x).__name__, str(x)[:80])


def back(a, name, tmp):
    """transformers computes the model's logits from the file; where it cannot read llama.cpp's own as that, ours is no better."""
    auto = transformers.AutoModel if name == 'bert' else transformers.AutoModelForCausalLM
    model, ours = logits(auto, os.path.join(tmp, name)), logits(auto, tmp, name + '.f16.gguf')
    theirs = logits(auto, tmp, name + '.their.f16')
    if isinstance(ours, str) or isinstance(theirs, str):
        return ([], 'not read by transformers, nor llama.cpp\'s: %s' % ours) if ours == theirs else ['%s; llama.cpp\'s: %s' % (ours, theirs)]
    off, other = ((x - model).abs().max().item() / model.abs().max().item() for x in (ours, theirs))
    if off < 1e-5:
        return []
    return ([], 'another model to transformers, as llama.cpp\'s file is') if other > 1e-3 else \
        ['logits are off by %.2g, those of llama.cpp\'s file by %.2g' % (off, other)]


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--llama', required=True)
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('only', nargs='*')
    a = p.parse_args()
    tally = Tally(a.verbose)
    with scratch() as tmp:
        for name in a.only or mine(MODELS):
            if tally.call(name + ': llama.cpp', lambda: compare(a, name, tmp)):
                tally.call(name + ': texts', tokens, a, name, tmp)
                tally.call(name + ': transformers', back, a, name, tmp)
    return tally.end('GGUF')


if __name__ == '__main__':
    sys.exit(main())
