#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantized folders that convert --dtype makes floats of, beside transformers and compressed-tensors.

  quantized.py --bin build/bin

Every weight has the bits that the libraries' own dequantizing gives, and whole models the same logits: fp8 in blocks, and gpt-oss
with MXFP4.  GPTQ and AWQ, whose libraries need a GPU, have their published formulas here, in torch.
"""
import contextlib
import json
import os
import sys
import types
from pathlib import Path

os.environ['HF_HUB_OFFLINE'] = '1'
import bitsandbytes
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
import mlx.core
import mlx.utils
import mlx_lm.utils
import numpy
import torch
import transformers
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, BitsAndBytesConfig, FineGrainedFP8Config, GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM,
                          MixtralConfig, MixtralForCausalLM,
                          Mxfp4Config)
from transformers.integrations.bitsandbytes import dequantize_bnb_weight
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from checks import Tally, arguments, ckpt, scratch

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
DTYPES = {'bf16': torch.bfloat16, 'fp32': torch.float32, 'fp16': torch.float16}
METHOD = {'quant_method': 'compressed-tensors', 'format': 'float-quantized'}


def fp8(*shape):
    return (torch.randn(*shape) * 60).to(torch.float8_e4m3fn)


def write(folder, tensors, config):
    os.makedirs(folder)
    save_file({k: t.contiguous() for k, t in tensors.items()}, os.path.join(folder, 'model.safetensors'), metadata={'format': 'pt'})
    with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as f:
        json.dump(config, f, indent=2)
    return folder


def compare(a, folder, wanted, dtype='bf16'):
    """What our conversion has otherwise than wanted; its config.json says nothing of quantization."""
    out = '%s.%s' % (folder, dtype)
    ckpt(a, 'convert', '-q', folder, out, '--to', 'hf', '--dtype', dtype)
    got, problems = load_file(os.path.join(out, 'model.safetensors')), []
    if set(got) != set(wanted):
        problems.append('names differ: %s' % sorted(set(got) ^ set(wanted)))
    for name in set(got) & set(wanted):
        want = wanted[name].to(DTYPES[dtype]).contiguous()
        if got[name].shape != want.shape or not torch.equal(got[name].view(torch.uint8), want.view(torch.uint8)):
            problems.append(name)
    with open(os.path.join(out, 'config.json'), encoding='utf-8') as f:
        config = json.load(f)
    if 'quantization_config' in json.dumps(config) or config['keeps'] != {'this': ['}', 1]}:
        problems.append('config.json is %s' % config)
    return problems


def blocks(a, tmp, dtype):
    """Scales of blocks, as F32 and as exponents, of matrices and of stacked ones."""
    of, tensors = Fp8Dequantize(None)._dequantize_one, {}
    exponents = torch.randint(110, 135, (2, 1), dtype=torch.uint8)
    for name, weight, scale in (('a', fp8(256, 384), torch.rand(2, 3) * 0.01), ('b', fp8(256, 128), exponents),
                                ('c', fp8(256, 128), exponents.clone().view(torch.float8_e8m0fnu)), ('d', fp8(3, 128, 256), torch.rand(3, 1, 2)),
                                ('e', fp8(128, 128), torch.tensor([[0.01]])), ('f', fp8(256, 128).to(torch.float8_e5m2), torch.rand(2, 1))):
        tensors[name + '.weight'], tensors[name + '.weight_scale_inv'] = weight, scale
    wanted = {name: of(t, tensors[name + '_scale_inv'], DTYPES[dtype]) for name, t in tensors.items() if not name.endswith('inv')}
    # the last blocks of rows and columns are smaller, as DeepSeek's own kernel has it; transformers refuses such
    w, s = fp8(200, 300), torch.rand(2, 3)
    tensors['g.weight'], tensors['g.weight_scale_inv'] = w, s
    wanted['g.weight'] = w.float() * s.repeat_interleave(128, 0)[:200].repeat_interleave(128, 1)[:, :300]
    tensors['norm.weight'] = wanted['norm.weight'] = torch.randn(7).bfloat16()
    tensors['a.activation_scale'] = torch.tensor(1.)
    config = {'dtype': 'bfloat16', 'keeps': {'this': ['}', 1]}, 'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [128, 128]}}
    return compare(a, write(os.path.join(tmp, 'blocks' + dtype), tensors, config), wanted, dtype)


def channels(a, tmp, dtype):
    """compressed-tensors: scales of several dtypes and shapes."""
    kinds = {'tensor': ((), {}), 'channel': ((64, 1), {}), 'group': ((64, 4), {'group_size': 32}), 'block': ((2, 4), {'block_structure': [32, 32]})}
    tensors, wanted = {}, {}
    for scale_dtype in torch.bfloat16, torch.float32, torch.float16:
        for kind, (shape, more) in kinds.items():
            name, weight = '%s.%s.weight' % (kind, scale_dtype), fp8(64, 128)
            scale = (torch.rand(shape) * 0.01 + 1e-3).to(scale_dtype)
            args = QuantizationArgs(num_bits=8, type='float', strategy=kind, **more)
            tensors[name], tensors[name + '_scale'] = weight, scale
            wanted[name] = dequantize(weight, scale.reshape(1) if kind == 'tensor' else scale, args=args)
    weight, scale = torch.randint(-127, 128, (64, 96)).to(torch.int8), (torch.rand(64, 1) * 0.01).bfloat16()
    tensors['int8.weight'], tensors['int8.weight_scale'] = weight, scale
    wanted['int8.weight'] = dequantize(weight, scale, args=QuantizationArgs(num_bits=8, type='int', strategy='channel'))
    groups = {kind: {'weights': dict({'num_bits': 8, 'type': 'float', 'strategy': kind, 'symmetric': True}, **more)} for kind, (_, more) in kinds.items()}
    groups['int8'] = {'format': 'int-quantized', 'weights': {'num_bits': 8, 'type': 'int', 'strategy': 'channel', 'symmetric': True}}
    method = dict(METHOD, config_groups=groups)
    config = {'quantization_config': method, 'dtype': 'bfloat16', 'keeps': {'this': ['}', 1]}, 'text_config': {'quantization_config': method}}
    return compare(a, write(os.path.join(tmp, 'channels' + dtype), tensors, config), wanted, dtype)


def experts(a, tmp, dtype):
    """MXFP4: every nibble, every exponent but those that leave BF16's range, and the largest."""
    packed, scales = torch.randint(0, 256, (3, 40, 4, 16), dtype=torch.uint8), torch.randint(1, 256, (3, 40, 4), dtype=torch.uint8)
    name = 'x.experts.gate_up_proj'
    tensors = {name + '_blocks': packed, name + '_scales': scales}
    config = {'quantization_config': {'quant_method': 'mxfp4'}, 'dtype': 'bfloat16', 'keeps': {'this': ['}', 1]}}
    return compare(a, write(os.path.join(tmp, 'experts' + dtype), tensors, config),
                   {name: convert_moe_packed_tensors(packed, scales, dtype=DTYPES[dtype])}, dtype)


