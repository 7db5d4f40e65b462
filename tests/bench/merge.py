#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure merging: a LoRA adapter into its base beside peft, three models into one beside mergekit.

  merge.py --bin build/bin [--repeat 3] [--work DIR]

A Llama of 374M parameters in bf16 (0.75 GB), an adapter of rank 16 on every linear layer; `cp -r` of the model with `sync` of
the copy takes turns with them, a first round does not count.  Needs torch, transformers and peft; MERGEKIT names the folder of
mergekit-yaml, which wants versions of its own.
"""
import argparse
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench import clear, measure, once, row

MAKE = '''
import sys, torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=24,
    num_attention_heads=16, num_key_value_heads=16, tie_word_embeddings=False)).to(torch.bfloat16)
for name in 'abc':
    model.save_pretrained(sys.argv[1] + '/' + name)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.001)
lora = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules='all-linear'))
for name, p in lora.named_parameters():
    if 'lora_B' in name:
        torch.nn.init.normal_(p, std=0.02)
lora.save_pretrained(sys.argv[1] + '/adapter')
'''
PEFT = '''
import sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1] + '/a', dtype=torch.bfloat16)
PeftModel.from_pretrained(model, sys.argv[1] + '/adapter').merge_and_unload().save_pretrained(sys.argv[1] + '/peft')
'''
YAML = '''merge_method: linear
models: [{model: %s/a, parameters: {weight: 1}}, {model: %s/b, parameters: {weight: 2}}, {model: %s/c, parameters: {weight: 1}}]
dtype: bfloat16
'''


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--repeat', type=int, default=3)
    p.add_argument('--work')
    a = p.parse_args()
    work = a.work or tempfile.mkdtemp()
    ckpt, at = os.path.join(a.bin, 'ckpt'), lambda name: os.path.join(work, name)
    once([sys.executable, '-c', MAKE, work])
    with open(at('linear.yaml'), 'w') as f:
        f.write(YAML % (work, work, work))
    mergekit = shutil.which(os.path.join(os.environ.get('MERGEKIT', ''), 'mergekit-yaml'))
    jobs = [('ckpt convert --adapter', [ckpt, 'convert', '-q', at('a'), at('lora'), '--to', 'hf', '--adapter', at('adapter')], 'lora'),
            ('peft, merge_and_unload and save_pretrained', [sys.executable, '-c', PEFT, work], 'peft'),
            ('ckpt merge, linear of three', [ckpt, 'merge', '-q', '-o', at('linear'), at('a'), at('b') + ':2', at('c')], 'linear')]
    if mergekit:
        jobs.append(('mergekit, linear of three', [mergekit, at('linear.yaml'), at('mergekit'), '--quiet'], 'mergekit'))
    jobs.append(('cp -r of one model, sync', ['sh', '-c', 'cp -r "$1" "$2" && find "$2" -type f -exec sync {} +', 'sh', at('a'), at('cp')], 'cp'))
    figures = measure([(cmd, clear(at(out))) for _, cmd, out in jobs], a.repeat)
    print('\n### Merging: a Llama of 374M parameters, bf16, median of %d\n' % a.repeat)
    row(['what', 's', 'peak MiB', 'beside cp'])
    row(['---'] * 4)
    for (name, _, _), (seconds, mem) in zip(jobs, figures):
        row([name, '%.2f' % seconds, mem, '%.2f' % (seconds / figures[-1][0])])
    if not a.work:
        shutil.rmtree(work)


if __name__ == '__main__':
    main()
