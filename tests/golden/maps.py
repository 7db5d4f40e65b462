#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layout maps against what the real converters wrote, in both directions, and back to the beginning.

    maps.py --bin build/bin FIXTURES

Every fixture map_*, titan_* and gguf_* that is there: A through the map equals B bit for bit, B through it backwards equals A, and A there and
back is A again.  Files are read by a reader of our own.  Then a new architecture, by a text file alone.
"""
import argparse
import glob
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import layouts

passed, failed = 0, []


def verdict(name, problem):
    global passed
    if problem:
        failed.append(name)
        print('FAIL %s: %s' % (name, problem))
    else:
        passed += 1


def tensors(path):
    """name -> (dtype, shape, sha256 of its bytes) of a safetensors file."""
    with open(path, 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        head = json.loads(f.read(n))
        body = f.read()
    out = {}
    for name, t in head.items():
        if name != '__metadata__':
            a, b = t['data_offsets']
            out[name] = (t['dtype'], t['shape'], hashlib.sha256(body[a:b]).hexdigest())
    return out


def compare(got, want):
    if set(got) != set(want):
        return 'has %s more, %s less' % (sorted(set(got) - set(want))[:4], sorted(set(want) - set(got))[:4])
    wrong = [n for n in want if got[n] != want[n]]
    return 'differs: %s' % [(n, got[n][:2], want[n][:2]) for n in wrong[:3]] if wrong else None


class Runner:
    def __init__(self, ckpt, folder):
        self.ckpt, self.folder, self.n = ckpt, folder, 0

    def convert(self, src, *options):
        """The converted file, or the message of what failed."""
        self.n += 1
        return self.run(src, os.path.join(self.folder, '%d.safetensors' % self.n), *options)

    def run(self, src, out, *options):
        p = subprocess.run([self.ckpt, 'convert', '-q', '--no-fsync', src, out, *options], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        return (out, None) if p.returncode == 0 else (None, 'status %d: %s' % (p.returncode, p.stderr.decode()[:300]))

    def check(self, name, src, want, *options):
        """src through the map equals the tensors wanted; the file, for the way back."""
        out, why = self.convert(src, *options)
        verdict(name, why or compare(tensors(out), want))
        return out

    def ways(self, name, a, b, want_a, want_b, pair, forth=(), back=()):
        left, right = pair.split(':')
        there = self.check(name + ' ' + pair, a, want_b, '--map', pair, *forth)
        self.check(name + ' %s:%s' % (right, left), b, want_a, '--map', '%s:%s' % (right, left), *back)
        if there:
            self.check(name + ' there and back', there, want_a, '--map', '%s:%s' % (right, left), *back)


def hub(run, name, source, hf, *options):
    """A model folder without a map's name and without a config.json: the tensors of the hub's folder, and what its configuration says."""
    run.n += 1
    out, why = run.run(source, os.path.join(run.folder, '%d' % run.n), '--to', 'hf', *options)
    if not out:
        return verdict(name + ' to a model folder', why)
    made = os.path.join(out, 'config.json')
    if not os.path.exists(made):
        return verdict(name + ' to a model folder', 'no config.json')
    got, want = json.load(open(made)), json.load(open(os.path.join(hf, 'config.json')))
    want.update(want.get('rope_parameters', {}))

    def same(key):
        a, b = got[key], want.get(key, got[key])
        if key == 'dtype' or b is None:  # that of the weights; null: the usual one
            return True
        return a == b
    wrong = [(k, got[k], want[k]) for k in got if not same(k)]
    less = [k for k in ('model_type', 'architectures', 'vocab_size', 'hidden_size', 'n_embd', 'rms_norm_eps', 'num_attention_heads')
            if k in want and k not in got]
    verdict(name + ' configuration', 'says %s, lacks %s' % (wrong, less) if wrong or less else None)
    names = lambda t: {n for n in t if not n.startswith('pooler.')}
    here, there = names(tensors(os.path.join(out, 'model.safetensors'))), names(tensors(os.path.join(hf, 'model.safetensors')))
    verdict(name + ' names', None if here == there else 'names: %s' % sorted(here ^ there)[:4])


def fixture(run, at):
    name = os.path.basename(at)
    hf = os.path.join(at, 'hf')
    config = ('--config', os.path.join(hf, 'config.json'))
    weights = os.path.join(hf, 'model.safetensors')
    if name.startswith('map_mcore_'):
        other = os.path.join(at, 'megatron.safetensors')
        run.ways(name, hf, other, tensors(weights), tensors(other), 'hf:megatron', (), config)
        # the map is found, whatever model the configuration names
        run.n += 1
        out, why = run.run(other, os.path.join(run.folder, '%d' % run.n), '--to', 'hf', *config)
        verdict(name + ' without a map', why or compare(tensors(os.path.join(out, 'model.safetensors')), tensors(weights)))
    elif name.endswith('_experts'):
        other = os.path.join(at, 'stacked.safetensors')
        run.ways(name, hf, other, tensors(weights), tensors(other), 'hf:packed', (), config)
    elif name.startswith('map_meta_'):
        truth = json.load(open(os.path.join(at, 'expected.json')))['meta']
        want = {n: ('BF16', t['shape'], t['sha256']) for n, t in truth.items() if n != 'rope.freqs'}
        meta = os.path.join(at, 'meta')
        run.ways(name, hf, meta, tensors(weights), want, 'hf:meta-llama', (), config)
        size = ('--size', 'max_position_embeddings=%d' % json.load(open(os.path.join(hf, 'config.json')))['max_position_embeddings'])
        hub(run, name, meta, hf, '--map', 'meta-llama:hf', *size)
        run.n += 1
        back, why = run.run(hf, os.path.join(run.folder, '%d' % run.n), '--to', 'consolidated')
        verdict(name + ' as Meta has it', why)
        if back:
            hub(run, name + ' from there', back, hf, *size)
    elif name.startswith('map_neox_'):
        run.check(name, at, tensors(weights), '--map', 'neox:hf')
        there, why = run.convert(hf, '--map', 'hf:neox')
        verdict(name + ' there', why)
        if there:
            run.check(name + ' there and back', there, tensors(weights), '--map', 'neox:hf')
    elif name.startswith('titan_'):
        spec = json.load(open(os.path.join(at, 'expected.json')))['config']
        sizes = ('--size', 'heads=%d' % spec['n_heads'], '--size', 'kv=%d' % spec['n_kv_heads'])
        export, source = os.path.join(at, 'hf_export.safetensors'), os.path.join(at, 'ckpt', 'checkpoint')
        out, why = run.convert(source)
        verdict(name + ' read', why)
        run.ways(name, export, source, tensors(export), tensors(out) if out else {}, 'hf:torchtitan', sizes, sizes)
        given = {'rope_theta': spec['rope_theta'], 'norm_eps': spec['norm_eps'], 'max_seq_len': 64}
        made = os.path.join(run.folder, name + '.hf')
        os.mkdir(made)
        os.symlink(os.path.abspath(export), os.path.join(made, 'model.safetensors'))
        json.dump({'model_type': 'llama', 'architectures': ['LlamaForCausalLM'], 'vocab_size': spec['vocab_size'],
                   'hidden_size': spec['dim'], 'intermediate_size': spec['hidden_dim'], 'num_hidden_layers': spec['n_layers'],
                   'num_attention_heads': spec['n_heads'], 'num_key_value_heads': spec['n_kv_heads'], 'rms_norm_eps': spec['norm_eps'],
                   'rope_theta': spec['rope_theta'], 'max_position_embeddings': 64}, open(os.path.join(made, 'config.json'), 'w'))
        hub(run, name, source, made, *sizes, *[x for k, v in given.items() for x in ('--size', '%s=%r' % (k, v))])
    elif name.startswith('gguf_') and os.path.isdir(hf):
        gguf(run, name, at, hf)
    else:
        return
    if name.startswith('map_mcore_'):
        stacked, why = run.convert(hf, '--map', 'hf:megatron:torch_dist')
        verdict(name + ' stacked', why)
        if stacked:
            run.check(name + ' from stacked', stacked, tensors(weights), '--map', 'torch_dist:megatron:hf', *config)


def gguf(run, name, at, hf):
    """Names, values and the architecture's keys as llama.cpp's converter writes them in F32."""
    truth = json.load(open(os.path.join(at, 'expected.json')))['files']['convert_F32']
    want = {n: ('F32', t['ne'][::-1], t['sha256_raw']) for n, t in truth['tensors'].items()}
    run.check(name, hf, want, '--map', 'hf:gguf', '--dtype', 'fp32')
    out = os.path.join(run.folder, name + '.gguf')
    run.run(hf, out, '--map', 'hf:gguf', '--dtype', 'fp32')
    hub(run, name, out, hf, '--no-fsync')
    tree = subprocess.run([run.ckpt, 'tree', out], stdout=subprocess.PIPE).stdout.decode()
    got = dict(line.strip().split(': ', 1) for line in tree.splitlines() if ': ' in line)
    arch = truth['kv']['general.architecture']['value']
    keys = {k: repr(v['value']) for k, v in truth['kv'].items() if k.startswith(arch + '.') or k == 'general.architecture'}
    wrong = {k: (got.get(k), v) for k, v in keys.items() if got.get(k) != v}
    verdict(name + ' keys', 'keys: %s' % wrong if wrong else None)
    out, why = run.convert(out, '--map', 'gguf:hf')
    back = tensors(out) if out else {}
    there, why2 = run.convert(hf, '--dtype', 'fp32')
    want = {n: t for n, t in tensors(there).items() if not n.startswith('pooler.')} if there else {}
    verdict(name + ' there and back', why or why2 or compare(back, want))


def text_alone(run, folder):
    """An architecture that nobody has heard of, from its text."""
    h, heads, layers = 12, 3, 2
    data, head, at = b'', {}, 0

    def put(name, shape):
        nonlocal data, at
        n = 1
        for s in shape:
            n *= s
        body = struct.pack('<%df' % n, *[len(head) * 1000 + i for i in range(n)])
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [at, at + 4 * n]}
        data += body
        at += 4 * n

    for i in range(layers):
        put('trunk.%d.mix' % i, [h, 3 * h])
        put('trunk.%d.gain' % i, [h])
    source = os.path.join(folder, 'new.safetensors')
    text = json.dumps(head).encode()
    with open(source, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)
    new = os.path.join(folder, 'new.map')
    with open(new, 'w') as f:
        f.write('sizes\n heads = wings\ntensors\n'
                'trunk.{i}.mix "in (heads a|b|c d)" = block.{i}.a "(heads a d) in", block.{i}.b "(heads b d) in",\n'
                '  block.{i}.c "(heads c d) in"\ntrunk.{i}.gain "..." = gains "i ..."\n')
    out, why = run.convert(source, '--map', new, '--size', 'heads=%d' % heads)
    verdict('a text alone', why)
    if not out:
        return
    with open(out, 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        made = json.loads(f.read(n))
        body = f.read()
    a, b = made['block.1.b']['data_offsets']
    values = struct.unpack('<%df' % (h * h), body[a:b])
    d = h // heads
    want = [2000 + c * 3 * h + (g * 3 + 1) * d + x for g in range(heads) for x in range(d) for c in range(h)]
    verdict('a text alone: values', None if list(values) == want else 'other values')
    verdict('a text alone: stacked', None if made['gains']['shape'] == [layers, h] else 'shape')
    run.check('a text alone: back', out, tensors(source), '--map', new, '--backwards', '--size', 'heads=%d' % heads)


NEW_MODEL = """map hf:gguf
about an architecture of this test
left when model_type in wombat
right when general.architecture in wombat
strip module.
sizes
 heads = n_paws or wombat.attention.head_count
 two = 2
