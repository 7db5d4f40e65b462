#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Merges of models beside mergekit's of the same configurations.

    merge.py [--bin build/bin] [-v] [NAME...]

Tiny Llamas are merged by mergekit-yaml and by ckpt merge --config: every tensor must be equal, F32 within 1e-6 of the tensor's
largest value, BF16 and F16 within one step, whether mergekit computes in F32 or in these.  DARE chooses other elements than torch's random
numbers do: there its rules are checked.  MERGEKIT: the folder of mergekit-yaml; without it, or mergekit, nothing is checked.
"""
import os
import shutil
import subprocess
import sys

import checks

METHODS = {
    'linear': ('linear', '', ['a', 'b', 'c'], {'weight': [0.5, 0.3, 0.9]}),
    'linear, weights as they are': ('linear', 'parameters: {normalize: false}', ['a', 'b'], {'weight': [0.25, -0.5]}),
    'linear by layer and filter': ('linear', '', ['a', 'b'], {'weight': [
        '[0.1, 0.9, 0.4]', '[{filter: self_attn, value: 0.2}, {filter: mlp, value: [0, 1]}, {value: 0.6}]']}),
    'slerp': ('slerp', 'base_model: {m}/a\nparameters: {t: 0.3}', ['a', 'b'], {}),
    'slerp by layer': ('slerp', 'base_model: {m}/a\nparameters: {t: [{filter: mlp, value: [0, 0.5, 1]}, {value: 0.7}]}', ['a', 'b'], {}),
    'task_arithmetic': ('task_arithmetic', 'base_model: {m}/base\nparameters: {lambda: 0.8}', ['a', 'b', 'c'], {'weight': [0.5, -0.3, 0.9]}),
    'task_arithmetic normalized': ('task_arithmetic', 'base_model: {m}/base\nparameters: {normalize: true}', ['a', 'b'], {'weight': [0.5, 0.7]}),
    'ties': ('ties', 'base_model: {m}/base\nparameters: {int8_mask: true}', ['a', 'b', 'c'],
             {'weight': [0.5, 0.3, 0.9], 'density': [0.5, 0.31, 0.77]}),
    'ties rescaled': ('ties', 'base_model: {m}/base\nparameters: {normalize: false, rescale: true}', ['a', 'b'],
                      {'weight': [1, 0.3], 'density': [0.5, 0.2]}),
    'dare_linear of all': ('dare_linear', 'base_model: {m}/base', ['a', 'b'], {'weight': [0.5, 0.3], 'density': [1, 1]}),
    'dare_ties of all': ('dare_ties', 'base_model: {m}/base', ['a', 'b', 'c'], {'weight': [0.5, 0.3, 0.4], 'density': [1, 1, 1]}),
}
SLICES = '''merge_method: slerp
base_model: {m}/a
slices: [{sources: [{model: {m}/a, layer_range: [0, 4]}, {model: {m}/b, layer_range: [0, 4]}]}]
parameters: {t: [{filter: self_attn, value: [0, 0.5, 0.3, 0.7, 1]}, {value: 0.5}]}
dtype: float32
'''


def models(folder):
    """A tiny Llama, and three that were moved away from it; all in bfloat16 too."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=160, hidden_size=48, intermediate_size=112, num_hidden_layers=4, num_attention_heads=4,
                         num_key_value_heads=2, tie_word_embeddings=False, max_position_embeddings=64)
    torch.manual_seed(0)
    base = LlamaForCausalLM(config)
    for i, name in enumerate(('base', 'a', 'b', 'c')):
        torch.manual_seed(i)
        model = LlamaForCausalLM(config)
        model.load_state_dict(base.state_dict())
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.01 * i)
        model.save_pretrained(os.path.join(folder, name))
        model.to(torch.bfloat16).save_pretrained(os.path.join(folder, '16', name))


def configuration(method, more, names, parameters, dtypes):
    lines = ['merge_method: ' + method, more, dtypes, 'models:']
    for i, name in enumerate(names):
        lines.append('  - model: {m}/' + name)
        if parameters:
            lines.append('    parameters: {%s}' % ', '.join('%s: %s' % (k, v[i]) for k, v in parameters.items()))
    return '\n'.join(lines) + '\n'


