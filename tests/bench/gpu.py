#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure training on one GPU in bf16: zerotrain beside PyTorch (compiled, fused AdamW, its own attention), and beside another plugin.

  gpu.py --bin build/bin [--models 124M,1.3B,BERT] [--only ours,torch] [--plugin OLD.so] [--steps 20] [--time 200] [--json FILE]

Both programs get the same shape of model, batch and sequence, random tokens, AdamW with fp32 masters, no dropout.  Each turn is a
process of its own; the first third of its steps does not count (compiling, first allocations).  Figures: the median of tokens/s, and
MFU: the share of the GPU's dense bf16 peak that 6 N + 12 L d T operations a token are (Chowdhery et al. 2022, appendix B; N without
positions), recomputation not counted.  A model with its optimizer offloaded to the host recomputes activations; its profile shows
the time of the host's updates beside that of the copies.  --plugin runs zerotrain a second time with that plugin, --cudnn with
attention by cuDNN (ZEROTRAIN_ATTENTION=cudnn); --turns 2 repeats all in turns.  A last run of the first model prints its profile
and saves a checkpoint with all optimizer state into memory (/dev/shm where it has room).  --time is the limit of all turns
together: what does not fit is skipped, and the script says so, as it does of peers that are not installed.
"""
import argparse
import json
import os
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

VOCAB = 50304  # 50257 rounded up to a multiple of 64


def gpt2(layers, width, heads, batch):
    """Radford et al. 2019; Brown et al. 2020, table 2.1."""
    return {'batch': batch, 'seq': 1024, 'config': {
        'model_type': 'gpt2', 'architectures': ['GPT2LMHeadModel'], 'vocab_size': VOCAB, 'n_positions': 1024, 'n_embd': width,
        'n_layer': layers, 'n_head': heads, 'activation_function': 'gelu_new', 'layer_norm_epsilon': 1e-5, 'initializer_range': 0.02,
        'tie_word_embeddings': True}}


def llama(kind, layers, width, inner, heads, kv, vocab, batch, seq):
    """The shapes of the models' config.json; qwen2 has a bias of queries, keys and values."""
    return {'batch': batch, 'seq': seq, 'config': {
        'model_type': kind, 'architectures': ['LlamaForCausalLM' if kind == 'llama' else 'Qwen2ForCausalLM'], 'hidden_act': 'silu',
        'hidden_size': width, 'intermediate_size': inner, 'num_hidden_layers': layers, 'num_attention_heads': heads,
        'num_key_value_heads': kv, 'vocab_size': vocab, 'max_position_embeddings': 8192, 'rms_norm_eps': 1e-5, 'rope_theta': 500000.0,
        'tie_word_embeddings': True, 'initializer_range': 0.02, 'use_sliding_window': False}}


BERT = {'batch': 128, 'seq': 128, 'config': {
    'model_type': 'bert', 'architectures': ['BertForSequenceClassification'], 'hidden_act': 'gelu', 'hidden_size': 768,
    'intermediate_size': 3072, 'num_hidden_layers': 12, 'num_attention_heads': 12, 'vocab_size': 30522, 'max_position_embeddings': 512,
    'type_vocab_size': 2, 'layer_norm_eps': 1e-12, 'initializer_range': 0.02, 'hidden_dropout_prob': 0.0,
    'attention_probs_dropout_prob': 0.0, 'pad_token_id': 0, 'id2label': {str(i): 'L%d' % i for i in range(6)},
    'label2id': {'L%d' % i: i for i in range(6)}}}
MODELS = {'124M': gpt2(12, 768, 12, 16), '350M': gpt2(24, 1024, 16, 8), '1.3B': gpt2(24, 2048, 16, 8), 'BERT': BERT,
          'Llama-3.2-1B': llama('llama', 16, 2048, 8192, 32, 8, 128256, 4, 2048),
          'Qwen2.5-0.5B': llama('qwen2', 24, 896, 4864, 14, 2, 151936, 16, 1024),
          'Qwen2.5-1.5B': llama('qwen2', 28, 1536, 8960, 12, 2, 151936, 8, 1024),
          # masters and moments in the host's memory: 84 GB
          'Llama-2-7B': dict(llama('llama', 32, 4096, 11008, 32, 32, 32000, 4, 1024), offload=True),
          'tiny': gpt2(2, 64, 2, 2)}
MODELS['Llama-2-7B']['config'].update(tie_word_embeddings=False, max_position_embeddings=4096, rope_theta=10000.0)
MODELS['tiny']['seq'] = 32
MODELS['tiny-offload'] = dict(MODELS['tiny'], offload=True)
PEAK = (('H100', 989e12), ('H200', 989e12), ('A100', 312e12), ('L40S', 362e12), ('4090', 165e12))  # makers' figures, dense bf16


