#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure training on one GPU: zerotrain beside PyTorch (compiled, fused AdamW, its own attention), in bf16.

  gpu.py --bin build/bin [--models 124M,1.3B] [--only ours,torch] [--steps 20] [--seq 1024] [--device cuda]

Both get the same shape of model, batch and sequence, random tokens, AdamW with fp32 masters, no dropout.  Each turn is a process of
its own; the first third of its steps does not count (compiling, first allocations).  Figures: the median of tokens/s, and MFU: the
share of the GPU's dense bf16 peak that 6 N + 12 L d T operations a token are (Chowdhery et al. 2022, appendix B; N without
positions), recomputation not counted.  Last, a checkpoint with all optimizer state is saved into memory (/dev/shm where it has
room).  What cannot be measured here is skipped and said so.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

SHAPES = {  # layers, width, heads, micro batch: Radford et al. 2019; Brown et al. 2020, table 2.1 (1.3B)
    '124M': (12, 768, 12, 16), '350M': (24, 1024, 16, 8), '1.3B': (24, 2048, 16, 8)}
VOCAB = 50304  # 50257 rounded up to a multiple of 64
PEAK = (('H100', 989e12), ('H200', 989e12), ('A100', 312e12), ('L40S', 362e12), ('4090', 165e12))  # makers' figures, dense bf16


def gpu_name():
    try:
        p = subprocess.run(['nvidia-smi', '--query-gpu=name', '--format=csv,noheader'], capture_output=True, text=True, timeout=60)
        return p.stdout.splitlines()[0].strip() if p.returncode == 0 and p.stdout.strip() else None
    except (OSError, subprocess.TimeoutExpired):
        return None


def parameters(shape):
    layers, width = shape[0], shape[1]
    return VOCAB * width + layers * (12 * width * width + 13 * width) + 2 * width


def mfu(shape, seq, speed, name):
    peak = next((p for key, p in PEAK if key in name), None)
    per_token = 6 * parameters(shape) + 12 * shape[0] * shape[1] * seq
    return '%.1f %%' % (100 * per_token * speed / peak) if peak else 'no peak known'


# ---- zerotrain ----

def ours(a, shape, steps, more=()):
    """(tokens/s of each step, MiB, last loss, what it printed) of a run."""
    layers, width, heads, batch = shape
    work = tempfile.mkdtemp(prefix='bench-gpu-')
    try:
        def path(name, content):
            p = os.path.join(work, name)
            with open(p, 'wb' if isinstance(content, bytes) else 'w') as f:
                f.write(content if isinstance(content, bytes) else json.dumps(content))
            return p
        n = (steps + 1) * batch * a.seq
        x, tokens = 12345, bytearray()
        for _ in range(n):
            x = (x * 1103515245 + 12345) & 0x7fffffff
            tokens += struct.pack('<H', (x >> 8) % VOCAB)
        model = path('config.json', {'model_type': 'gpt2', 'architectures': ['GPT2LMHeadModel'], 'vocab_size': VOCAB, 'n_positions': a.seq,
                                     'n_embd': width, 'n_layer': layers, 'n_head': heads, 'activation_function': 'gelu_new',
                                     'layer_norm_epsilon': 1e-5, 'initializer_range': 0.02, 'tie_word_embeddings': True})
        config = path('ds.json', {'train_micro_batch_size_per_gpu': batch, 'gradient_accumulation_steps': 1, 'bf16': {'enabled': True},
                                  'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-4}}, 'zero_optimization': {'stage': 2},
                                  'steps_per_print': 1, 'gradient_clipping': 1.0})
        metrics = os.path.join(work, 'metrics')
        p = subprocess.run([os.path.join(a.bin, 'zerotrain'), '--device', a.device, '--deepspeed_config', config, '--model', model, '--data',
                            path('tokens.bin', bytes(tokens)), '--token-dtype', 'uint16', '--seq', str(a.seq), '--max-steps', str(steps),
                            '--metrics', metrics, '--force', *more], capture_output=True, text=True, timeout=a.limit)
        if p.returncode:
            raise RuntimeError('zerotrain: exit %d: %s' % (p.returncode, p.stderr.strip()[-300:]))
        with open(metrics) as f:
            lines = [json.loads(x) for x in f]
        mib = re.findall(r'(\d+) MiB a rank', p.stderr)
        return [x['tokens'] / x['seconds'] for x in lines], int(mib[-1]) if mib else 0, lines[-1]['loss'], p.stdout + p.stderr
    finally:
        shutil.rmtree(work, ignore_errors=True)


