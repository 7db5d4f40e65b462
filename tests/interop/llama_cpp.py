#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files that we make of models, beside llama.cpp's own converter and quantizer, as llama.cpp and transformers compute them.

  llama_cpp.py --bin build/bin --llama DIR [NAME...]

DIR is what llama.sh has made.  Of every model F16, Q8_0 and Q4_K_M: llama.cpp says the same tokens from our file as from its own
converter's (of BERT, the same embedding), and cuts texts into the same tokens, which are those of transformers' tokenizer.
transformers reads the F16 file back and computes the logits of the model that it was made of, or of llama.cpp's file where it
takes that for another model.  Quantized by an importance matrix of random values, in both forms, every tensor and key is that of
llama-quantize, in all mixtures.
"""
import argparse
import os
import random
import runpy
import shutil
import struct
import subprocess
import sys

os.environ['HF_HUB_OFFLINE'] = '1'
import torch
import transformers

from checks import Tally, ckpt, mine, scratch

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'golden')
# its name is that of the gguf package, which transformers imports
Reader = runpy.run_path(os.path.join(GOLDEN, 'gguf.py'))['Reader']
sys.path.remove(GOLDEN)

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
MIXTURES = 'q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q2_k_s q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m mxfp4_moe q6_k'.split()
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


def measured(tensors):
    """What llama-imatrix could have measured: of each weight, columns, sums of squares and counts of each matrix."""
    entries, draw = {}, random.Random(1)
    for name, (_, ne, _) in sorted(tensors.items()):
        if len(ne) > 1 and name.endswith('.weight') and name.startswith('blk.') and '_norm' not in name:
            counts = [float(draw.randrange(1, 4000)) for _ in range(ne[2] if len(ne) > 2 else 1)]
            # an expert that no text has reached
            counts[0] = 0.0 if len(counts) > 1 else counts[0]
            entries[name] = ne[0], [c * draw.gammavariate(0.5, 2) for c in counts for _ in range(ne[0])], counts
    return entries


def new_form(entries):
    def text(s):
        return struct.pack('<Q', len(s)) + s
    keys = [(b'general.type', struct.pack('<I', 8) + text(b'imatrix')),
            (b'imatrix.datasets', struct.pack('<IIQ', 9, 8, 2) + text(b'one.txt') + text(b'two.txt')),
            (b'imatrix.chunk_count', struct.pack('<II', 4, 7)), (b'imatrix.chunk_size', struct.pack('<II', 4, 512))]
    infos, data = b'', b''
    for name, (columns, sums, counts) in entries.items():
        for end, ne, values in (b'.in_sum2', columns, sums), (b'.counts', 1, counts):
            infos += text(name.encode() + end) + struct.pack('<IQQIQ', 2, ne, len(counts), 0, len(data))
            data += struct.pack('<%df' % len(values), *values)
            data += bytes(-len(data) % 32)
    head = b'GGUF' + struct.pack('<IQQ', 3, 2 * len(entries), len(keys)) + b''.join(text(k) + v for k, v in keys) + infos
    return head + bytes(-len(head) % 32) + data


def old_form(entries):
    out = struct.pack('<i', len(entries))
    for name, (columns, sums, counts) in entries.items():
        calls = int(max(counts) + 511) // 512
        values = [s / counts[i // columns] * calls if counts[i // columns] else float(calls) for i, s in enumerate(sums)]
        out += struct.pack('<i', len(name)) + name.encode() + struct.pack('<ii', calls, len(values))
        out += struct.pack('<%df' % len(values), *values)
    return out + struct.pack('<ii', 7, 7) + b'one.txt'


def weighed(a, name, tmp):
    """Quantized by an importance matrix: tensors and keys are those of llama-quantize, and ckpt proves its file."""
    folder, f32, theirs, ours = (os.path.join(tmp, name + end) for end in ('', '.f32.gguf', '.weighed.their.gguf', '.weighed.gguf'))
    ckpt(a, 'convert', '-qf', folder, f32, '--dtype', 'f32')
    entries, problems = measured(Reader(f32).tensors), []
    for end, form in ('.gguf', new_form), ('.dat', old_form):
        matrix = os.path.join(tmp, name + '.imatrix' + end)
        with open(matrix, 'wb') as f:
            f.write(form(entries))
        # a few types show that the older form is read; the rules for dense models and those with experts differ
        for kind in MIXTURES if end == '.gguf' and name in ('llama', 'mixtral') else ('q4_0', 'q4_k_m'):
            run(os.path.join(a.llama, 'llama_quantize'), '--imatrix', matrix, f32, theirs, kind.upper(), '1')
            ckpt(a, 'convert', '-qf', folder, ours, '--dtype', kind, '--imatrix', matrix)
            mine_, other = Reader(ours), Reader(theirs)
            problems += ['%s%s: %s' % (kind, end, t) for t in other.tensors if mine_.tensors.get(t) != other.tensors[t]]
            problems += ['%s%s: key %s' % (kind, end, k) for k in other.keys if 'imatrix' in k and mine_.keys.get(k) != other.keys[k]]
            ckpt(a, 'verify', '-q', theirs, '--made-from', folder, '--imatrix', matrix)
    return problems[:8]


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
                tally.call(name + ': importance', weighed, a, name, tmp)
    return tally.end('GGUF')


if __name__ == '__main__':
    sys.exit(main())