def tensors(folder):
    from safetensors.torch import load_file
    out = {}
    for name in os.listdir(folder):
        if name.endswith('.safetensors'):
            out.update(load_file(os.path.join(folder, name)))
    return out


def differences(mine, theirs):
    import torch
    mine, theirs = tensors(mine), tensors(theirs)
    found = ['names: %s' % sorted(set(mine) ^ set(theirs))[:3]] if set(mine) != set(theirs) else []
    for name in sorted(set(mine) & set(theirs)):
        a, b = mine[name], theirs[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            found.append('%s: %s %s, not %s %s' % (name, a.dtype, tuple(a.shape), b.dtype, tuple(b.shape)))
        elif a.dtype in (torch.bfloat16, torch.float16):
            steps = (a.view(torch.int16).int() - b.view(torch.int16).int()).abs()
            # where terms cancel, a step is less than what the order of a sum in F32 changes
            off = (steps > 1) & ((a.float() - b.float()).abs() > 1e-6 * b.float().abs().max())
            if off.any():
                found.append('%s: %d elements are more than a step away' % (name, off.sum()))
        elif (a - b).abs().max() > 1e-6 * b.abs().max():
            found.append('%s: off by %g of %g' % (name, (a - b).abs().max(), b.abs().max()))
    return found


def beside(ckpt, mergekit, folder, text, out):
    """Both programs with one configuration."""
    path = os.path.join(out, 'config.yaml')
    with open(path, 'w') as f:
        f.write(text.replace('{m}', folder))
    mine, theirs = os.path.join(out, 'mine'), os.path.join(out, 'theirs')
    for at in mine, theirs:
        shutil.rmtree(at, ignore_errors=True)
    for words in ([ckpt, 'merge', '-q', '--config', path, '-o', mine], [mergekit, path, theirs, '--quiet']):
        p = subprocess.run(words, capture_output=True, text=True)
        if p.returncode:
            return ['%s: exit %d: %s' % (os.path.basename(words[0]), p.returncode, p.stderr.strip()[-300:])]
    return differences(mine, theirs) or proof(ckpt, theirs, path)


def proof(ckpt, theirs, config):
    """ckpt proves that mergekit's model is this merge, and finds one flipped bit in it."""
    found = []
    weights = [os.path.join(theirs, n) for n in sorted(os.listdir(theirs)) if n.endswith('.safetensors')][0]
    for flipped in False, True:
        if flipped:
            with open(weights, 'r+b') as f:  # the exponent of a number in the middle of the file, of any dtype
                f.seek(os.path.getsize(weights) // 8 * 4 + 3)
                byte = f.read(1)[0] ^ 0x20
                f.seek(-1, os.SEEK_CUR)
                f.write(bytes([byte]))
        p = subprocess.run([ckpt, 'verify', '-q', theirs, '--made-from', config], capture_output=True, text=True)
        if p.returncode != flipped:
            found.append('verify --made-from%s: exit %d: %s' % (' of a flipped bit' if flipped else '', p.returncode,
                                                                (p.stdout + p.stderr).strip()[-300:]))
    return found


def ties_in(ckpt, folder, out, dtype):
    """TIES in 16 bits, where many differences are equally large: mergekit's steps, with a sort that keeps the first of equals."""
    import torch
    weights, densities, names = (0.5, 0.3, 0.9), (0.5, 0.31, 0.77), ('a', 'b', 'c')
    config = configuration(METHODS['ties'][0], METHODS['ties'][1], names, METHODS['ties'][3], 'dtype: ' + dtype)
    path, mine = os.path.join(out, 'config.yaml'), os.path.join(out, 'mine')
    with open(path, 'w') as f:
        f.write(config.replace('{m}', folder))
    shutil.rmtree(mine, ignore_errors=True)
    p = subprocess.run([ckpt, 'merge', '-q', '--config', path, '-o', mine], capture_output=True, text=True)
    if p.returncode:
        return [p.stderr]
    dtype, result, found = getattr(torch, dtype), tensors(mine), []
    base, models = tensors(folder + '/base'), [tensors('%s/%s' % (folder, name)) for name in names]
    for name, b in base.items():
        b, deltas = b.to(dtype), []
        for model, density in zip(models, densities):
            delta = model[name].to(dtype) - b
            mask = torch.zeros(delta.numel(), dtype=dtype)
            mask[torch.argsort(delta.abs().reshape(-1).float(), descending=True, stable=True)[:max(1, int(density * delta.numel()))]] = 1
            deltas.append(delta * mask.reshape_as(delta))
        w = torch.tensor(weights, dtype=dtype).reshape(-1, *[1] * b.dim())
        deltas = torch.stack(deltas) * w
        mask = deltas.sign() == (deltas.sum(dim=0) >= 0).to(dtype) * 2 - 1
        divisor = (w * mask).sum(dim=0)
        divisor[divisor == 0] = 1
        want = b + (deltas * mask).sum(dim=0) / divisor
        if not torch.equal(result[name], want):
            found.append('%s: %d elements differ' % (name, (result[name] != want).sum()))
    return found


def dare(ckpt, folder, out):
    """About as many elements stay as asked for, scaled so that their magnitudes add up to the same; a seed decides which."""
    found, results = [], []
    for i, seed in enumerate(('1', '1', '2')):
        dst = os.path.join(out, 'dare%d' % i)
        p = subprocess.run([ckpt, 'merge', '-q', '--method', 'dare_linear', '--base', folder + '/base', '--density', '0.3', '--seed', seed,
                            '-j', str(i + 1), '-o', dst, folder + '/c'], capture_output=True, text=True)
        if p.returncode:
            return [p.stderr]
        results.append(tensors(dst))
    base, model = tensors(folder + '/base'), tensors(folder + '/c')
    for name in base:
        delta, whole = results[0][name] - base[name], model[name] - base[name]
        kept = (delta != 0).float().mean().item()
        if base[name].numel() > 2000 and not 0.25 < kept < 0.35:
            found.append('%s: %.3f stay' % (name, kept))
        if abs(delta.abs().sum() / whole.abs().sum() - 1) > 1e-3:
            found.append('%s: magnitudes %g, not %g' % (name, delta.abs().sum(), whole.abs().sum()))
        if not results[0][name].equal(results[1][name]):
            found.append('%s: one seed, two results' % name)
    if all(results[0][n].equal(results[2][n]) for n in base):
        found.append('two seeds, one result')
    return found


def main():
    args = checks.arguments()
    ckpt = os.path.join(os.path.abspath(args.bin), 'ckpt')
    mergekit = os.path.join(os.environ.get('MERGEKIT', ''), 'mergekit-yaml')
    tally = checks.Tally(args.verbose)
    if not shutil.which(mergekit):
        print('merge: no mergekit (MERGEKIT: the folder of its programs): nothing was checked')
        return 0
    with checks.scratch() as out:
        folder = os.path.join(out, 'm')
        models(folder)
        cases = {name: configuration(*case, 'dtype: float32') for name, case in METHODS.items()}
        cases['slerp of slices'] = SLICES
        for name, text in list(cases.items()):
            text = text.replace('dtype: float32', 'dtype: float32\nout_dtype: bfloat16')
            # which of many equal differences stay, torch's sort leaves open
            cases[name + ', bfloat16'] = text if name.startswith('ties') else text.replace('{m}', '{m}/16')
            for dtype in () if name.startswith('ties') else ('bfloat16', 'float16'):
                cases['%s, computed in %s' % (name, dtype)] = text.replace('dtype: float32\nout_dtype: bfloat16', 'dtype: ' + dtype)
        for name, text in cases.items():
            if not args.only or name in args.only:
                tally.call(name, beside, ckpt, mergekit, folder, text, out)
        tally.call('dare', dare, ckpt, folder, out)
        for dtype in 'bfloat16', 'float16':
            tally.call('ties, computed in ' + dtype, ties_in, ckpt, folder, out, dtype)
    return tally.end('merge')


if __name__ == '__main__':
    sys.exit(main())