def gpu_name():
    try:
        p = subprocess.run(['nvidia-smi', '--query-gpu=name', '--format=csv,noheader'], capture_output=True, text=True, timeout=60)
        return p.stdout.splitlines()[0].strip() if p.returncode == 0 and p.stdout.strip() else None
    except (OSError, subprocess.TimeoutExpired):
        return None


def layers_of(c):
    return (c['n_layer'], c['n_embd']) if 'n_layer' in c else (c['num_hidden_layers'], c['hidden_size'])


def parameters(c):
    """Parameters without positions."""
    layers, width = layers_of(c)
    if c['model_type'] in ('gpt2', 'bert'):
        return c['vocab_size'] * width + layers * (12 * width * width + 13 * width) + 2 * width
    heads = width * c['num_key_value_heads'] // c['num_attention_heads']
    tables = 1 if c['tie_word_embeddings'] else 2
    return tables * c['vocab_size'] * width + layers * (2 * width * width + 2 * width * heads + 3 * width * c['intermediate_size'])


def mfu(model, speed, name):
    peak = next((p for key, p in PEAK if key in name), None)
    layers, width = layers_of(model['config'])
    per_token = 6 * parameters(model['config']) + 12 * layers * width * model['seq']
    return 100 * per_token * speed / peak if peak else None


# ---- zerotrain ----

def write_data(work, model, samples):
    """The arguments that name random data for the model."""
    numbers = random.Random(1)
    c, seq = model['config'], model['seq']
    if c['model_type'] == 'bert':
        ids = struct.pack('<%dq' % (samples * seq), *(numbers.randrange(5, c['vocab_size']) for _ in range(samples * seq)))
        labels = struct.pack('<%dq' % samples, *(numbers.randrange(6) for _ in range(samples)))
        head = json.dumps({'input_ids': {'dtype': 'I64', 'shape': [samples, seq], 'data_offsets': [0, len(ids)]},
                           'labels': {'dtype': 'I64', 'shape': [samples], 'data_offsets': [len(ids), len(ids) + len(labels)]}}).encode()
        path = os.path.join(work, 'data.safetensors')
        content, more = struct.pack('<Q', len(head)) + head + ids + labels, []
    else:
        path = os.path.join(work, 'tokens.bin')
        content = struct.pack('<%dI' % (samples * seq), *(numbers.randrange(c['vocab_size']) for _ in range(samples * seq)))
        more = ['--token-dtype', 'uint32']
    with open(path, 'wb') as f:
        f.write(content)
    return ['--data', path, *more]


def ours(a, model, steps, limit, plugin=None, attention=None, more=()):
    """{speeds, mib, loss, text, seconds} of a run."""
    work = tempfile.mkdtemp(prefix='bench-gpu-')
    begin = time.monotonic()
    try:
        def path(name, content):
            with open(os.path.join(work, name), 'w') as f:
                json.dump(content, f)
            return os.path.join(work, name)
        ds = {'train_micro_batch_size_per_gpu': model['batch'], 'gradient_accumulation_steps': 1, 'bf16': {'enabled': True},
              'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-4}}, 'zero_optimization': {'stage': 2}, 'steps_per_print': 1,
              'gradient_clipping': 1.0}
        if 'offload' in model:
            ds['zero_optimization']['offload_optimizer'] = {'device': 'cpu'}
            ds['activation_checkpointing'] = {}
            more = [*more, '--profile']
        config = path('ds.json', ds)
        metrics = os.path.join(work, 'metrics')
        env = dict(os.environ, **({'ZEROTRAIN_CUDA_PLUGIN': plugin} if plugin else {}), **({'ZEROTRAIN_ATTENTION': attention} if attention else {}))
        p = subprocess.run([os.path.join(a.bin, 'zerotrain'), '--device', a.device, '--deepspeed_config', config, '--model',
                            path('config.json', model['config']), *write_data(work, model, (steps + 1) * model['batch']), '--seq',
                            str(model['seq']), '--max-steps', str(steps), '--metrics', metrics, '--force', *more],
                           capture_output=True, text=True, timeout=limit, env=env)
        if p.returncode:
            raise RuntimeError('zerotrain: exit %d: %s' % (p.returncode, p.stderr.strip()[-300:]))
        with open(metrics) as f:
            lines = [json.loads(x) for x in f]
        mib = re.findall(r'(\d+) MiB a rank', p.stderr)
        return {'speeds': [x['tokens'] / x['seconds'] for x in lines], 'mib': int(mib[-1]) if mib else 0, 'loss': lines[-1]['loss'],
                'text': p.stdout + p.stderr, 'seconds': time.monotonic() - begin}
    finally:
        shutil.rmtree(work, ignore_errors=True)


