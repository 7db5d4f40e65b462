#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantized folders as bf16, and the reverse: `ckpt convert` beside a script that loads all weights and calls the kind's own library.

  quantized.py --bin build/bin [--matrices 24] [--repeat 2] [--kinds mlx,nf4,packed,gptq] [--forms w4a16,nvfp4a16,mlx4] [--torchao FOLDER]

Matrices are 4096 x 4096.  The programs take turns.  MLX, bitsandbytes, compressed-tensors, torchao and transformers' fp8 compute on the
processor; GPTQ and AWQ have their arithmetic in torch.  Kind torchao needs the folder that tests/interop/run.sh has installed it to.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench import clear, measure, row, tree_bytes

SIDE, GROUP = 4096, 128
PACKED = {'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'config_groups': {'group_0': {
    'weights': {'num_bits': 4, 'type': 'int', 'strategy': 'group', 'group_size': GROUP, 'symmetric': True}}}}
CONFIGS = {'mlx': {'group_size': 64, 'bits': 4}, 'packed': PACKED,
           'nf4': {'quant_method': 'bitsandbytes', 'load_in_4bit': True, 'load_in_8bit': False},
           'gptq': {'quant_method': 'gptq', 'bits': 4, 'group_size': GROUP, 'desc_act': False, 'sym': True, 'checkpoint_format': 'gptq_v2'},
           'awq': {'quant_method': 'awq', 'bits': 4, 'group_size': GROUP, 'version': 'gemm', 'zero_point': True},
           'fp8': {'quant_method': 'fp8', 'weight_block_size': [128, 128]},
           'int8': {'quant_method': 'bitsandbytes', 'load_in_4bit': False, 'load_in_8bit': True},
           'nvfp4': {'quant_method': 'compressed-tensors', 'format': 'nvfp4-pack-quantized', 'config_groups': {'group_0': {
               'weights': {'num_bits': 4, 'type': 'float', 'strategy': 'tensor_group', 'group_size': 16, 'symmetric': True}}}},
           'torchao': {'quant_method': 'torchao'}}
AWQ_ORDER = 0, 4, 1, 5, 2, 6, 3, 7

FORMS = 'w4a16', 'nvfp4a16', 'mlx4'


def words(torch, *shape):
    return torch.randint(-2**31, 2**31 - 1, shape, dtype=torch.int32)


