#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of conversions of quantized folders to bf16: it depends neither on the size of the matrices nor on the threads.

  quantized_memory.py --bin build/bin [--layers 1]

The sparse folders have the shapes of a 7B Llama (hidden size 4096, 32 layers; a full one takes 14 GB of disk); embeddings are floats.
"""
import argparse
import hashlib
import json
import os
import shutil
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'bench'))
from bench import once

MIB, JOBS = 32, ('2', '8')
HIDDEN, WIDE, VOCAB, GROUP = 4096, 11008, 32000, 128
SIZES = {'I32': 4, 'F16': 2, 'F32': 4, 'F8_E4M3': 1, 'U8': 1}


def gptq(name, rows, cols):
    return {name + '.qweight': ('I32', [cols // 8, rows]), name + '.qzeros': ('I32', [cols // GROUP, rows // 8]),
            name + '.scales': ('F16', [cols // GROUP, rows]), name + '.g_idx': ('I32', [cols])}


def awq(name, rows, cols):
    return {name + '.qweight': ('I32', [cols, rows // 8]), name + '.qzeros': ('I32', [cols // GROUP, rows // 8]),
            name + '.scales': ('F16', [cols // GROUP, rows])}


def fp8(name, rows, cols):
    return {name + '.weight': ('F8_E4M3', [rows, cols]), name + '.weight_scale_inv': ('F32', [-(-rows // 128), -(-cols // 128)])}


KINDS = {'gptq': (gptq, {'quant_method': 'gptq', 'bits': 4, 'group_size': GROUP, 'desc_act': False, 'sym': True}),
         'awq': (awq, {'quant_method': 'awq', 'bits': 4, 'group_size': GROUP, 'version': 'gemm', 'zero_point': True}),
         'fp8': (fp8, {'quant_method': 'fp8', 'weight_block_size': [128, 128]})}


def make(folder, kind, layers, vocab):
    """A sparse folder: all numbers are zeros."""
    weight, config = KINDS[kind]
    tensors = {'model.embed_tokens.weight': ('F16', [vocab, HIDDEN]), 'lm_head.weight': ('F16', [vocab, HIDDEN]),
               'model.norm.weight': ('F16', [HIDDEN])}
    for i in range(layers):
        tensors.update({'model.layers.%d.%s_layernorm.weight' % (i, x): ('F16', [HIDDEN]) for x in ('input', 'post_attention')})
        for name, rows, cols in [('self_attn.%s_proj' % x, HIDDEN, HIDDEN) for x in 'qkvo'] + [('mlp.down_proj', HIDDEN, WIDE)] + [
                ('mlp.%s_proj' % x, WIDE, HIDDEN) for x in ('gate', 'up')]:
            tensors.update(weight('model.layers.%d.%s' % (i, name), rows, cols))
    header, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        n = SIZES[dtype]
        for x in shape:
            n *= x
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    os.makedirs(folder)
    with open(os.path.join(folder, 'model.safetensors'), 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        f.truncate(8 + len(text) + at)
    with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as f:
        json.dump({'model_type': 'llama', 'torch_dtype': 'bfloat16', 'quantization_config': config}, f)


def digest(path):
    with open(path, 'rb') as f:
        return hashlib.file_digest(f, 'sha256').hexdigest() if hasattr(hashlib, 'file_digest') else hashlib.sha256(f.read()).hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--layers', type=int, default=1)
    a = p.parse_args()
    failed, told = 0, []
    for kind in KINDS:
        with tempfile.TemporaryDirectory(dir=os.environ.get('WORK')) as tmp:
            source, out, sums = os.path.join(tmp, 'source'), os.path.join(tmp, 'out'), set()
            make(source, kind, a.layers, VOCAB if a.layers > 1 else VOCAB // 8)
            for jobs in JOBS:
                _, peak = once([os.path.join(a.bin, 'ckpt'), 'convert', '-q', source, out, '--to', 'hf', '--dtype', 'bf16', '-j', jobs])
                told.append('%s %s: %d' % (kind, jobs, peak))
                failed += peak > MIB
                sums.add(digest(os.path.join(out, 'model.safetensors')) if a.layers == 1 else '')
                shutil.rmtree(out)
            failed += len(sums) > 1
    print('memory of quantized folders: %s (MiB by threads %s; limit %d MiB): %s' % (
        ', '.join(told), ' and '.join(JOBS), MIB, 'FAIL' if failed else 'ok'))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