def saving(a, model, limit):
    """(bytes, seconds, folder, what the run printed) of a save after some steps."""
    memory = '/dev/shm'
    base = memory if os.path.isdir(memory) and shutil.disk_usage(memory).free > 16 * parameters(model['config']) else None
    out = tempfile.mkdtemp(prefix='bench-gpu-', dir=base)
    try:
        text = ours(a, model, 6, limit, more=['--save', out, '--profile'])['text']
        seconds = float(re.search(r'^profile: save +([0-9.]+) s', text, re.M).group(1))
        return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(out) for f in files), seconds, base or out, text
    finally:
        shutil.rmtree(out, ignore_errors=True)


# ---- PyTorch, in a process of its own ----

def torch_gpt2(c, seq):
    import torch
    from torch import nn
    from torch.nn import functional as F
    width, heads = c['n_embd'], c['n_head']

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, heads, width // heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(width, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, width)
            x = x + self.out(y)
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate='tanh'))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.position = nn.Embedding(VOCAB, width), nn.Embedding(seq, width)
            self.blocks = nn.ModuleList(Block() for _ in range(c['n_layer']))
            self.norm = nn.LayerNorm(width)

        def forward(self, x, _):
            h = self.word(x) + self.position.weight
            for b in self.blocks:
                h = b(h)
            logits = F.linear(self.norm(h), self.word.weight)
            return F.cross_entropy(logits[:, :-1].reshape(-1, VOCAB).float(), x[:, 1:].reshape(-1))

    return Model()


def torch_transformers(c):
    """BERT, Llama, Qwen2 as transformers has them, with torch's attention."""
    import torch
    import transformers

    kind = getattr(transformers, c['architectures'][0])
    config = kind.config_class(**{k: v for k, v in c.items() if k not in ('architectures', 'model_type')})

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = kind._from_config(config, attn_implementation='sdpa').float().train()

        def forward(self, x, y):
            return self.model(input_ids=x, labels=y).loss

    return Model()


def torch_main(a, model):
    import torch
    c, batch, seq = model['config'], model['batch'], model['seq']
    torch.manual_seed(1)
    torch.set_float32_matmul_precision('high')
    net = (torch_gpt2(c, seq) if c['model_type'] == 'gpt2' else torch_transformers(c)).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    step_model = torch.compile(net)
    speeds = []
    for _ in range(a.steps):
        x = torch.randint(5, c['vocab_size'], (batch, seq), device='cuda')
        y = torch.randint(0, 6, (batch,), device='cuda') if c['model_type'] == 'bert' else x
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        with torch.autocast('cuda', dtype=torch.bfloat16):
            loss = step_model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        torch.cuda.synchronize()
        speeds.append(batch * seq / (begin.elapsed_time(end) / 1000))
    print(json.dumps({'speeds': speeds, 'mib': torch.cuda.max_memory_allocated() >> 20, 'loss': loss.item()}))


def peer(a, name, limit):
    args = [sys.executable, os.path.abspath(__file__), '--torch', name, '--steps', str(a.steps), '--batch', str(a.batch), '--seq', str(a.seq)]
    begin = time.monotonic()
    p = subprocess.run(args, capture_output=True, text=True, timeout=limit)
    if p.returncode:
        raise RuntimeError('torch: %s' % (p.stderr.strip().splitlines() or ['exit %d' % p.returncode])[-1][:300])
    return dict(json.loads(p.stdout.strip().splitlines()[-1]), seconds=time.monotonic() - begin)


# ---- turns, table ----

def shape(a, name):
    model = dict(MODELS[name])
    return dict(model, batch=a.batch or model['batch'], seq=a.seq or model['seq'])


def turn(a, name, who, left):
    """One turn, or None: skipped, and said so."""
    limit = min(a.limit, left)
    try:
        if limit < 10:
            raise RuntimeError('no time is left')
        if who == 'torch' and 'offload' in MODELS[name]:
            raise RuntimeError('it keeps its optimizer on the GPU, where this model has no room for it')
        if who == 'torch':
            return peer(a, name, limit)
        got = ours(a, shape(a, name), a.steps, limit, os.path.abspath(a.plugin) if who == 'other' else None,
                   who if who == 'cudnn' else None, ['--profile'] if who == 'cudnn' else [])
        if who == 'cudnn' or 'offload' in MODELS[name]:
            print('\n'.join(x for x in got['text'].splitlines() if re.search('attention by|offloaded|TFLOP|: update', x)), flush=True)
        return got
    except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as x:
        print('%-13s %-6s skipped: %s' % (name, who, str(x)[-300:]), flush=True)
        return None