def words(*shape):
    return torch.randint(-2**31, 2**31, shape, dtype=torch.int64).to(torch.int32)


def numbers(packed, bits):
    """The numbers that the rows of packed words hold, the first in the lowest bits."""
    each = numpy.unpackbits(packed.contiguous().numpy().view(numpy.uint8), axis=1, bitorder='little')
    return torch.from_numpy((each.reshape(len(packed), -1, bits) << numpy.arange(bits, dtype=numpy.uint8)).sum(2).astype(numpy.int32))


def gptq_weight(tensors, name, bits, v2):
    """GPTQModel's TorchLinear.dequantize_weight, transposed; format gptq stores zeros less one, in each word."""
    words, zeros, scales = (tensors['%s.%s' % (name, end)] for end in ('qweight', 'qzeros', 'scales'))
    if not v2 and bits != 3:
        zeros = zeros + sum(1 << k for k in range(0, 31, bits))
    zeros, q = numbers(zeros, bits), numbers(words.T, bits)
    if not v2 and bits == 3:
        zeros = zeros + 1 & 7
    of = tensors[name + '.g_idx'].long()
    return scales[of].T * (q - zeros[of].T)


def gptq(a, tmp, dtype):
    """GPTQ of all bits: zeros of both formats, columns in any order, groups of all sizes, modules with settings of their own."""
    problems = []
    for bits, v2, rows, cols, group in ((4, False, 64, 96, 32), (4, True, 2080, 160, 32), (2, False, 32, 64, -1), (8, True, 36, 128, 16),
                                        (8, False, 8, 40, 16), (3, False, 64, 96, 32), (3, True, 32, 64, -1),
                                        (4, False, 1600, 2048, 64), (4, True, 2112, 2048, 128)):
        groups = 1 if group < 0 else -(-cols // group)
        size = cols if group < 0 else group
        tensors, wanted = {}, {}
        for name, of, scale in (('a', torch.arange(cols) // size, torch.float16), ('b', torch.randperm(cols) // size, torch.bfloat16),
                                ('c', torch.arange(cols) // size, torch.float32)):
            tensors.update({name + '.qweight': words(cols * bits // 32, rows), name + '.qzeros': words(groups, rows * bits // 32),
                            name + '.scales': (torch.rand(groups, rows) * 0.02 + 1e-4).to(scale), name + '.g_idx': of.to(torch.int32)})
            wanted[name + '.weight'] = gptq_weight(tensors, name, bits, v2)
        tensors['a.bias'] = wanted['a.bias'] = torch.randn(rows).half()
        del tensors['c.g_idx']
        q = {'quant_method': 'gptq', 'bits': bits, 'group_size': group, 'desc_act': False, 'sym': False, 'checkpoint_format': 'gptq_v2' if v2 else 'gptq',
             'meta': {'quantizer': ['gptqmodel:5']}}
        if bits == 2:
            q.update(bits=4, group_size=128, dynamic={'+:.*': {'bits': 2, 'group_size': -1}})
        config = {'quantization_config': q, 'dtype': 'bfloat16', 'keeps': {'this': ['}', 1]}}
        folder = write(os.path.join(tmp, 'gptq%d%d%s%d' % (bits, v2, dtype, rows)), tensors, config)
        problems += ['%d bits, v2 %s: %s' % (bits, v2, p) for p in compare(a, folder, wanted, dtype)]
    return problems


def gptq_inputs(a, tmp, dtype):
    """Weights that modules store as [in, out], columns in any order: GPTQModel's embeddings, whose last words may be filled in part, and GPT-2's Conv1D."""
    problems = []
    for bits, v2, tokens, width, group in ((4, True, 17, 19, 32), (4, False, 1003, 64, 128), (8, True, 63, 32, -1), (2, False, 63, 48, 16),
                                           (3, False, 96, 64, 32), (3, True, 64, 32, -1)):
        groups, size = (1, tokens) if group < 0 else (-(-tokens // group), group)
        for kind, name, order in (('llama', 'model.embed_tokens', torch.arange(tokens)), ('llama', 'model.tokens', torch.randperm(tokens)),
                                  ('gpt2', 'h.0.mlp.c_fc', torch.randperm(tokens)), ('gpt2', 'h.0.attn.c_proj', torch.arange(tokens)),
                                  ('gpt2', 'lm_head', torch.randperm(tokens))):
            if kind == 'gpt2' and tokens * bits % 32:
                continue
            of, scales = (order // size).to(torch.int32), (torch.rand(groups, width) * 0.02 + 1e-4).half()
            tensors = {name + '.qweight': words(-(-tokens * bits // 32), width), name + '.qzeros': words(groups, -(-width * bits // 32)),
                       name + '.scales': scales, name + '.g_idx': of}
            zeros = tensors[name + '.qzeros'] + (0 if v2 or bits == 3 else sum(1 << k for k in range(0, 31, bits)))
            zeros = numbers(zeros, bits)[:, :width]
            zeros = zeros + 1 & 7 if not v2 and bits == 3 else zeros
            q = numbers(tensors[name + '.qweight'].T, bits)[:, :tokens].T
            wanted = {name + '.weight': scales[of.long()] * (q - zeros[of.long()])}
            if name == 'lm_head':
                wanted = {name + '.weight': wanted[name + '.weight'].T}
            config = {'quantization_config': {'quant_method': 'gptq', 'bits': bits, 'group_size': group, 'desc_act': True, 'sym': False,
                                              'checkpoint_format': 'gptq_v2' if v2 else 'gptq'},
                      'dtype': 'bfloat16', 'keeps': {'this': ['}', 1]}, 'model_type': kind, 'vocab_size': tokens, 'hidden_size': width}
            if kind == 'gpt2': # a model lacks none of these
                config['vocab_size'] = 50257
                wanted.update({n: torch.ones(2) for n in ('wte.weight', 'wpe.weight', 'ln_f.weight', 'ln_f.bias')})
                tensors.update({n: wanted[n] for n in list(wanted)[1:]})
            folder = write(os.path.join(tmp, '%s-%d%d%s%d' % (name, bits, v2, dtype, tokens)), tensors, config)
            problems += ['%s, %d bits, v2 %s: %s' % (name, bits, v2, p) for p in compare(a, folder, wanted, dtype)]
    return problems


def awq(a, tmp, dtype):
    """AWQ's gemm, by AutoAWQ's dequantize_gemm."""
    tensors, wanted = {}, {}
    for name, rows, cols in ('a', 64, 256), ('b', 2056, 128), ('c', 1024, 4096):
        packed, zeros, scales = words(cols, rows // 8), words(cols // 64, rows // 8), (torch.rand(cols // 64, rows) * 0.02).half()
        order = torch.arange(rows).reshape(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(-1)
        tensors.update({name + '.qweight': packed, name + '.qzeros': zeros, name + '.scales': scales})
        q, z = numbers(packed, 4)[:, order], numbers(zeros, 4)[:, order]
        wanted[name + '.weight'] = ((q - z.repeat_interleave(64, 0)) * scales.repeat_interleave(64, 0)).T
    config = {'quantization_config': {'quant_method': 'awq', 'bits': 4, 'group_size': 64, 'version': 'gemm', 'zero_point': True},
              'dtype': 'float16', 'keeps': {'this': ['}', 1]}}
    return compare(a, write(os.path.join(tmp, 'awq' + dtype), tensors, config), wanted, dtype)


def gemv(a, tmp, dtype):
    """AWQ's gemv: words of rows in order, with zeros and scales that are padded to whole words (AutoAWQ's WQLinear_GEMV)."""
    problems = []
    for size, rows, cols in (64, 64, 256), (128, 40, 1280), (32, 2080, 128), (-1, 16, 256):
        group = cols if size < 0 else size
        q, z = torch.randint(0, 16, (rows, cols)), torch.randint(0, 16, (rows, cols // group))
        unit = 8 * {32: 4, 64: 2}.get(group, 1)
        more = -(cols // group) % unit
        scales = (torch.rand(rows, cols // group) * 0.02).half()
        pad = torch.nn.functional.pad
        tensors = {'a.qweight': (q.view(rows, -1, 8) << torch.arange(0, 32, 4)).sum(2).to(torch.int32),
                   'a.qzeros': (pad(z, (0, more)).view(rows, -1, 8) << torch.arange(0, 32, 4)).sum(2).to(torch.int32), 'a.scales': pad(scales, (0, more))}
        wanted = {'a.weight': (q - z.repeat_interleave(group, 1)) * scales.repeat_interleave(group, 1)}
        config = {'quantization_config': {'quant_method': 'awq', 'bits': 4, 'group_size': size, 'version': 'gemv', 'zero_point': True},
                  'dtype': 'float16', 'keeps': {'this': ['}', 1]}}
        problems += compare(a, write(os.path.join(tmp, 'gemv%d%s' % (group, dtype)), tensors, config), wanted, dtype)
    return problems


def packed(a, tmp, dtype):
    """compressed-tensors' pack-quantized: its own compressor, and its own floats."""
    tensors, wanted, groups = {}, {}, {}
    for n, (bits, strategy, even, more) in enumerate((
            (4, 'group', True, {'group_size': 32}), (4, 'group', False, {'group_size': 32}), (4, 'channel', True, {}), (8, 'channel', False, {}),
            (8, 'group', True, {'group_size': 32}), (4, 'group', True, {'group_size': 16}))):
        args = QuantizationArgs(num_bits=bits, type='int', strategy=strategy, symmetric=even, **more)
        scheme, rows, cols = QuantizationScheme(targets=['Linear'], weights=args), 50, 96
        groups['group_%d' % n] = {'weights': dict({'num_bits': bits, 'type': 'int', 'strategy': strategy, 'symmetric': even}, **more)}
        for scale_dtype in torch.bfloat16, torch.float16, torch.float32:
            name, grid = 'x%d.%s.weight' % (n, scale_dtype), (rows, cols // more['group_size'] if more else 1)
            state = {'weight': torch.randn(rows, cols).to(scale_dtype), 'weight_scale': (torch.rand(grid) * 0.3 + 0.01).to(scale_dtype)}
            if not even:
                state['weight_zero_point'] = torch.randint(-2**(bits - 1), 2**(bits - 1), grid).to(torch.int8)
            state = PackedQuantizationCompressor.compress(state, scheme)
            wanted[name] = PackedQuantizationCompressor.decompress(dict(state), scheme)['weight']
            if n == 5:
                # releases with actorder=group stored the group of each column
                of = torch.randperm(cols) // 16
                q = numbers(state['weight_packed'], bits) - 2**(bits - 1)
                state['weight_g_idx'], wanted[name] = of.to(torch.int32), q.to(scale_dtype) * state['weight_scale'][:, of]
            elif n == 0:
                state['weight_g_idx'] = torch.full((cols,), -1, dtype=torch.int32)
            tensors.update({name + key[len('weight'):]: t for key, t in state.items()})
    config = {'quantization_config': {'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'config_groups': groups},
              'dtype': 'bfloat16', 'keeps': {'this': ['}', 1]}}
    return compare(a, write(os.path.join(tmp, 'packed' + dtype), tensors, config), wanted, dtype)


def settings(a, tmp, dtype):
    """compressed-tensors: what its compressors write of all bits, strategies and formats, with and without zero points."""
    plain = [(f, 'int', bits, s, even) for f in ('int-quantized', 'naive-quantized') for bits in (4, 8) for s in ('tensor', 'channel', 'group')
             for even in (True, False)]
    packs = [('pack-quantized', 'int', bits, s, even) for bits in range(1, 9) for s in ('tensor', 'channel', 'group') for even in (True, False)]
    problems, rows, cols = [], 48, 96
    for form, kind, bits, strategy, even in plain + packs + [('int-quantized', 'int', 8, 'block', True), ('mxfp8-quantized', 'float', 8, 'group', True)]:
        more = {'group': {'group_size': 32}, 'block': {'block_structure': [16, 32]}}.get(strategy, {})
        grid = {'tensor': (1,), 'channel': (rows, 1), 'group': (rows, cols // 32), 'block': (3, 3)}[strategy]
        scheme = QuantizationScheme(targets=['Linear'], weights=QuantizationArgs(num_bits=bits, type=kind, strategy=strategy, symmetric=even, **more))
        of, tensors, wanted = BaseCompressor.get_value_from_registry(form), {}, {}
        for scale_dtype in torch.bfloat16, torch.float16, torch.float32:
            name, scale = 'x.%s.' % scale_dtype, (torch.rand(grid) * 0.3 + 0.02).to(scale_dtype)
            state = {'weight': torch.randn(rows, cols).to(scale_dtype), 'weight_scale': scale}
            if not even:
                state['weight_zero_point'] = torch.randint(-2**(bits - 1), 2**(bits - 1), grid).to(torch.int8)
            state = of.compress(state, scheme)
            if form == 'mxfp8-quantized':
                state['weight_scale'] = torch.arange(rows * cols // 32).mul(2).to(torch.uint8).view(grid)
            wanted[name + 'weight'] = of.decompress(dict(state), scheme)['weight']
            tensors.update({name + key: t for key, t in state.items()})
        args = dict({'num_bits': bits, 'type': kind, 'strategy': strategy, 'symmetric': even}, **more)
        config = {'quantization_config': {'quant_method': 'compressed-tensors', 'format': form, 'config_groups': {'group_0': {'weights': args}}},
                  'dtype': 'bfloat16', 'keeps': {'this': ['}', 1]}}
        name = '%s-%s%d-%s-%d' % (form, kind, bits, strategy, even)
        problems += ['%s: %s' % (name, p) for p in compare(a, write(os.path.join(tmp, name + dtype), tensors, config), wanted, dtype)]
    return problems


def floats(q, state):
    """bitsandbytes' general code for four bits.  Its kernel for AVX-512 takes the factors of other blocks if rows are no whole number of
    blocks (0.50.2), and kernels differ in the sign of zero for FP4's code 8, which is -0."""
    absmax, shape = state.absmax, state.shape
    if state.nested:
        absmax = (bitsandbytes.functional.dequantize_blockwise(absmax, state.state2) + state.offset).float()
    out = _dequantize_4bit_compute(q.reshape(-1), absmax, state.code, state.blocksize, shape, state.dtype)
    if state.quant_type == 'fp4':
        code = torch.stack([q.reshape(-1) >> 4, q.reshape(-1) & 15], 1).reshape(-1)[:out.numel()]
        out.view(-1)[code == 8] = -0.0
    return out


def codes(a, tmp, dtype):
    """bitsandbytes' four bits: both types, with and without double quantization, all dtypes, blocks that are cut, other storage."""
    tensors, wanted = {}, {}
    for kind in 'nf4', 'fp4':
        for twice in False, True:
            for own in torch.bfloat16, torch.float16, torch.float32:
                for shape, block in ((64, 96), 64), ((33, 20), 64), ((300, 128), 128):
                    name = '%s%d.%s.%d.weight' % (kind, twice, own, block + shape[0])
                    q, state = bitsandbytes.functional.quantize_4bit(torch.randn(shape).to(own), blocksize=block, quant_type=kind, compress_statistics=twice)
                    tensors[name] = q.reshape(-1).view(torch.bfloat16).reshape(-1, 1) if shape[0] == 64 and own == torch.bfloat16 else q
                    tensors.update({'%s.%s' % (name, key): t for key, t in state.as_dict(packed=True).items()})
                    wanted[name] = floats(q, state)
    for storage in torch.int8, torch.float16, torch.float32:
        for block in 32, 1024, 4096:
            name = 'stored.%s.%d.weight' % (storage, block)
            q, state = bitsandbytes.functional.quantize_4bit(torch.randn(64, 128).bfloat16(), blocksize=block, quant_type='nf4', compress_statistics=block > 32,
                                                             quant_storage=storage)
            tensors[name], wanted[name] = q, floats(q.view(torch.uint8), state)
            tensors.update({'%s.%s' % (name, key): t for key, t in state.as_dict(packed=True).items()})
    tensors['lm_head.weight'] = wanted['lm_head.weight'] = torch.randn(8, 4).bfloat16()
    config = {'quantization_config': {'quant_method': 'bitsandbytes', 'load_in_4bit': True, 'load_in_8bit': False}, 'dtype': 'bfloat16',
              'keeps': {'this': ['}', 1]}}
    return compare(a, write(os.path.join(tmp, 'codes' + dtype), tensors, config), wanted, dtype)


def eight(a, tmp, dtype):
    """bitsandbytes' int8."""
    weight = torch.randint(-127, 128, (50, 36)).to(torch.int8)
    tensors = {'a.weight': weight, 'a.SCB': torch.rand(50) * 3, 'a.weight_format': torch.tensor(0, dtype=torch.uint8), 'a.bias': torch.randn(50).half()}
    wanted = {'a.weight': bitsandbytes.functional.int8_vectorwise_dequant(weight, tensors['a.SCB']), 'a.bias': tensors['a.bias']}
    config = {'quantization_config': {'quant_method': 'bitsandbytes', 'load_in_4bit': False, 'load_in_8bit': True}, 'dtype': 'float16',
              'keeps': {'this': ['}', 1]}}
    return compare(a, write(os.path.join(tmp, 'eight' + dtype), tensors, config), wanted, dtype)


def fp4(a, tmp, dtype):
    """NVFP4 and MXFP4 of compressed-tensors, by its own code."""
    tensors, wanted, groups, rows, cols = {}, {}, {}, 40, 128
    for kind, of, size, strategy in ('nvfp4', NVFP4PackedCompressor, 16, 'tensor_group'), ('mxfp4', MXFP4PackedCompressor, 32, 'group'):
        scheme = QuantizationScheme(targets=['Linear'], weights=QuantizationArgs(num_bits=4, type='float', strategy=strategy, group_size=size))
        state = {'weight_packed': torch.randint(0, 256, (rows, cols // 2), dtype=torch.uint8)}
        if kind == 'nvfp4':
            state['weight_scale'], state['weight_global_scale'] = (torch.rand(rows, cols // size) * 400).to(torch.float8_e4m3fn), torch.tensor([1733.3])
        else:
            state['weight_scale'] = torch.randint(1, 254, (rows, cols // size), dtype=torch.uint8)
        tensors.update({'%s.%s' % (kind, key): t for key, t in state.items()})
        wanted[kind + '.weight'] = of.decompress(state, scheme)['weight']
        groups[kind] = {'format': kind + '-pack-quantized', 'weights': {'num_bits': 4, 'type': 'float', 'strategy': strategy, 'group_size': size,
                                                                         'symmetric': True}}
    tensors['nvfp4.input_global_scale'] = torch.tensor([3.])
    config = {'quantization_config': {'quant_method': 'compressed-tensors', 'format': 'mixed-precision', 'config_groups': groups}, 'dtype': 'bfloat16',
              'keeps': {'this': ['}', 1]}}
    return compare(a, write(os.path.join(tmp, 'fp4' + dtype), tensors, config), wanted, dtype)


def modelopt(a, tmp, dtype):
    """ModelOpt's NVFP4, by NVFP4QTensor.dequantize."""
    packed, scale, twice = torch.randint(0, 256, (40, 64), dtype=torch.uint8), (torch.rand(40, 8) * 400).to(torch.float8_e4m3fn), torch.tensor(3.1e-4)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    q = values[torch.stack((packed & 15, packed >> 4), 2).reshape(40, 128).long()]
    wanted = {'a.weight': (q.view(40, 8, 16) * (scale.float() * twice).unsqueeze(-1)).reshape(40, 128)}
    tensors = {'a.weight': packed, 'a.weight_scale': scale, 'a.weight_scale_2': twice, 'a.input_scale': torch.tensor(2.)}
    config = {'quantization_config': {'quant_method': 'modelopt', 'quant_algo': 'NVFP4', 'config_groups': {'group_0': {
        'weights': {'num_bits': 4, 'type': 'float', 'group_size': 16, 'dynamic': False}}}}, 'dtype': 'bfloat16', 'keeps': {'this': ['}', 1]}}
    return compare(a, write(os.path.join(tmp, 'modelopt' + dtype), tensors, config), wanted, dtype)


def modelopt_fp8(a, tmp, dtype):
    """ModelOpt's FP8, by FP8QTensor.dequantize, alone and beside NVFP4, with the configuration in config.json or in ModelOpt's own file."""
    problems = []
    for name, algo, shape in ('tensor', 'FP8', ()), ('row', 'FP8_PER_CHANNEL_PER_TOKEN', (40,)), ('mixed', 'MIXED_PRECISION', ()):
        tensors = {'a.weight': fp8(40, 72), 'a.weight_scale': torch.rand(shape) * 0.01, 'a.input_scale': torch.tensor(2.), 'a.bias': torch.randn(40).bfloat16(),
                   'k_proj.k_scale': torch.tensor(1.), 'v_proj.v_scale': torch.tensor(1.)}
        scale = tensors['a.weight_scale']
        wanted = {'a.weight': tensors['a.weight'].float() * (scale[:, None] if shape else scale), 'a.bias': tensors['a.bias']}
        q = {'quant_algo': algo, 'kv_cache_quant_algo': 'FP8', 'exclude_modules': ['lm_head']}
        if name == 'mixed':
            tensors['b.weight'], tensors['b.weight_scale'] = torch.full((8, 32), 0x21, dtype=torch.uint8), torch.ones(8, 4).to(torch.float8_e4m3fn)
            tensors['b.weight_scale_2'] = torch.tensor(0.25)
            wanted['b.weight'] = torch.tensor([0.125, 0.25]).repeat(8, 32)
            q['quantized_layers'] = {'a': {'quant_algo': 'FP8'}, 'b': {'quant_algo': 'NVFP4', 'group_size': 16}}
        group = {'group_0': {'weights': {'num_bits': 8, 'type': 'float', 'dynamic': False}}}
        for own in False, True:
            config = {'dtype': 'bfloat16', 'keeps': {'this': ['}', 1]}}
            if not own:
                config['quantization_config'] = dict(q, quant_method='modelopt', config_groups=group)
            folder = write(os.path.join(tmp, 'modelopt-%s%d%s' % (name, own, dtype)), tensors, config)
            if own:
                with open(os.path.join(folder, 'hf_quant_config.json'), 'w', encoding='utf-8') as f:
                    json.dump({'producer': {'name': 'modelopt'}, 'quantization': q}, f)
            problems += ['%s: %s' % (folder, x) for x in compare(a, folder, wanted, dtype)]
    return problems


def saved(a, tmp, four):
    """A folder that transformers quantizes with bitsandbytes, and what it dequantizes each weight to."""
    source, q = os.path.join(tmp, 'plain%d' % four), os.path.join(tmp, 'bnb%d' % four)
    LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
                                 num_key_value_heads=2)).bfloat16().save_pretrained(source)
    config = BitsAndBytesConfig(load_in_4bit=four, load_in_8bit=not four, **({'bnb_4bit_quant_type': 'nf4', 'bnb_4bit_use_double_quant': True,
                                                                              'bnb_4bit_compute_dtype': torch.bfloat16} if four else {}))
    model = AutoModelForCausalLM.from_pretrained(source, quantization_config=config, dtype=torch.bfloat16)
    model.save_pretrained(q)
    ckpt(a, 'convert', '-q', q, q + '.bf16', '--to', 'hf', '--dtype', 'bf16')
    ckpt(a, 'verify', '-q', '--strict', q + '.bf16')
    got, want = load_file(os.path.join(q + '.bf16', 'model.safetensors')), {}
    for name, module in model.named_modules():
        for end, t in module.named_parameters(recurse=False):
            want['%s.%s' % (name, end)] = dequantize_bnb_weight(t, getattr(module, 'state', None)).detach()
    return ['names: %s' % sorted(set(got) ^ set(want))] if set(got) != set(want) else \
        [name for name in got if not torch.equal(got[name], want[name].to(torch.bfloat16))]


def whole(a, folder, config):
    """Logits of the floats, and of what transformers makes of the folder itself."""
    ckpt(a, 'convert', '-q', folder, folder + '.bf16', '--to', 'hf', '--dtype', 'bf16')
    ours = AutoModelForCausalLM.from_pretrained(folder + '.bf16', dtype=torch.bfloat16)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=config)
    states = ours.state_dict(), theirs.state_dict()
    problems = ['names: %s' % sorted(set(states[0]) ^ set(states[1]))] if set(states[0]) != set(states[1]) else []
    problems += [name for name in states[0] if not torch.equal(states[0][name], states[1].get(name, torch.empty(0)))]
    with torch.no_grad():
        x = torch.arange(24).view(2, 12)
        return problems or ([] if torch.equal(ours(x).logits, theirs(x).logits) else ['logits differ'])


def model(a, tmp):
    source = os.path.join(tmp, 'llama')
    LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                                 num_key_value_heads=4)).bfloat16().save_pretrained(source)
    tensors = {}
    for name, t in load_file(os.path.join(source, 'model.safetensors')).items():
        tensors[name] = t
        if 'proj' in name:
            rows, cols = t.shape
            grid = t.float().reshape(rows // 128, 128, cols // 128, 128)
            scale = grid.abs().amax((1, 3)) / 448
            tensors[name] = (grid / scale[:, None, :, None]).clamp(-448, 448).to(torch.float8_e4m3fn).reshape(rows, cols)
            tensors[name + '_scale_inv'] = scale
    with open(os.path.join(source, 'config.json'), encoding='utf-8') as f:
        config = json.load(f)
    config['quantization_config'] = {'quant_method': 'fp8', 'weight_block_size': [128, 128], 'activation_scheme': 'dynamic'}
    return whole(a, write(os.path.join(tmp, 'llama-fp8'), tensors, config), FineGrainedFP8Config(dequantize=True))


def gpt_oss(a, tmp):
    source = os.path.join(tmp, 'oss')
    GptOssForCausalLM(GptOssConfig(vocab_size=96, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                   num_key_value_heads=2, head_dim=16, num_local_experts=4, num_experts_per_tok=2,
                                   layer_types=['sliding_attention', 'full_attention'])).bfloat16().save_pretrained(source)
    tensors = {}
    for name, t in load_file(os.path.join(source, 'model.safetensors')).items():
        if not name.endswith(('gate_up_proj', 'down_proj')):
            tensors[name] = t
            continue
        n, ins, outs = t.shape
        tensors[name + '_blocks'] = torch.randint(0, 256, (n, outs, ins // 32, 16), dtype=torch.uint8)
        tensors[name + '_scales'] = torch.randint(115, 122, (n, outs, ins // 32), dtype=torch.uint8)
    with open(os.path.join(source, 'config.json'), encoding='utf-8') as f:
        config = json.load(f)
    config['quantization_config'] = {'quant_method': 'mxfp4', 'modules_to_not_convert': ['model.layers.*.self_attn', 'model.layers.*.mlp.router',
                                                                                        'model.embed_tokens', 'lm_head']}
    return whole(a, write(os.path.join(tmp, 'oss-mxfp4'), tensors, config), Mxfp4Config(dequantize=True))


def written(a, tmp, name, model):
    """Our fp8 in blocks has the bits of transformers' own quantizer, and the logits of its floats; rows load with compressed-tensors."""
    source, problems = os.path.join(tmp, name), []
    model.bfloat16().save_pretrained(source)
    of = Fp8Quantize(types.SimpleNamespace(quantization_config=types.SimpleNamespace(weight_block_size=[128, 128], scale_fmt='float')))
    ckpt(a, 'convert', '-q', source, source + '.block', '--to', 'hf', '--quantize', 'fp8-block')
    floats, got = (load_file(os.path.join(path, 'model.safetensors')) for path in (source, source + '.block'))
    with open(os.path.join(source + '.block', 'config.json'), encoding='utf-8') as f:
        stays = json.load(f)['quantization_config']['modules_to_not_convert']
    n = 0
    for key, t in floats.items():
        want = {key: t} if t.ndim != 2 or key[:-len('.weight')] in stays else of._quantize_one(key, t)
        n += len(want) == 2
        problems += [k for k, w in want.items() if k not in got or got[k].dtype != w.dtype or
                     not torch.equal(got[k].view(torch.uint8), w.contiguous().view(torch.uint8))]
    problems += [] if n and len(got) == len(floats) + n else ['%d tensors, %d quantized' % (len(got), n)]
    ckpt(a, 'convert', '-q', source, source + '.row', '--to', 'hf', '--quantize', 'fp8-channel', '--quantize-skip', '*v_proj*')
    with torch.no_grad():
        x = torch.arange(24).view(2, 12)
        plain = model(x).logits.float()
        for path, config in ((source + '.block', {'quantization_config': FineGrainedFP8Config(dequantize=True)}), (source + '.row', {})):
            loaded = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, **config)
            off = (loaded(x).logits.float() - plain).abs().max().item() / plain.abs().max().item()
            # three bits of mantissa in each weight
            problems += [] if 0 < off < 0.1 else ['%s: logits off by %.2g' % (os.path.basename(path), off)]
    return problems


MODES = [('affine', bits, group) for bits, group in ((2, 128), (3, 64), (4, 32), (4, 64), (5, 32), (6, 64), (8, 32))]
MODES += [('mxfp4', 4, 32), ('nvfp4', 4, 16), ('mxfp8', 8, 32), ('mixed', 4, 64)]


def of_mlx(a, tmp, dtype):
    """Folders that mlx-lm quantizes: the floats of its own dequantize_model, and transformers' logits of them."""
    source, problems = Path(tmp, 'mlx-' + dtype), []
    LlamaForCausalLM(LlamaConfig(hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                 vocab_size=320)).to(DTYPES[dtype]).save_pretrained(source)

    def mixed(path, _):
        return not path.endswith('q_proj') and {'down_proj': {'group_size': 32, 'bits': 8}, 'up_proj': {'mode': 'nvfp4'}}.get(path.split('.')[-1], True)

    for mode, bits, group in MODES:
        folder = Path(tmp, '%s-%s-%d-%d' % (source.name, mode, bits, group))
        folder.mkdir()
        with contextlib.redirect_stdout(None):
            made, config = mlx_lm.utils.quantize_model(*mlx_lm.utils.load_model(source), group, bits, mode='affine' if mode == 'mixed' else mode,
                                                       quant_predicate=mixed if mode == 'mixed' else None)
        mlx_lm.utils.save_model(folder, made)
        mlx_lm.utils.save_config(dict(config, keeps={'this': ['}', 1]}), folder / 'config.json')
        floats = dict(mlx.utils.tree_flatten(mlx_lm.utils.dequantize_model(made).parameters()))
        mlx.core.save_safetensors(str(folder) + '.safetensors', floats)
        problems += ['%s %d: %s' % (mode, bits, p) for p in compare(a, str(folder), load_file(str(folder) + '.safetensors'), dtype)]
        AutoModelForCausalLM.from_pretrained('%s.%s' % (folder, dtype))(torch.arange(16)[None])
    return problems


def main():
    a = arguments()
    tally = Tally(a.verbose)
    torch.manual_seed(0)
    with scratch() as tmp:
        for dtype in 'bf16', 'fp32':
            for check in blocks, channels, experts, gptq, gptq_inputs, awq, gemv, packed, settings, codes, eight, fp4, modelopt, modelopt_fp8, of_mlx:
                tally.call('%s as %s' % (check.__name__, dtype), check, a, tmp, dtype)
        for four in True, False:
            tally.call('a Llama of transformers and bitsandbytes, %d bits' % (4 if four else 8), saved, a, tmp, four)
        tally.call('a Llama in fp8', model, a, tmp)
        tally.call('gpt-oss in MXFP4', gpt_oss, a, tmp)
        size = {'vocab_size': 96, 'hidden_size': 128, 'num_attention_heads': 4, 'num_key_value_heads': 2}
        llama = LlamaForCausalLM(LlamaConfig(**size, intermediate_size=384, num_hidden_layers=2))
        llama.model.layers[0].mlp.up_proj.weight.data[:128] = 0
        tally.call('fp8 written, Llama', written, a, tmp, 'written', llama)
        tally.call('fp8 written, Mixtral', written, a, tmp, 'experts',
                   MixtralForCausalLM(MixtralConfig(**size, intermediate_size=128, num_hidden_layers=1, num_local_experts=2)))
    return tally.end('quantized folders')


if __name__ == '__main__':
    sys.exit(main())