def saving(a, shape):
    """(bytes, seconds) of a save after two steps."""
    need = 16 * parameters(shape)
    memory = '/dev/shm'
    base = memory if os.path.isdir(memory) and shutil.disk_usage(memory).free > need else None
    out = tempfile.mkdtemp(prefix='bench-gpu-', dir=base)
    try:
        text = ours(a, shape, 2, ['--save', out, '--profile'])[3]
        seconds = float(re.search(r'^profile: save +([0-9.]+) s', text, re.M).group(1))
        return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(out) for f in files), seconds, base or out
    finally:
        shutil.rmtree(out, ignore_errors=True)


# ---- PyTorch, in a process of its own ----

def torch_main(a, shape):
    import torch
    from torch import nn
    from torch.nn import functional as F
    layers, width, heads, batch = shape

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
            self.word, self.position = nn.Embedding(VOCAB, width), nn.Embedding(a.seq, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)

        def forward(self, x):
            h = self.word(x) + self.position.weight
            for b in self.blocks:
                h = b(h)
            logits = F.linear(self.norm(h), self.word.weight)
            return F.cross_entropy(logits[:, :-1].reshape(-1, VOCAB).float(), x[:, 1:].reshape(-1))

    torch.manual_seed(1)
    torch.set_float32_matmul_precision('high')
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    step_model = torch.compile(model)
    speeds = []
    for _ in range(a.steps):
        x = torch.randint(0, VOCAB, (batch, a.seq), device='cuda')
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        with torch.autocast('cuda', dtype=torch.bfloat16):
            loss = step_model(x)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        torch.cuda.synchronize()
        speeds.append(batch * a.seq / (begin.elapsed_time(end) / 1000))
    print(json.dumps({'speeds': speeds, 'mib': torch.cuda.max_memory_allocated() >> 20, 'loss': loss.item()}))


def peer(a, name):
    args = [sys.executable, os.path.abspath(__file__), '--torch', name, '--steps', str(a.steps), '--seq', str(a.seq), '--batch', str(a.batch)]
    p = subprocess.run(args, capture_output=True, text=True, timeout=a.limit)
    if p.returncode:
        raise RuntimeError('torch: %s' % (p.stderr.strip().splitlines() or ['exit %d' % p.returncode])[-1][:300])
    got = json.loads(p.stdout.strip().splitlines()[-1])
    return got['speeds'], got['mib'], got['loss']


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--models', default='124M,1.3B')
    p.add_argument('--only', default='ours,torch')
    p.add_argument('--steps', type=int, default=20)
    p.add_argument('--seq', type=int, default=1024)
    p.add_argument('--batch', type=int, default=0, help='micro batch, instead of that of the shape')
    p.add_argument('--limit', type=int, default=240, help='seconds of one turn')
    p.add_argument('--device', default='cuda', help='cpu: to try this script where there is no GPU')
    p.add_argument('--torch', help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch:
        shape = SHAPES[a.torch]
        return torch_main(a, shape[:3] + (a.batch or shape[3],))
    name = gpu_name() if a.device == 'cuda' else 'the processor'
    if not name:
        print('skipped: nvidia-smi shows no GPU')
        return 0
    print('%s, bf16, %d tokens a sample, %d steps, median of the last two thirds' % (name, a.seq, a.steps))
    failed = 0
    for model in a.models.split(','):
        shape = SHAPES[model]
        shape = shape[:3] + (a.batch or shape[3],)
        base = None
        for who in a.only.split(','):
            try:
                speeds, mib, loss = peer(a, model) if who == 'torch' else ours(a, shape, a.steps)[:3]
            except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as x:
                print('%-5s %-6s skipped: %s' % (model, who, x))
                failed += who == 'ours'
                continue
            speed = statistics.median(speeds[len(speeds) // 3:])
            base = base or speed
            print('%-5s %-6s batch %d  %9.0f tokens/s  %6.1f ms/step  MFU %s  %d MiB  last loss %.3f  %.2f of the first' % (
                model, who, shape[3], speed, 1000 * shape[3] * a.seq / speed, mfu(shape, a.seq, speed, name), mib, loss, speed / base),
                flush=True)
        try:
            n, seconds, where = saving(a, shape)
            print('%-5s saved  %.2f GB in %.2f s: %.1f GB/s (%s)' % (model, n / 1e9, seconds, n / 1e9 / seconds, where), flush=True)
        except (RuntimeError, OSError, ValueError, AttributeError, subprocess.TimeoutExpired) as x:
            print('%-5s saved  skipped: %s' % (model, x))
            failed += 1
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
