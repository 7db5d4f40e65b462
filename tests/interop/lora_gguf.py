#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters as GGUF files, beside llama.cpp's converter, llama.cpp and PEFT.

  lora_gguf.py --bin build/bin --llama DIR [NAME...]

DIR is what llama.sh has made.  ckpt's file has all tensors and keys of convert_lora_to_gguf.py, except for the keys from a model
card, in each dtype; llama.cpp computes with it the logits that PEFT computes.  ckpt makes a PEFT folder of the script's file, with
which PEFT computes the same logits.  Of rank-stabilized LoRA the script copies the alpha, so only the logits are compared.
"""
import argparse
import os
import sys

import peft
import torch
import transformers

from checks import Tally, ckpt, scratch
from llama_cpp import Reader, make, run

DTYPES = 'f32', 'f16', 'bf16', 'q8_0'
# importing what the script needs takes longer than all else
CONVERT = '''
import runpy, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + '/gguf-py']
base, adapter, out, *dtypes = sys.argv[2:]
for dtype in dtypes:
    sys.argv = ['convert_lora_to_gguf.py', '--base', base, '--outtype', dtype, '--outfile', out + dtype, adapter]
    runpy.run_path(sys.path[0] + '/convert_lora_to_gguf.py', run_name='__main__')
'''
KINDS = {
    'llama': dict(r=4, lora_alpha=12, target_modules='all-linear'),
    'qwen2': dict(r=8, lora_alpha=4, target_modules=['q_proj', 'k_proj', 'down_proj'], rank_pattern={r'layers\.1\.self_attn\.k_proj': 3}),
    'qwen3': dict(r=4, lora_alpha=0.3, target_modules='all-linear', use_rslora=True),
}
TOKENS = [1, 5, 9, 12, 3]


def logits(base, adapter=None):
    """What PEFT computes after TOKENS."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(model, adapter) if adapter else model
    with torch.no_grad():
        return model.eval()(torch.tensor([TOKENS])).logits[0, -1]


def train(base, adapter, config):
    """An adapter whose update is as large as the weights."""
    torch.manual_seed(3)
    model = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base), peft.LoraConfig(**config))
    for name, p in model.named_parameters():
        if 'lora_' in name:
            torch.nn.init.normal_(p.data, 0, 0.1)
    model.save_pretrained(adapter)
    os.remove(os.path.join(adapter, 'README.md'))


def off(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def files(a, adapter, base, theirs):
    """In each dtype tensors and keys are the script's; rows that do not fill blocks of Q8_0 stay F16."""
    ours, problems = theirs + 'ours', []
    run(sys.executable, '-c', CONVERT, a.llama, base, adapter, theirs, *DTYPES)
    for dtype in DTYPES:
        ckpt(a, 'convert', '-qf', adapter, ours, '--to', 'gguf', '--config', os.path.join(base, 'config.json'), '--dtype', dtype)
        mine, other = Reader(ours), Reader(theirs + dtype)
        problems += ['%s: %s' % (dtype, t) for t in {**mine.tensors, **other.tensors} if mine.tensors.get(t) != other.tensors.get(t)]
        problems += ['%s: key %s' % (dtype, k) for k in {**mine.keys, **other.keys} if mine.keys.get(k) != other.keys.get(k)]
    return problems


def compare(a, name, tmp):
    base, adapter, out = (os.path.join(tmp, name + end) for end in ('', '.adapter', '.back'))
    model, ours = out + '.model.gguf', out + '.gguf'
    make(name, base)
    train(base, adapter, KINDS[name])
    config = os.path.join(base, 'config.json')
    problems = [] if KINDS[name].get('use_rslora') else files(a, adapter, base, out + '.their.')
    ckpt(a, 'convert', '-q', base, model, '--dtype', 'f32')
    ckpt(a, 'convert', '-q', adapter, ours, '--config', config)
    ckpt(a, 'convert', '-q', ours, out, '--to', 'hf', '--config', config)
    ckpt(a, 'diff', '-q', adapter, out)
    plain, want = logits(base), logits(base, adapter)
    said = run(os.path.join(a.llama, 'llama_run'), 'adapt', model, ours, *map(str, TOKENS)).split()
    apart, by_llama, by_peft = off(plain, want), off(torch.tensor([float(x) for x in said]), want), off(logits(base, out), want)
    if apart < 0.01:
        problems.append('the adapter changes the logits by %.2g only' % apart)
    if by_llama > 1e-4 or by_peft > 1e-6:
        problems.append('logits are off by %.2g in llama.cpp, and by %.2g with the folder made of the file' % (by_llama, by_peft))
    return problems, 'logits in llama.cpp differ by %.2g' % by_llama


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--llama', required=True)
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('only', nargs='*')
    a = p.parse_args()
    tally = Tally(a.verbose)
    with scratch() as tmp:
        for name in a.only or KINDS:
            tally.call(name, compare, a, name, tmp)
    return tally.end('adapters in GGUF')


if __name__ == '__main__':
    sys.exit(main())
