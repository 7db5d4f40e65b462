#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders that convert --quantize writes with a scale for a group of columns, beside the libraries that read them.

  quantize_to.py --bin build/bin

w4a16, w8a16, nvfp4a16 and mxfp4a16 have the bits of compressed-tensors' own scales and compressors, mlx4 and mlx8 those of mlx-lm's
quantize_model, for weights of F32, F16 and BF16, among them zeros, tiny and large ones.  transformers and mlx-lm load the folders,
and compute with them what they compute with the floats that ckpt makes of them again.
"""
import contextlib
import io
import json
import os
import sys
from pathlib import Path

os.environ['HF_HUB_OFFLINE'] = '1'
import mlx.core
import mlx.utils
import mlx_lm.utils
import torch
import transformers
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from checks import Tally, arguments, ckpt, scratch

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
DTYPES = {'bf16': torch.bfloat16, 'fp16': torch.float16, 'fp32': torch.float32}
COMPRESSORS = {'w4a16': PackedQuantizationCompressor, 'w8a16': PackedQuantizationCompressor, 'nvfp4a16': NVFP4PackedCompressor,
               'mxfp4a16': MXFP4PackedCompressor}


def model(dtype, tied=False):
    """A Llama whose matrices have groups of zeros, of tiny and of large values, and values that lie between two numbers."""
    torch.manual_seed(5)
    m = LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
                                     num_key_value_heads=2, vocab_size=320, tie_word_embeddings=tied))
    w = m.model.layers[0].mlp.up_proj.weight.data
    w[0] = 0
    w[1, :128], w[2], w[3, 7] = 0, w[2] * 2.0 ** -12, -6.5
    w[4] = torch.arange(256) / 64 - 2
    m.model.layers[0].mlp.gate_proj.weight.data.zero_()
    m.model.layers[1].self_attn.q_proj.weight.data *= 2.0 ** 10
    m.model.layers[1].self_attn.k_proj.weight.data *= 2.0 ** -9
    return m.to(DTYPES[dtype])


def compressed(form, group, weight):
    """The tensors that compressed-tensors makes of a weight, rounding to the nearest."""
    scheme = preset_name_to_scheme(form, ['Linear'])
    scheme.weights.group_size = group or scheme.weights.group_size
    groups = weight.unflatten(-1, (-1, scheme.weights.group_size))
    whole = generate_gparam(weight.amin(), weight.amax()) if form == 'nvfp4a16' else None
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights, global_scale=whole)
    tensors = {'weight': weight, 'weight_scale': scale, **({} if whole is None else {'weight_global_scale': whole})}
    return COMPRESSORS[form].compress(tensors, scheme)


def differing(got, want):
    return sorted(k for k in set(got) | set(want) if k not in got or k not in want or got[k].dtype != want[k].dtype or
                  got[k].shape != want[k].shape or not torch.equal(got[k].contiguous().view(torch.uint8), want[k].contiguous().view(torch.uint8)))


def of_compressed_tensors(a, tmp, form, group, dtype):
    source, out = os.path.join(tmp, 'plain-' + dtype), os.path.join(tmp, '%s-%d-%s' % (form, group, dtype))
    if not os.path.exists(source):
        model(dtype).save_pretrained(source)
    ckpt(a, 'convert', '-q', source, out, '--to', 'hf', '--quantize', form + (':%d' % group if group else ''))
    want = {}
    for name, t in load_file(os.path.join(source, 'model.safetensors')).items():
        if t.ndim == 2 and 'embed' not in name and 'lm_head' not in name:
            want.update({name[:-len('weight')] + k: v for k, v in compressed(form, group, t).items()})
        else:
            want[name] = t
    problems = differing(load_file(os.path.join(out, 'model.safetensors')), want)[:6]
    if '4a16' in form and form != 'w4a16' and dtype != 'bf16':
        return problems   # compressed-tensors makes bf16 of them, which no other module has then
    floats = out + '.floats'
    ckpt(a, 'convert', '-q', out, floats, '--to', 'hf', '--dtype', dtype)
    x = torch.arange(24).view(2, 12)
    with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):   # of progress
        logits = [AutoModelForCausalLM.from_pretrained(f, dtype=DTYPES[dtype])(x).logits.float() for f in (out, floats)]
    off = (logits[0] - logits[1]).abs().max() / logits[1].abs().max()
    return problems + ([] if off < {'bf16': 3e-2, 'fp16': 4e-3, 'fp32': 1e-5}[dtype] else ['logits off by %.2g' % off])


def tied(a, tmp, form):
    """A head that is the embedding, which no file has, is not taken for a quantized module."""
    source, out = os.path.join(tmp, 'tied-' + form), os.path.join(tmp, 'tied.' + form)
    model('bf16', True).save_pretrained(source)
    ckpt(a, 'convert', '-q', source, out, '--to', 'hf', '--quantize', form)
    ckpt(a, 'convert', '-q', out, out + '.floats', '--to', 'hf', '--dtype', 'bf16')
    logits = []
    for folder in out, out + '.floats':
        with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
            loaded, said = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, output_loading_info=True)
            logits.append(loaded(torch.arange(24).view(2, 12)).logits.float())
        if said['missing_keys'] or said['unexpected_keys'] or said['mismatched_keys']:
            return ['%s: %s' % (os.path.basename(folder), said)]
    off = (logits[0] - logits[1]).abs().max() / logits[1].abs().max()
    return [] if off < (0.1 if form == 'fp8-channel' else 3e-2) else ['logits off by %.2g' % off]   # fp8 rounds activations, too


def of_mlx(a, tmp, bits, group, dtype):
    source, out = os.path.join(tmp, 'plain-' + dtype), Path(tmp, 'mlx%d-%d-%s' % (bits, group, dtype))
    if not os.path.exists(source):
        model(dtype).save_pretrained(source)
    ckpt(a, 'convert', '-q', source, out, '--to', 'hf', '--quantize', 'mlx%d:%d' % (bits, group))
    with contextlib.redirect_stdout(None):
        made, config = mlx_lm.utils.quantize_model(*mlx_lm.utils.load_model(Path(source)), group, bits)
    mlx.core.save_safetensors(str(out) + '.safetensors', dict(mlx.utils.tree_flatten(made.parameters())))
    problems = differing(load_file(out / 'model.safetensors'), load_file(str(out) + '.safetensors'))[:6]
    with open(out / 'config.json', encoding='utf-8') as f:
        said = json.load(f)
    problems += [] if said['quantization'] == config['quantization'] else ['config.json: %s' % said['quantization']]
    loaded, _ = mlx_lm.utils.load_model(out)
    x = mlx.core.arange(24).reshape(2, 12)
    return problems + ([] if mlx.core.array_equal(loaded(x), made(x)) else ['logits differ'])


def main():
    a = arguments()
    tally = Tally(a.verbose)
    with scratch() as tmp:
        for dtype in DTYPES:
            for form, group in ('w4a16', 0), ('w4a16', 32), ('w8a16', 0), ('nvfp4a16', 0), ('mxfp4a16', 0):
                tally.call('%s, group %s, of %s' % (form, group or 'as usual', dtype), of_compressed_tensors, a, tmp, form, group, dtype)
            for bits, group in (4, 64), (4, 32), (8, 64):
                tally.call('MLX, %d bits, group %d, of %s' % (bits, group, dtype), of_mlx, a, tmp, bits, group, dtype)
        for form in 'w4a16', 'nvfp4a16', 'mxfp4a16', 'fp8-channel':
            tally.call('%s, with a tied head' % form, tied, a, tmp, form)
    return tally.end('quantized by us')


if __name__ == '__main__':
    sys.exit(main())
