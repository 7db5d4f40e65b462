#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bitsandbytes' 8-bit AdamW under the real DeepSpeed: saved on two ranks, written by ckpt, trained on.

    bnb8.py --bin build/bin

The same layout goes on bit for bit.  Other ranks and stages have the same codes and scales, and differ by how sums are taken.  With --moments
fp32 the moments are those of bitsandbytes' own dequantize_blockwise, bit for bit, and torch's AdamW goes on from them near the 8-bit run.
"""
import argparse
import glob
import os
import subprocess
import sys
import tempfile
import warnings

import ranks

os.environ.setdefault('DS_ACCELERATOR', 'cpu')
warnings.simplefilter('ignore')
KEY = '__bnb_optimizer_quant_state__'
BEFORE, AFTER, BATCH = 3, 4, 12
LR = 2e-3


def model(torch):
    torch.manual_seed(11)
    nn = torch.nn
    # every parameter is cut at blocks of 256 on one, two and four ranks
    return nn.Sequential(nn.Linear(64, 256, bias=False), nn.Tanh(), nn.Linear(256, 64, bias=False))


def optimizer(kind, params):
    import bitsandbytes as bnb
    import torch
    if kind == 'adamw':
        return torch.optim.AdamW(params, lr=9., weight_decay=.5)
    make = {'bnb': bnb.optim.AdamW8bit, 'paged': bnb.optim.PagedAdamW8bit, 'lion': bnb.optim.Lion8bit}[kind]
    return make(params, lr=LR, weight_decay=.01)


def train(engine, torch, dist, steps):
    losses = []
    for i in steps:
        torch.manual_seed(100 + i)
        x, y = torch.randn(BATCH, 64), torch.randn(BATCH, 64)
        n, r = dist.get_world_size(), dist.get_rank()
        loss = torch.nn.functional.mse_loss(engine(x[r::n]), y[r::n])
        engine.backward(loss)
        engine.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / n)
    return losses


def rank_main(out, kind, stage, folder, save):
    import deepspeed
    import torch
    import torch.distributed as dist
    deepspeed.init_distributed('gloo')
    config = {'train_micro_batch_size_per_gpu': BATCH // dist.get_world_size(), 'zero_optimization': {'stage': stage},
              'zero_allow_untested_optimizer': True, 'steps_per_print': 10**9, 'gradient_clipping': 0.}
    if stage == 3:
        config['zero_optimization']['stage3_param_persistence_threshold'] = 0
    net = model(torch)
    engine = deepspeed.initialize(model=net, optimizer=optimizer(kind, list(net.parameters())), config=config)[0]
    if save:
        train(engine, torch, dist, range(BEFORE))
        engine.save_checkpoint(folder)
    else:
        engine.load_checkpoint(folder)
    losses = train(engine, torch, dist, range(BEFORE, BEFORE + AFTER))
    if dist.get_rank() == 0:
        torch.save(losses, out)


def run_ranks(world, kind, stage, folder, save=False):
    """The losses after the checkpoint."""
    losses, error = ranks.run_ranks(world, lambda rank, out: rank_main(out, kind, stage, folder, save), 300)
    if error:
        sys.exit('FAIL %s: %s' % (folder, error[-3000:]))
    return losses


def states(folder):
    """The optimizer's state of each rank, by group."""
    import torch
    paths = sorted(glob.glob(os.path.join(folder, '*', '*optim_states.pt')))
    for path in paths:
        osd = torch.load(path, weights_only=False)['optimizer_state_dict']
        yield osd.get('base_optimizer_state', osd.get('optimizer_state_dict'))['state'][0]


def values(state):
    """Both moments of a rank in fp32, by bitsandbytes' own function where they are quantized."""
    import bitsandbytes.functional as F
    q = state.get(KEY)
    if not q:
        return [state['exp_avg'], state['exp_avg_sq']]
    return [F.dequantize_blockwise(q['state%d' % i], absmax=q['absmax%d' % i], code=q['qmap%d' % i], blocksize=256) for i in (1, 2)]


def bits(folder):
    """The moments of all ranks, one behind the other."""
    import torch
    each = [values(s) for s in states(folder)]
    return [torch.cat([e[i] for e in each]).view(torch.int32) for i in (0, 1)]


def apart(got, want):
    return max(abs(a - b) / abs(b) for a, b in zip(got, want))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin')
    a = p.parse_args()
    ranks.prepare(builders=())
    import bitsandbytes  # noqa: F401  before any fork
    import torch
    passed, failed = 0, 0

    def verdict(name, ok, figure=''):
        nonlocal passed, failed
        passed, failed = passed + bool(ok), failed + (not ok)
        print('%s %s %s' % ('ok' if ok else 'FAIL', name, figure), flush=True)

    def reshard(*words):
        return subprocess.run([os.path.join(a.bin, 'ckpt'), 'reshard', '-q', '--strict', *words]).returncode

    with tempfile.TemporaryDirectory() as tmp:
        run = os.path.join(tmp, 'run')
        want = run_ranks(2, 'bnb', 2, run, save=True)
        here = bits(run)
        for name, words, world, kind, stage, limit in (
                ('same', [], 2, 'bnb', 2, 0),
                ('w4', ['-s', '1', '-w', '4'], 4, 'paged', 1, 1e-5),
                ('stage3_w4', ['-s', '3', '-w', '4'], 4, 'bnb', 3, 1e-5),
                ('fp32', ['--moments', 'fp32', '-w', '1'], 1, 'adamw', 2, 1e-3),
                ('fp32_stage3', ['--moments', 'fp32', '-s', '3'], 2, 'adamw', 3, 1e-3)):
            out = os.path.join(tmp, name)
            if reshard(*words, run, out):
                verdict(name, False, 'reshard')
                continue
            if kind != 'adamw':
                verdict(name + ': kept in 8 bits', all(KEY in s and s[KEY]['state1'].dtype == torch.uint8 for s in states(out)))
            if stage < 3:
                verdict(name + ': the moments', all(torch.equal(x, y) for x, y in zip(here, bits(out))))
            far = apart(run_ranks(world, kind, stage, out), want)
            verdict(name + ': losses after it', far <= limit, 'differ by %.2g of the 8-bit run\'s' % far)
        # stage 3 and back is what it was, codes and all
        back = os.path.join(tmp, 'back')
        ok = reshard('-s', '2', '-w', '2', os.path.join(tmp, 'stage3_w4'), back) == 0
        verdict('stage 3 on 4 ranks and back', ok and all(torch.equal(x[KEY][k], y[KEY][k]) for x, y in zip(states(run), states(back)) for k in x[KEY]))
        lion = os.path.join(tmp, 'lion')
        want = run_ranks(2, 'lion', 2, lion, save=True)
        ok = reshard('-s', '1', lion, lion + '1') == 0
        verdict('Lion: losses after it', ok and run_ranks(2, 'lion', 1, lion + '1') == want)
        verdict('Lion is no Adam', reshard('--moments', 'fp32', lion, lion + '2') == 3)
    print('bnb8: %d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