def row(a, name, who, turns, card):
    model = shape(a, name)
    speeds = [x for t in turns for x in t['speeds'][len(t['speeds']) // 3:]]
    return {'model': name, 'who': who, 'batch': model['batch'], 'seq': model['seq'], 'tokens/s': statistics.median(speeds),
            'ms/step': 1000 * model['batch'] * model['seq'] / statistics.median(speeds), 'mfu': mfu(model, statistics.median(speeds), card),
            'mib': turns[-1]['mib'], 'loss': turns[-1]['loss'], 'turns': len(turns), 'seconds': sum(t['seconds'] for t in turns)}


def show(r, base):
    print('%-13s %-6s %3d x %-5d %9.0f tokens/s %8.1f ms/step  MFU %s %7d MiB  loss %8.4f  %.3f of the first  (%d turns, %.0f s)' % (
        r['model'], r['who'], r['batch'], r['seq'], r['tokens/s'], r['ms/step'], '%.1f %%' % r['mfu'] if r['mfu'] else 'unknown', r['mib'],
        r['loss'], r['tokens/s'] / base, r['turns'], r['seconds']), flush=True)


def saved(a, name, left):
    """The row of a save, or none; prints the profile of its run, too."""
    try:
        n, seconds, where, text = saving(a, shape(a, name), max(min(a.limit, left), 5))
    except (RuntimeError, OSError, ValueError, AttributeError, subprocess.TimeoutExpired) as x:
        print('%-13s saved  skipped: %s' % (name, str(x)[-300:]))
        return []
    print('%-13s saved  %.2f GB in %.2f s: %.1f GB/s (%s)' % (name, n / 1e9, seconds, n / 1e9 / seconds, where), flush=True)
    print('\n'.join(x for x in text.splitlines() if x.startswith('profile: ')), flush=True)
    return [{'model': name, 'who': 'save', 'bytes': n, 'seconds': seconds}]


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--models', default='124M,1.3B,BERT', help='of ' + ', '.join(MODELS))
    p.add_argument('--only', default='ours,torch')
    p.add_argument('--plugin', help='another build of the plugin, to be measured in turns with this one')
    p.add_argument('--cudnn', action='store_true', help='measure with attention by cuDNN, too, in turns')
    p.add_argument('--turns', type=int, default=1)
    p.add_argument('--steps', type=int, default=20)
    p.add_argument('--seq', type=int, default=0, help='tokens of a sample, instead of those of the shape')
    p.add_argument('--batch', type=int, default=0, help='micro batch, instead of that of the shape')
    p.add_argument('--limit', type=int, default=240, help='seconds of one turn')
    p.add_argument('--time', type=int, default=480, help='seconds of all turns together')
    p.add_argument('--no-save', action='store_true', help='measure no save')
    p.add_argument('--json', help='write the rows into this file, too')
    p.add_argument('--device', default='cuda', help='cpu: to try this script where there is no GPU')
    p.add_argument('--torch', help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch:
        return torch_main(a, shape(a, a.torch))
    card = gpu_name() if a.device == 'cuda' else 'the processor'
    if not card:
        print('skipped: nvidia-smi shows no GPU')
        return 0
    print('%s, bf16, %d steps, median of the last two thirds' % (card, a.steps))
    end, failed, rows = time.monotonic() + a.time, 0, []
    beside = ['ours'] + ['other'] * bool(a.plugin) + ['cudnn'] * a.cudnn
    who = [w for w in a.only.split(',') for w in (beside if w == 'ours' else [w])]
    for name in a.models.split(','):
        got = {w: [] for w in who}
        for _ in range(a.turns):
            for w in who:
                t = turn(a, name, w, end - time.monotonic()) if w != 'torch' or not got[w] else None
                got[w] += [t] if t else []
        done = [row(a, name, w, got[w], card) for w in who if got[w]]
        failed += 'ours' in who and not got['ours']
        for r in done:
            show(r, done[0]['tokens/s'])
        rows += done
        if not a.no_save and 'ours' in who and name == a.models.split(',')[0]:
            rows += saved(a, name, end - time.monotonic())
    if a.json:
        with open(a.json, 'w') as f:
            json.dump({'card': card, 'rows': rows}, f, indent=1)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