tensors
 burrow.table = token_embd.weight
 burrow.{i}.qkv "(heads two d) in" = blk.{i}.attn_qkv.weight "(heads d two) in"
 burrow.{i}.norm.{p*} = blk.{i}.attn_norm.{p*}
 ? burrow.head = output.weight
keys
 general.architecture string = "wombat"
 wombat.block_count u32 = depth or count("burrow.{i}.qkv")
 wombat.attention.head_count u32 = n_paws
 wombat.scales f32[] = [0.5, 2]
config left config.json
 architectures = ["WombatForCausalLM"]
 model_type = "wombat"
 n_paws = wombat.attention.head_count
 depth = wombat.block_count
"""


def gguf_by_text(run, folder):
    """An architecture of GGUF that nobody has heard of, by its text among the installed ones: file, keys, quantized types, and back."""
    model, maps = os.path.join(folder, 'wombat'), os.path.join(folder, 'maps')
    os.mkdir(model), os.mkdir(maps)
    with open(os.path.join(maps, 'wombat.map'), 'w') as f:
        f.write(NEW_MODEL)
    new = layouts.Numbers()
    weights = {'burrow.table': new(10, 32), 'burrow.head': new(10, 32)}
    for i in range(2):
        weights.update({'burrow.%d.qkv' % i: new(24, 32), 'burrow.%d.norm.weight' % i: new(32)})
    layouts.write(os.path.join(model, 'model.safetensors'), weights)
    with open(os.path.join(model, 'config.json'), 'w') as f:
        json.dump({'model_type': 'wombat', 'n_paws': 4}, f)
    os.environ['CKPT_MAPS'] = maps
    out, why = run.run(model, os.path.join(folder, 'wombat.gguf'))
    verdict('GGUF by a text alone', why)
    if out:
        tree = subprocess.run([run.ckpt, 'tree', out], stdout=subprocess.PIPE).stdout.decode()
        lacks = [k for k in ("general.architecture: 'wombat'", 'wombat.block_count: 2', 'wombat.attention.head_count: 4', 'wombat.scales: [0.5, 2.0]')
                 if k not in tree]
        verdict('GGUF by a text alone: keys', 'lacks %s' % lacks if lacks else None)
        hub(run, 'GGUF by a text alone: back', out, model)
        run.check('GGUF by a text alone: values', out, tensors(os.path.join(model, 'model.safetensors')), '--map', 'gguf:hf')
        small, why = run.run(model, os.path.join(folder, 'small.gguf'), '--dtype', 'q8_0')
        listed = subprocess.run([run.ckpt, 'ls', small or out], stdout=subprocess.PIPE).stdout.decode()
        verdict('GGUF by a text alone: Q8_0', why or (None if listed.count(' Q8_0 ') == 4 else listed))
    del os.environ['CKPT_MAPS']


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('fixtures')
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Runner(os.path.join(os.path.abspath(a.bin), 'ckpt'), folder)
        for at in sorted(glob.glob(os.path.join(a.fixtures, 'map_*')) + glob.glob(os.path.join(a.fixtures, 'titan_*')) +
                         glob.glob(os.path.join(a.fixtures, 'gguf_*'))):
            fixture(run, at)
        text_alone(run, folder)
        layouts.check(run, folder, tensors)
        gguf_by_text(run, folder)
    print('maps: %d passed, %d failed' % (passed, len(failed)))
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
