#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters of PEFT merged into their bases, against what peft's merge_and_unload made of them.

    peft.py --bin build/bin FIXTURES

Each fixture is merged as safetensors and as .bin, with the adapter's file as it is and as the other kind; expected.json has
the merged tensors.  16-bit results must be equal but for a value in a thousand that is one step away (the order of a sum in
F32); F32 ones may be 1e-6 of the tensor's largest value away.  Of the run that trained an adapter, the adapter alone is taken
out, and must merge to what was recorded.
"""
import argparse
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from readers import read_safetensors

WIDTH = {'float32': 4, 'bfloat16': 2, 'float16': 2}
passed, failed = 0, []


def verdict(name, problem):
    global passed
    if problem:
        failed.append(name)
        print('FAIL %s: %s' % (name, problem))
    else:
        passed += 1


def run(*cmd, status=0):
    p = subprocess.run(cmd, capture_output=True, text=True)
    return '' if p.returncode == status else 'exit %d: %s' % (p.returncode, p.stderr.strip()[-300:])


def numbers(dtype, data):
    """Floats of a tensor's bytes."""
    n = len(data) // WIDTH[dtype]
    if dtype == 'float32':
        return struct.unpack('<%df' % n, data)
    if dtype == 'float16':
        return struct.unpack('<%de' % n, data)
    return struct.unpack('<%df' % n, b''.join(b'\0\0' + data[i:i + 2] for i in range(0, len(data), 2)))


def near(dtype, mine, theirs):
    """'' if two tensors' bytes differ by no more than the order of a sum may."""
    if mine == theirs:
        return ''
    a, b = numbers(dtype, mine), numbers(dtype, theirs)
    most = max(map(abs, b))
    if dtype == 'float32':
        worst = max(abs(x - y) for x, y in zip(a, b))
        return '' if worst <= 1e-6 * most else 'off by %g of %g' % (worst, most)
    w = WIDTH[dtype]
    step = [abs(int.from_bytes(mine[i:i + w], 'little') - int.from_bytes(theirs[i:i + w], 'little'))
            for i in range(0, len(mine), w)]
    return '' if max(step) <= 1 and sum(map(bool, step)) <= 1 + len(step) // 1000 else '%d of %d differ' % (sum(map(bool, step)), len(step))


def compare(got, want, truth):
    """Tensors of a merged file against the records of expected.json, and where hashes differ the bytes of a file with them."""
    tensors = read_safetensors(got)[0]
    real = read_safetensors(truth)[0] if truth else {}
    # a tied head is in the model, and in no file
    want = {k: v for k, v in want.items() if not real or k in real}
    if sorted(tensors) != sorted(want):
        return 'names: %s' % sorted(set(tensors) ^ set(want))[:4]
    for name, record in want.items():
        dtype, shape, digest = tensors[name]
        if dtype != record['dtype'] or list(shape) != record['shape']:
            return '%s is %s %s, not %s %s' % (name, dtype, shape, record['dtype'], record['shape'])
        if digest == record['sha256']:
            continue
        if name not in real:
            return '%s differs' % name
        problem = near(dtype, tensors[name].raw, real[name].raw)
        if problem:
            return '%s: %s' % (name, problem)
    return ''


def merged_file(fixture):
    for name in 'merged/model.safetensors', 'merged.safetensors':
        if os.path.exists(os.path.join(fixture, name)):
            return os.path.join(fixture, name)
    return None


def multiply(fixture, base, adapter, out):
    """An F32 base with an adapter's updates, as a file: what merging is by its definition."""
    config = json.load(open(os.path.join(adapter, 'adapter_config.json')))
    weights, updates = (read_safetensors(os.path.join(f, n))[0] for f, n in ((base, 'model.safetensors'), (adapter, 'adapter_model.safetensors')))
    merged = {name: [list(e[1]), list(numbers(e[0], e.raw))] for name, e in weights.items()}
    for key, e in updates.items():
        name = key[len('base_model.model.'):]
        if name in merged:
            merged[name][1] = numbers(e[0], e.raw)
        elif name.endswith('.lora_A.weight'):
            a, b = numbers(e[0], e.raw), updates[key.replace('lora_A', 'lora_B')]
            (rank, cols), rows, b = e[1], b[1][0], numbers(b[0], b.raw)
            w = merged[name.replace('.lora_A', '')][1]
            for i in range(rows):
                for j in range(cols):
                    w[i * cols + j] += config['lora_alpha'] / rank * sum(b[i * rank + k] * a[k * cols + j] for k in range(rank))
    head, data = {}, b''
    for name, (shape, values) in merged.items():
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + 4 * len(values)]}
        data += struct.pack('<%df' % len(values), *values)
    head = json.dumps(head).encode()
    with open(out, 'wb') as f:
        f.write(struct.pack('<Q', len(head)) + head + data)
    return out


