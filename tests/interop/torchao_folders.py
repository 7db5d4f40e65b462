#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders that transformers quantizes with torchao, beside torchao's own dequantizing.

  torchao_folders.py --bin build/bin TORCHAO

TORCHAO is the folder that run.sh has installed torchao to.  Every weight has the bits that torchao's classes give on a CPU.  Int4Tensor,
whose kernels need a GPU, has its published formula here.
"""
import json
import os
import subprocess
import sys

from checks import Tally, arguments, ckpt, scratch

os.environ['HF_HUB_OFFLINE'] = '1'
A = arguments('torchao')
sys.path.insert(0, A.torchao)
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torchao.prototype.mx_formats import NVFP4WeightOnlyConfig
from torchao.prototype.mx_formats.constants import DTYPE_FP6_E2M3
from torchao.prototype.mx_formats.mx_tensor import MXTensor
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import (Float8Tensor, Float8WeightOnlyConfig, Int4Tensor, Int8DynamicActivationInt8WeightConfig,
                                  Int8DynamicActivationIntxWeightConfig, Int8Tensor, Int8WeightOnlyConfig, IntxUnpackedToInt8Tensor,
                                  IntxWeightOnlyConfig, MappingType, PerBlock, PerGroup, PerRow, PerTensor, quantize_)
from torchao.quantization.quantize_.workflows.nf4.nf4_tensor import to_nf4
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM, TorchAoConfig
from transformers.integrations.bitsandbytes import dequantize_bnb_weight

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
DTYPES = {'bf16': torch.bfloat16, 'fp32': torch.float32, 'fp16': torch.float16}
CONFIGS = {
    'int8': Int8WeightOnlyConfig(),
    'nvfp4': NVFP4WeightOnlyConfig(),
    'int8 of both': Int8DynamicActivationInt8WeightConfig(),
    'float8': Float8WeightOnlyConfig(),
    'int4 in groups': IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    'int3 in groups': Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int3, weight_granularity=PerGroup(64)),
}


def floats(t):
    return (t.dequantize() if hasattr(t, 'qdata') else t).detach().clone()


def differ(folder, wanted, dtype):
    """Names of tensors with other bits than wanted, and what the metadata still says."""
    got = load_file(os.path.join(folder, 'model.safetensors'))
    with safe_open(os.path.join(folder, 'model.safetensors'), 'pt') as f:
        problems = [] if f.metadata() == {'format': 'pt'} else ['metadata is %s' % f.metadata()]
    problems += ['names: %s' % sorted(set(got) ^ set(wanted))] if set(got) != set(wanted) else []
    return problems + [n for n in set(got) & set(wanted) if not torch.equal(got[n], wanted[n].to(DTYPES[dtype]))]


def saved(a, tmp, source, name):
    """A folder of transformers, as one file and as shards that ckpt has copied; transformers computes the same logits with the copy."""
    folder = os.path.join(tmp, name)
    model = AutoModelForCausalLM.from_pretrained(source, quantization_config=TorchAoConfig(CONFIGS[name]), dtype=torch.bfloat16)
    model.save_pretrained(folder)
    wanted, problems = {n: floats(t) for n, t in model.state_dict().items()}, []
    ckpt(a, 'convert', '-q', folder, folder + '.copy', '--to', 'hf', '--max-shard-size', '100KB')
    for dtype, path in ('bf16', folder), ('fp32', folder), ('bf16', folder + '.copy'):
        ckpt(a, 'convert', '-qf', path, folder + '.floats', '--to', 'hf', '--dtype', dtype)
        problems += ['%s: %s' % (dtype, x) for x in differ(folder + '.floats', wanted, dtype)]
    x = torch.arange(24).view(2, 12)
    with torch.no_grad():
        if name == 'int8' and not torch.equal(AutoModelForCausalLM.from_pretrained(folder + '.copy')(x).logits, model(x).logits):
            problems.append('logits of the copy differ')
    return problems


def write(folder, tensors):
    tensors, metadata = flatten_tensor_state_dict(tensors)
    os.makedirs(folder)
    save_file(tensors, os.path.join(folder, 'model.safetensors'), dict(metadata, format='pt'))
    with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as f:
        json.dump({'dtype': 'bfloat16', 'quantization_config': {'quant_method': 'torchao'}}, f)
    return folder


def classes(a, tmp):
    """Each class, with all granularities and dtypes."""
    tensors, wanted = {}, {}
    for dtype in torch.bfloat16, torch.float16, torch.float32:
        end = '.%s.weight' % str(dtype)[len('torch.'):]
        for name, of in ('tensor', PerTensor()), ('row', PerRow()), ('block', PerBlock([16, 32])):
            tensors['float8 ' + name + end] = Float8Tensor.from_hp(torch.randn(48, 128).to(dtype), granularity=of)
        tensors['experts' + end] = Float8Tensor.from_hp(torch.randn(3, 48, 128).to(dtype), granularity=PerRow())
        for name, of in ('tensor', PerTensor()), ('row', PerRow()), ('group', PerGroup(32)):
            for mapping in MappingType.SYMMETRIC, MappingType.ASYMMETRIC:
                tensors['int8 %s %s' % (name, mapping.name) + end] = Int8Tensor.from_hp(torch.randn(48, 128).to(dtype), granularity=of,
                                                                                     mapping_type=mapping)
    wanted = {n: floats(t) for n, t in tensors.items()}
    for dtype in torch.bfloat16, torch.float16:
        for rows, cols, group in (48, 128, 32), (3000, 64, 64):
            q, name = torch.randint(-8, 8, (rows, cols), dtype=torch.int8), 'int4 %s %d.weight' % (str(dtype)[len('torch.'):], rows)
            scale, zero = (torch.rand(cols // group, rows) * 0.1).to(dtype), torch.randn(cols // group, rows).to(dtype)
            tensors[name] = Int4Tensor(qdata=q[:, ::2] & 15 | q[:, 1::2] << 4, scale=scale, zero_point=zero, block_size=[1, group],
                                       shape=torch.Size([rows, cols]))
            scale, zero = (t.T.float().repeat_interleave(group, 1) for t in (scale, zero))
            wanted[name] = (q * scale + zero).to(dtype)
    folder, problems = write(os.path.join(tmp, 'classes'), tensors), []
    for dtype in DTYPES:
        ckpt(a, 'convert', '-qf', folder, folder + '.floats', '--to', 'hf', '--dtype', dtype)
        problems += ['%s: %s' % (dtype, x) for x in differ(folder + '.floats', wanted, dtype)]
    return problems


def pickled(a, tmp, source):
    """Files and folders of torch.save: the bits of tensor.dequantize(), for each class, granularity and dtype, and for parameters."""
    tensors, problems = {}, []
    for dtype in torch.bfloat16, torch.float16, torch.float32:
        end, w = '.%s.weight' % str(dtype)[len('torch.'):], torch.randn(300, 256).to(dtype)
        for name, of in ('tensor', PerTensor()), ('row', PerRow()), ('block', PerBlock([50, 32])):
            tensors['float8 ' + name + end] = Float8Tensor.from_hp(w, granularity=of)
        tensors['float8 e5m2' + end] = Float8Tensor.from_hp(w, float8_dtype=torch.float8_e5m2, granularity=PerRow())
        tensors['experts' + end] = Float8Tensor.from_hp(torch.randn(3, 48, 128).to(dtype), granularity=PerRow())
        for name, of in ('tensor', PerTensor()), ('row', PerRow()), ('group', PerGroup(32)):
            for mapping in MappingType.SYMMETRIC, MappingType.ASYMMETRIC:
                tensors['int8 %s %s' % (name, mapping.name) + end] = Int8Tensor.from_hp(w, granularity=of, mapping_type=mapping)
        for bits in torch.int4, torch.int3, torch.int8:
            tensors['intx %s' % bits + end] = IntxUnpackedToInt8Tensor.from_hp(w, (1, 64), bits, mapping_type=MappingType.ASYMMETRIC)
        for swizzled in (False, True) if dtype != torch.float16 else ():
            for name, of in ('e4m3', torch.float8_e4m3fn), ('e5m2', torch.float8_e5m2), ('e2m1', torch.float4_e2m1fn_x2):
                tensors['mx %s %d' % (name, swizzled) + end] = MXTensor.to_mx(w, of, 32, is_swizzled_scales=swizzled)
            for total in None, torch.tensor(0.37):
                tensors['nvfp4 %d %s' % (swizzled, total is None) + end] = NVFP4Tensor.to_nvfp4(w, per_tensor_scale=total, is_swizzled_scales=swizzled)
        # exponents that F16 and BF16 cannot hold, or that stand for NaN
        mx = MXTensor.to_mx(w.bfloat16(), torch.float8_e4m3fn, 32)
        scale = torch.arange(mx.scale.numel()).to(torch.uint8).view(torch.float8_e8m0fnu).view(mx.scale.shape)
        tensors['mx all' + end] = MXTensor(mx.qdata, scale, mx.elem_dtype, 32, dtype, mx.kernel_preference, None, False)
    model = torch.nn.Linear(64, 32)
    quantize_(model, Int8WeightOnlyConfig())
    tied = Int8Tensor.from_hp(torch.randn(8, 32), granularity=PerRow())
    tensors.update({'weight': model.weight.detach(), 'a.first': tied, 'a.second': tied})
    # another scale of the same numbers
    tensors['a.third'] = Int8Tensor(tied.qdata, tied.scale * 2, tied.block_size, tied.dtype)
    wanted, bits = {n: floats(t) for n, t in tensors.items()}, lambda t: t.contiguous().view(torch.uint8)
    file, parameters, out = (os.path.join(tmp, x) for x in ('a.pt', 'b.pt', 'a.safetensors'))
    torch.save(tensors, file)
    torch.save(dict(model.named_parameters()), parameters)
    ckpt(a, 'convert', '-qf', file, out)
    problems += ['%s is tied' % n for n in load_file(out) if n == 'a.second']
    del wanted['a.second']
    for path, want in (file, wanted), (parameters, {'weight': wanted['weight'], 'bias': model.bias.detach()}):
        ckpt(a, 'convert', '-qf', path, out)
        got = load_file(out)
        problems += ['names: %s' % sorted(set(got) ^ set(want))] if set(got) != set(want) else []
        problems += [n for n in set(got) & set(want) if got[n].dtype != want[n].dtype or got[n].shape != want[n].shape or
                     not torch.equal(bits(got[n].nan_to_num(7)), bits(want[n].nan_to_num(7))) or not torch.equal(got[n].isnan(), want[n].isnan())]
        ckpt(a, 'convert', '-qf', path, out + '.pt')
        again = torch.load(out + '.pt', weights_only=True)
        problems += ['not tied'] if path == file and again['a.first'].data_ptr() != again['a.second'].data_ptr() else []
        problems += ['torch: ' + n for n in want if n not in again or not torch.equal(again[n].nan_to_num(7), want[n].nan_to_num(7))]
    # a folder, as one file and as shards
    model = AutoModelForCausalLM.from_pretrained(source, quantization_config=TorchAoConfig(Int8WeightOnlyConfig()), dtype=torch.bfloat16)
    wanted, folder = {n: floats(t) for n, t in model.state_dict().items()}, os.path.join(tmp, 'pickled')
    model.config.save_pretrained(folder)
    names, index = sorted(model.state_dict()), {}
    for shards in 1, 2:
        for i in range(shards):
            name = 'pytorch_model.bin' if shards == 1 else 'pytorch_model-0000%d-of-00002.bin' % (i + 1)
            torch.save({n: model.state_dict()[n] for n in names[i::shards]}, os.path.join(folder, name))
            index.update({n: name for n in names[i::shards]})
        if shards == 2:
            os.remove(os.path.join(folder, 'pytorch_model.bin'))
            with open(os.path.join(folder, 'pytorch_model.bin.index.json'), 'w', encoding='utf-8') as f:
                json.dump({'metadata': {}, 'weight_map': index}, f)
        for more in [], ['--dtype', 'fp32']:
            ckpt(a, 'convert', '-qf', folder, folder + '.floats', '--to', 'hf', *more)
            problems += ['%d shards: %s' % (shards, x) for x in differ(folder + '.floats', wanted, 'fp32' if more else 'bf16')]
            with open(os.path.join(folder + '.floats', 'config.json'), encoding='utf-8') as f:
                problems += ['config.json has quantization_config'] if 'quantization_config' in json.load(f) else []
    return problems


def pipeline(a, tmp, source):
    """Components of a pipeline of diffusers, each quantized by its config.json, are floats in it: torchao in both containers, bitsandbytes."""
    top, wanted = os.path.join(tmp, 'pipeline'), {}
    for name, config in (('text_encoder', TorchAoConfig(Int8WeightOnlyConfig())), ('text_encoder_2', TorchAoConfig(Float8WeightOnlyConfig())),
                         ('transformer', BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', bnb_4bit_use_double_quant=True)),
                         ('unet', BitsAndBytesConfig(load_in_8bit=True)), ('image_encoder', None)):
        model = AutoModelForCausalLM.from_pretrained(source, quantization_config=config, dtype=torch.bfloat16)
        folder = os.path.join(top, name)
        model.save_pretrained(folder)
        if name == 'text_encoder':
            os.remove(os.path.join(folder, 'model.safetensors'))
            torch.save(model.state_dict(), os.path.join(folder, 'pytorch_model.bin'))
        for n, module in model.named_modules():
            for end, t in module.named_parameters(recurse=False):
                bnb = type(t).__name__ in ('Params4bit', 'Int8Params')
                t = dequantize_bnb_weight(t, getattr(module, 'state', None)).detach() if bnb else floats(t)
                wanted['%s/%s.%s' % (name, n, end)] = t.to(torch.bfloat16)
    with open(os.path.join(top, 'model_index.json'), 'w', encoding='utf-8') as f:
        json.dump(dict({'_class_name': 'X'}, **{n: ['transformers', 'LlamaForCausalLM'] for n in {k.split('/')[0] for k in wanted}}), f)
    ckpt(a, 'convert', '-q', top, top + '.safetensors', '--dtype', 'bf16')
    got = load_file(top + '.safetensors')
    problems = ['names: %s' % sorted(set(got) ^ set(wanted))] if set(got) != set(wanted) else []
    return problems + [n for n in set(got) & set(wanted) if not torch.equal(got[n], wanted[n])]


def refused(a, tmp):
    """What cannot be told ends with an error that names it."""
    problems = []

    def refuse(folder, word):
        done = subprocess.run([os.path.join(a.bin, 'ckpt'), 'convert', '-q', folder, folder + '.out', '--to', 'hf', '--dtype', 'bf16'],
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0 or word not in done.stderr or os.path.exists(folder + '.out'):
            problems.append('%s: exit %d: %s' % (folder, done.returncode, done.stderr))

    w, smoothed = torch.randn(64, 128).bfloat16(), Int8Tensor.from_hp(torch.randn(16, 32), granularity=PerRow())
    smoothed.act_pre_scale = torch.ones(32)
    for name, t, word in (('nf4', to_nf4(torch.randn(512, 512)), 'NF4Tensor'), ('fp6', MXTensor.to_mx(w, DTYPE_FP6_E2M3, 32), 'fp6_e2m3'), ('smoothed', smoothed, 'act_pre_scale'),
                          ('turned', NVFP4Tensor.to_nvfp4(w).t(), 'transposed')):
        folder = os.path.join(tmp, 'pickled_' + name)
        os.makedirs(folder)
        torch.save({'a.weight': t}, os.path.join(folder, 'pytorch_model.bin'))
        with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as f:
            json.dump({'dtype': 'bfloat16', 'quantization_config': {'quant_method': 'torchao'}}, f)
        refuse(folder, word)
    weight = Int8Tensor.from_hp(torch.randn(16, 32), granularity=PerRow())
    weight.act_pre_scale = torch.ones(32)
    refuse(write(os.path.join(tmp, 'smoothed'), {'a.weight': weight}), '_act_pre_scale')
    weight.act_pre_scale, whole = None, os.path.join(tmp, 'whole')
    tensors = load_file(os.path.join(write(whole, {'a.weight': weight}), 'model.safetensors'))
    with safe_open(os.path.join(whole, 'model.safetensors'), 'pt') as f:
        metadata = f.metadata()
    for name, more, left_out, word in (('silent', {}, 'a.weight', 'metadata'), ('unscaled', {}, 'a._weight_scale', 'scale'),
                                       ('stray', {'a._weight_row_scale': torch.ones(16)}, '', '_weight_row_scale'),
                                       ('few', {'a._weight_scale': torch.ones(8, 1)}, '', '_weight_scale'),
                                       ('twice', {'a.weight': torch.ones(16, 32)}, '', 'as floats')):
        folder = os.path.join(tmp, name)
        os.makedirs(folder)
        save_file({n: t for n, t in dict(tensors, **more).items() if n != left_out}, os.path.join(folder, 'model.safetensors'),
                  {n: t for n, t in metadata.items() if n != left_out})
        with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as f:
            json.dump({'quantization_config': {'quant_method': 'torchao'}}, f)
        refuse(folder, word)
    return problems


def main():
    tally = Tally(A.verbose)
    torch.manual_seed(0)
    with scratch() as tmp:
        source = os.path.join(tmp, 'llama')
        LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=128, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4,
                                     num_key_value_heads=2)).bfloat16().save_pretrained(source)
        for name in CONFIGS:
            tally.call(name, saved, A, tmp, source, name)
        tally.call('classes', classes, A, tmp)
        tally.call('pickled', pickled, A, tmp, source)
        tally.call('pipeline', pipeline, A, tmp, source)
        tally.call('refused', refused, A, tmp)
    return tally.end('torchao')


if __name__ == '__main__':
    sys.exit(main())
