#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the way to inference: a Hugging Face folder to GGUF, a ZeRO-3 run to Q4_K_M, beside llama.cpp's and DeepSpeed's programs.

  gguf.py --bin build/bin [--repeat 2] [--only hf,zero,big] [--work DIR]

LLAMA_CPP names llama.cpp's sources (convert_hf_to_gguf.py), LLAMA_LIB the folder of libllama.so; without them ours is measured
alone.  A Llama of 374M parameters in bf16 (0.75 GB) and one of 1.16 billion; runs are of ZeRO-3 with 4 ranks.  The programs take
turns with `cp` and `sync` of what ours wrote, a first round does not count.  Needs torch and transformers, deepspeed for the script.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench import SCRIPT, measure, once, row, tree_bytes

TOKENIZER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures', 'gguf_mixtral', 'hf')
MAKE = '''
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
width, inner, layers = (int(x) for x in sys.argv[2:5])
LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=16,
    num_key_value_heads=16, tie_word_embeddings=False)).to(torch.bfloat16).save_pretrained(sys.argv[1])
'''
# The parameters of llama.h; what follows the two first members stays at its default.
QUANTIZE = '''
import ctypes, os, sys
class Params(ctypes.Structure):
    _fields_ = [('threads', ctypes.c_int32), ('ftype', ctypes.c_int), ('rest', ctypes.c_ubyte * 96)]
lib = ctypes.CDLL(sys.argv[1] + '/libllama.so')
lib.llama_model_quantize_default_params.restype = Params
params = lib.llama_model_quantize_default_params()
params.threads, params.ftype = 2, int(sys.argv[4])
log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *x: None)
lib.llama_log_set(log, None)
sys.exit(lib.llama_model_quantize(sys.argv[2].encode(), sys.argv[3].encode(), ctypes.byref(params)))
'''
Q8_0, Q4_K_M = 7, 15
MODELS = {'hf': ('1024', '2816', '24'), 'zero': ('1024', '2816', '24'), 'big': ('2048', '5632', '20')}


def fresh(path):
    """A file or a folder is removed, and what the disk still has to do is waited for."""
    return lambda: subprocess.run(['sh', '-c', 'rm -rf "$1" && sync -f "${1%/*}"', 'sh', path], check=True)


def copy(source, out):
    """`cp` and `sync` of files that are there."""
    return ['sh', '-c', 'cp -r "$1" "$2" && find "$2" -type f -exec sync {} +', 'sh', source, out]


class Peers:
    """The commands of llama.cpp, or None where they are not at hand."""

    def __init__(self):
        sources, lib = os.environ.get('LLAMA_CPP'), os.environ.get('LLAMA_LIB')
        self.converter = sources and os.path.join(sources, 'convert_hf_to_gguf.py')
        self.lib = lib

    def convert(self, folder, out, dtype):
        return [sys.executable, self.converter, folder, '--outfile', out, '--outtype', dtype]

    def quantize(self, source, out, ftype):
        return [sys.executable, '-c', QUANTIZE, self.lib, source, out, str(ftype)]


def make(folder, sizes):
    once([sys.executable, '-c', MAKE, folder, *sizes])
    for name in os.listdir(TOKENIZER):
        if name.startswith('tokenizer'):
            shutil.copy(os.path.join(TOKENIZER, name), folder)
            os.chmod(os.path.join(folder, name), 0o644)


def table(title, jobs, repeat):
    """Each job: name, command, what it writes, which is removed before each turn."""
    figures = measure([(cmd, fresh(out)) for _, cmd, out in jobs], repeat)
    print('\n### %s, median of %d\n' % (title, repeat))
    row(['what', 's', 'peak MiB'])
    row(['---'] * 3)
    for (name, _, _), (seconds, mem) in zip(jobs, figures):
        row([name, '%.2f' % seconds, mem])


def chain(*commands):
    quoted = [' '.join("'" + w.replace("'", "'\\''") + "'" for w in c) for c in commands]
    return ['sh', '-ec', '\n'.join(quoted)]


def hf(a, work, peers):
    at = lambda name: os.path.join(work, name)
    ckpt = os.path.join(a.bin, 'ckpt')
    make(at('hf'), MODELS['hf'])
    jobs = []
    for dtype in 'bf16', 'q8_0', 'q4_k_m':
        ours = [ckpt, 'convert', '-q', at('hf'), at(dtype + '.gguf'), '--to', 'gguf', '--dtype', dtype]
        once(ours)
        jobs.append(('ckpt convert --dtype ' + dtype, ours, at(dtype + '.gguf')))
        shutil.copy(at(dtype + '.gguf'), at(dtype + '.kept'))
        jobs.append(('cp of the same, sync', copy(at(dtype + '.kept'), at('copy')), at('copy')))
        if peers.converter and dtype != 'q4_k_m':
            jobs.append(('convert_hf_to_gguf.py --outtype ' + dtype, peers.convert(at('hf'), at('peer.gguf'), dtype), at('peer.gguf')))
        if peers.lib and dtype != 'bf16':
            jobs.append(('llama_model_quantize, two threads, from bf16', peers.quantize(at('bf16.kept'), at('peer.gguf'), {'q8_0': Q8_0, 'q4_k_m': Q4_K_M}[dtype]), at('peer.gguf')))
    table('Hugging Face to GGUF: a Llama of 374M parameters, bf16', jobs, a.repeat)


def zero(a, work, peers, which):
    at = lambda name: os.path.join(work, name)
    ckpt = os.path.join(a.bin, 'ckpt')
    make(at('base'), MODELS[which])
    once([ckpt, 'reshard', '-q', at('base'), at('zero'), '--world', '4', '--stage', '3', '--dtype', 'bf16', '--order', 'stored'])
    params = tree_bytes(at('base')) / 2e9
    for name in os.listdir(at('base')):
        if name.endswith('.safetensors'):
            os.remove(os.path.join(at('base'), name))
    ours = [ckpt, 'convert', '-q', at('zero'), at('q4.gguf'), '--to', 'gguf', '--dtype', 'q4_k_m', '--config', at('base')]
    jobs = [('ckpt convert --to gguf --dtype q4_k_m', ours, at('q4.gguf'))]
    if peers.converter and peers.lib:
        script = [sys.executable, '-c', SCRIPT.replace('safe_serialization=False', 'safe_serialization=True'), at('zero'), at('peer')]
        jobs.append(('zero_to_fp32.py, convert_hf_to_gguf.py, llama_model_quantize', chain(
            ['mkdir', at('peer')], script, ['sh', '-c', 'cp "$1"/* "$2"', 'sh', at('base'), at('peer')],
            peers.convert(at('peer'), at('peer/bf16.gguf'), 'bf16'), peers.quantize(at('peer/bf16.gguf'), at('peer/q4.gguf'), Q4_K_M)), at('peer')))
    table('A ZeRO-3 run of 4 ranks to Q4_K_M: a Llama of %.2f billion' % params, jobs, a.repeat)


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--repeat', type=int, default=2)
    p.add_argument('--only', default='hf,zero,big')
    p.add_argument('--work')
    a = p.parse_args()
    os.environ['DS_ACCELERATOR'] = 'cpu'
    for which in a.only.split(','):
        work = tempfile.mkdtemp(dir=a.work)
        try:
            hf(a, work, Peers()) if which == 'hf' else zero(a, work, Peers(), which)
        finally:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    main()