def parts(kind, name):
    """One quantized matrix."""
    if kind == 'mlx':
        import mlx.core as mx
        made = mx.quantize(mx.random.normal((SIDE, SIDE)).astype(mx.bfloat16) * 0.02, group_size=64, bits=4)
        return {name + end: x for end, x in zip(('.weight', '.scales', '.biases'), made)}
    import torch
    if kind in FORMS:
        return {name + '.weight': torch.randn(SIDE, SIDE).bfloat16() * 0.02}
    groups = SIDE // GROUP
    scales = (torch.rand(SIDE, groups) * 0.01).half()
    if kind == 'nf4':
        import bitsandbytes.functional as bnb
        q, state = bnb.quantize_4bit(torch.randn(SIDE, SIDE).bfloat16() * 0.02, quant_type='nf4', compress_statistics=True)
        return dict({name + '.weight': q}, **{name + '.weight.' + k: v for k, v in state.as_dict(packed=True).items()})
    if kind == 'packed':
        return {name + '.weight_packed': words(torch, SIDE, SIDE // 8), name + '.weight_scale': scales,
                name + '.weight_shape': torch.tensor([SIDE, SIDE])}
    if kind == 'awq':
        return {name + '.qweight': words(torch, SIDE, SIDE // 8), name + '.qzeros': words(torch, groups, SIDE // 8), name + '.scales': scales.T.contiguous()}
    if kind == 'fp8':
        return {name + '.weight': torch.randn(SIDE, SIDE).to(torch.float8_e4m3fn), name + '.weight_scale_inv': torch.rand(SIDE // 128, SIDE // 128)}
    if kind == 'int8':
        return {name + '.weight': torch.randint(-127, 128, (SIDE, SIDE)).to(torch.int8), name + '.SCB': torch.rand(SIDE),
                name + '.weight_format': torch.tensor(0, dtype=torch.uint8)}
    if kind == 'nvfp4':
        return {name + '.weight_packed': torch.randint(0, 256, (SIDE, SIDE // 2), dtype=torch.uint8),
                name + '.weight_scale': (torch.rand(SIDE, SIDE // 16) * 400).to(torch.float8_e4m3fn), name + '.weight_global_scale': torch.tensor([1733.])}
    if kind == 'torchao':
        from torchao.quantization import Int8Tensor, PerGroup
        return {name + '.weight': Int8Tensor.from_hp(torch.randn(SIDE, SIDE).bfloat16(), granularity=PerGroup(GROUP))}
    return {name + '.qweight': words(torch, SIDE // 8, SIDE), name + '.qzeros': words(torch, groups, SIDE // 8),
            name + '.scales': scales.T.contiguous(), name + '.g_idx': torch.arange(SIDE, dtype=torch.int32) // GROUP}


def make(kind, folder, n):
    os.makedirs(folder)
    tensors = {}
    for i in range(n):
        tensors.update(parts(kind, 'model.layers.%d.mlp.down_proj' % i))
    path = os.path.join(folder, 'model.safetensors')
    if kind == 'mlx':
        import mlx.core as mx
        mx.save_safetensors(path, tensors, metadata={'format': 'mlx'})
    else:
        from safetensors.torch import save_file
        metadata = {}
        if kind == 'torchao':
            from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
            tensors, metadata = flatten_tensor_state_dict(tensors)
        save_file(tensors, path, metadata=dict(metadata, format='pt'))
    with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as f:
        json.dump({'model_type': 'llama', 'torch_dtype': 'bfloat16', **({'quantization_config': CONFIGS[kind]} if kind in CONFIGS else {})}, f)


def peer_mlx(source, out):
    import mlx.core as mx
    t = mx.load(source)
    mx.save_safetensors(out, {k: mx.dequantize(v, t[k[:-6] + 'scales'], t[k[:-6] + 'biases'], group_size=64, bits=4)
                              for k, v in t.items() if k.endswith('weight')})


def peer_quantize(form, source, out):
    if form == 'mlx4':
        import mlx.core as mx
        made = {}
        for k, v in mx.load(source).items():
            made.update(zip((k, k[:-6] + 'scales', k[:-6] + 'biases'), mx.quantize(v, group_size=64, bits=4)))
        mx.save_safetensors(out, made)
        return
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'interop'))
    from quantize_to import compressed
    from safetensors.torch import load_file, save_file
    save_file({k[:-6] + part: t for k, v in load_file(source).items() for part, t in compressed(form, 0, v).items()}, out)


def peer_torchao(torch, source):
    from safetensors import safe_open
    from safetensors.torch import load_file
    from torchao.prototype.safetensors.safetensors_support import unflatten_tensor_state_dict
    with safe_open(source, 'pt') as f:
        metadata = f.metadata()
    made = unflatten_tensor_state_dict(load_file(source), metadata)
    made = made[0] if isinstance(made, tuple) else made
    return {k: v.dequantize().to(torch.bfloat16) for k, v in made.items()}


def peer_one(torch, kind, t, k):
    """Floats of one matrix, by its kind's library."""
    name = k[:k.rindex('.')]
    if kind in ('nf4', 'int8'):
        import bitsandbytes.functional as bnb
        if kind == 'int8':
            return bnb.int8_vectorwise_dequant(t[k], t[name + '.SCB'])
        state = {x[len(k) + 1:]: v for x, v in t.items() if x.startswith(k + '.')}
        return bnb.dequantize_4bit(t[k], bnb.QuantState.from_dict(state, device=torch.device('cpu')))
    if kind == 'packed':
        from compressed_tensors.compressors.pack_quantized.base import unpack_from_int32
        return unpack_from_int32(t[k], 4, torch.Size((SIDE, SIDE))).half() * t[name + '.weight_scale'].repeat_interleave(GROUP, 1)
    if kind == 'nvfp4':
        from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        scheme = QuantizationScheme(targets=['Linear'], weights=QuantizationArgs(**CONFIGS[kind]['config_groups']['group_0']['weights']))
        return NVFP4PackedCompressor.decompress({x[len(name) + 1:]: t[x] for x in t if x.startswith(name + '.')}, scheme)['weight']
    if kind == 'fp8':
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize
        return Fp8Dequantize(None)._dequantize_one(t[k], t[k + '_scale_inv'], torch.bfloat16)
    shift = torch.arange(0, 32, 4, dtype=torch.int32)
    zero = (t[name + '.qzeros'][:, :, None] >> shift).bitwise_and_(15)
    if kind == 'awq':
        q = (t[k][:, :, None] >> shift).bitwise_and_(15)[:, :, AWQ_ORDER].reshape(SIDE, SIDE)
        zero = zero[:, :, AWQ_ORDER].reshape(-1, SIDE).repeat_interleave(GROUP, 0)
        return ((q - zero).half() * t[name + '.scales'].repeat_interleave(GROUP, 0)).T
    q = (t[k][:, None, :] >> shift[:, None]).bitwise_and_(15).reshape(SIDE, SIDE)
    group = t[name + '.g_idx'].long()
    return ((q - zero.reshape(-1, SIDE)[group]).half() * t[name + '.scales'][group]).T


def peer(kind, source, out):
    """What people run: everything in memory, matrix by matrix."""
    if kind in FORMS:
        return peer_quantize(kind, source, out)
    if kind == 'mlx':
        return peer_mlx(source, out)
    import torch
    from safetensors.torch import load_file, save_file
    if kind == 'torchao':
        return save_file(peer_torchao(torch, source), out, metadata={'format': 'pt'})
    t, floats = load_file(source), {}
    for k in [k for k in t if k.endswith(('.weight', '.weight_packed', '.qweight'))]:
        floats[k[:k.rindex('.')] + '.weight'] = peer_one(torch, kind, t, k).bfloat16().contiguous()
    save_file(floats, out, metadata={'format': 'pt'})
    return None


def turns(a, kind, title, options):
    with tempfile.TemporaryDirectory(dir=os.environ.get('WORK')) as work:
        src, out, other, copy = (os.path.join(work, x) for x in ('src', 'out', 'other.safetensors', 'copy'))
        # the memory of this process would count as that of the programs that it starts
        python = [sys.executable, os.path.abspath(__file__), '--torchao', a.torchao or '']
        subprocess.run(python + ['--make', kind, src, str(a.matrices)], check=True)
        file = os.path.join(src, 'model.safetensors')
        ckpt = [os.path.join(a.bin, 'ckpt'), 'convert', '-q', file, out, '--config', src, '--to', 'hf'] + options
        script = python + ['--peer', kind, file, other]
        (ours, mem), (one, _), (theirs, peak) = measure([(ckpt, clear(out)), (ckpt + ['-j', '1'], clear(out)), (script, None)], a.repeat)
        [(cp, _)] = measure([(['sh', '-c', 'cp -r "$1" "$2" && find "$2" -type f -exec sync {} +', 'sh', out, copy], clear(copy))], a.repeat)
        row([title, '%.2f' % (os.path.getsize(file) / 1e9), '%.2f' % (tree_bytes(out) / 1e9), '%.2f' % ours, mem, '%.2f' % one,
             '%.2f' % (tree_bytes(out) / 1e9 / one), '%.2f' % theirs, peak, '%.2f' % cp])


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--matrices', type=int, default=24)
    p.add_argument('--repeat', type=int, default=2)
    p.add_argument('--kinds', default=','.join(CONFIGS))
    p.add_argument('--forms', default=','.join(FORMS))
    p.add_argument('--torchao')
    p.add_argument('--peer', nargs=3)
    p.add_argument('--make', nargs=3)
    a = p.parse_args()
    if a.torchao:
        sys.path.insert(0, a.torchao)
    if a.make:
        make(a.make[0], a.make[1], int(a.make[2]))
        return 0
    if a.peer:
        peer(*a.peer)
        return 0
    print('\n### Quantized folders, %d matrices of %d x %d, median of %d\n' % (a.matrices, SIDE, SIDE, a.repeat))
    row(['kind', 'GB in', 'GB out', 'ckpt convert, s', 'peak MiB', 'one thread, s', 'GB/s of output', 'its library, s', 'peak MiB', 'cp of the output, sync, s'])
    row(['---'] * 10)
    for kind in a.kinds.split(',') if a.kinds else []:
        if kind == 'torchao' and not a.torchao:
            print('torchao: skipped (no --torchao)')
            continue
        turns(a, kind, 'from ' + kind, ['--dtype', 'bf16'])
    for form in a.forms.split(',') if a.forms else []:
        turns(a, form, 'to ' + form, ['--quantize', form])
    return 0


if __name__ == '__main__':
    sys.exit(main())