def adapters(fixture):
    for path in sorted(glob.glob(os.path.join(fixture, 'adapter*', '**', 'adapter_config.json'), recursive=True)):
        if glob.glob(os.path.join(os.path.dirname(path), 'adapter_model.*')):
            yield os.path.dirname(path)


def merges(ckpt, fixture, out):
    """Each adapter of a fixture, in both kinds of file, into both kinds of folder."""
    want = json.load(open(os.path.join(fixture, 'expected.json')))
    base, truth = os.path.join(fixture, 'base'), merged_file(fixture)
    for adapter in adapters(fixture):
        label = '%s %s' % (os.path.basename(fixture), os.path.relpath(adapter, fixture))
        other = os.path.join(out, 'other')
        kind = 'hf' if glob.glob(os.path.join(adapter, '*.bin')) else 'hf-bin'
        verdict(label + ' as the other kind', run(ckpt, 'convert', adapter, other, '--to', kind, '-q'))
        for i, source in enumerate((adapter, other)):
            for to in 'hf', 'hf-bin':
                dst = os.path.join(out, '%s%d' % (to, i))
                problem = run(ckpt, 'convert', base, dst, '--to', to, '--adapter', source, '-q')
                if not problem and to == 'hf-bin':
                    problem = run(ckpt, 'convert', dst, dst + '2', '--to', 'hf', '-q')
                    dst += '2'
                verdict('%s to %s, %d' % (label, to, i),
                        problem or compare(os.path.join(dst, 'model.safetensors'), want['merged'], truth))
        for name in os.listdir(out):
            shutil.rmtree(os.path.join(out, name))


def trained(ckpt, fixture, out):
    """An adapter out of the run that trained it, with its base in the checkpoint or not."""
    want = json.load(open(os.path.join(fixture, 'expected.json')))
    base = os.path.join(fixture, 'base')
    config = os.path.join(fixture, 'adapter_config', 'adapter_config.json')
    for name in 'ckpt', 'ckpt_excl':
        run_folder = os.path.join(fixture, name)
        if not os.path.isdir(run_folder):
            continue
        label = '%s %s' % (os.path.basename(fixture), name)
        for dtype in 'bf16', 'fp32':
            dst = os.path.join(out, name + dtype)
            problem = run(ckpt, 'convert', run_folder, dst, '--to', 'hf', '--adapter-only', '--adapter-config', config, '--dtype', dtype,
                          '-q')
            verdict('%s %s' % (label, dtype), problem)
            if problem:
                continue
            if dtype == 'bf16':
                a, b = (read_safetensors(os.path.join(f, 'adapter_model.safetensors'))[0] for f in (dst, os.path.join(fixture, 'adapter')))
                verdict(label + ' is what peft saves', '' if a == b else 'tensors differ')
            verdict(label + ' has its configuration', '' if open(os.path.join(dst, 'adapter_config.json')).read() == open(config).read()
                    else 'another one')
            merged = dst + '.merged'
            problem = run(ckpt, 'convert', base, merged, '--to', 'hf', '--adapter', dst, '--dtype', dtype, '-q')
            verdict('%s merged %s' % (label, dtype),
                    problem or compare(os.path.join(merged, 'model.safetensors'), want['merged_bf16' if dtype == 'bf16' else 'merged_fp32'],
                                       multiply(fixture, base, dst, dst + '.truth') if dtype == 'fp32' else None))


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('--bin', default='build/bin')
    p.add_argument('fixtures')
    args = p.parse_args()
    ckpt = os.path.join(args.bin, 'ckpt')
    for fixture in sorted(glob.glob(os.path.join(args.fixtures, 'peft_*'))):
        with tempfile.TemporaryDirectory() as out:
            (trained if os.path.isdir(os.path.join(fixture, 'ckpt')) else merges)(ckpt, fixture, out)
    print('peft: %d checks passed, %d failed' % (passed, len(failed)))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
