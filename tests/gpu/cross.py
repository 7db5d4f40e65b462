#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""zerotrain on a GPU beside zerotrain on the processor: the same losses, each other's checkpoints, and memory as reckoned.

    cross.py --bin build/bin [--ranks 2] [--memory] [--device cuda] [-v]

Several ranks share the GPU.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'replay'))
from training import Work, ds_config, gpt2, read_lines, write_tokens

STEPS = 6
NEAR = {'fp32': 1e-5, 'bf16': 1e-2, 'fp16': 4e-3}  # relative, of losses: sums are formed in another order


class Checks:
    def __init__(self, work, device):
        self.w, self.device = work, device
        self.model = work.write('gpt2.json', gpt2(width=64, layers=2, positions=32))
        self.data = work.path('tokens.safetensors')
        write_tokens(self.data, 96, 24, 97)

    def train(self, world, device, config, *more):
        """What it measured, and what it said; raises what went wrong."""
        metrics = self.w.fresh('metrics')
        status, _, text = self.w.run(world, ['--deepspeed_config', self.w.write('ds.json', config), '--model', self.model,
                                             '--data', self.data, '--device', device, '--metrics', metrics, *more], timeout=150)
        if status != 0:
            raise RuntimeError('exit %s: %s' % (status, text.strip()[-300:]))
        return read_lines(metrics), text

    def near(self, got, want, kind):
        if len(got) != len(want):
            return ['%d updates, expected %d' % (len(got), len(want))]
        worst = max(abs(a['loss'] - b['loss']) / b['loss'] for a, b in zip(got, want))
        return ['losses off by %.2g, more than %.0e' % (worst, NEAR[kind])] if not worst <= NEAR[kind] else []

    def same(self, world, stage, kind, zero=None):
        c = ds_config(stage, 2, 2, kind, zero)
        return self.near(self.train(world, self.device, c, '--max-steps', STEPS)[0],
                         self.train(world, 'cpu', c, '--max-steps', STEPS)[0], kind)

    def resumed(self, world, stage, kind, there, back):
        c = ds_config(stage, 2, 1, kind)
        folder = self.w.fresh('run')
        want = self.train(world, 'cpu', c, '--max-steps', STEPS)[0]
        self.train(world, there, c, '--max-steps', STEPS // 2, '--save', folder)
        return self.near(self.train(world, back, c, '--max-steps', STEPS, '--load', folder)[0], want[STEPS // 2:], kind)

    def repeated(self, stage, kind):
        c = ds_config(stage, 2, 2, kind)
        runs = [self.train(1, self.device, c, '--max-steps', STEPS, '--deterministic', '--dropout')[0] for _ in range(2)]
        a, b = ([(x['loss'], x['grad_norm']) for x in r] for r in runs)
        return [] if a == b and len(a) == STEPS else ['two runs differ: %s, %s' % (a, b)]

    def memory(self, stage, kind):
        """Bytes that the GPU's rank says it holds: weights, masters, two moments and gradients of P parameters on one rank."""
        _, text = self.train(1, self.device, ds_config(stage, 2, 1, kind), '--max-steps', 1, '--profile')
        line = [x for x in text.splitlines() if 'bytes of this rank' in x][0]
        held = {k: int(v) for k, v in (x.rsplit(' ', 1) for x in line.split('rank: ')[1].split(', '))}
        p = int([x for x in text.splitlines() if ' parameters, ' in x][0].split(': ')[1].split()[0])
        want = {'weights': (4 if kind == 'fp32' else 2) * p, 'masters': 0 if kind == 'fp32' else 4 * p, 'optimizer state': 8 * p}
        return ['%s are %d bytes, reckoned %d' % (k, held[k], n) for k, n in want.items() if not 0 <= held[k] - n <= 0.02 * n + 4096]


def cases(c, a):
    if a.memory:
        for stage in range(4):
            for kind in ('fp32', 'bf16'):
                yield 'memory of stage %d, %s' % (stage, kind), lambda s=stage, k=kind: c.memory(s, k)
        return
    for stage in range(4):
        for kind in ('fp32', 'bf16', 'fp16'):
            yield 'stage %d, %s' % (stage, kind), lambda s=stage, k=kind: c.same(a.ranks, s, k)
    yield 'offload to the host', lambda: c.same(a.ranks, 2, 'bf16', {'offload_optimizer': {'device': 'cpu'}})
    for stage in (1, 2, 3):
        for there, back in ((c.device, 'cpu'), ('cpu', c.device)):
            yield 'stage %d saved on %s, resumed on %s' % (stage, there, back), lambda s=stage, t=there, b=back: c.resumed(
                a.ranks, s, 'bf16', t, b)
    for kind in ('fp32', 'bf16'):
        yield 'repeated, %s' % kind, lambda k=kind: c.repeated(2, k)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--ranks', type=int, default=1)
    p.add_argument('--memory', action='store_true')
    p.add_argument('--device', default='cuda')
    p.add_argument('-v', '--verbose', action='store_true')
    a = p.parse_args()
    c = Checks(Work(a.bin, quiet=False), a.device)
    passed = failed = 0
    for name, check in cases(c, a):
        try:
            problems = check()
        except Exception as x:  # a failure of any kind is a failed check
            problems = ['%s: %s' % (type(x).__name__, x)]
        passed += not problems
        failed += bool(problems)
        if problems or a.verbose:
            print('%s %s: %s' % ('FAIL' if problems else 'ok  ', name, '; '.join(problems)[:500]), flush=True)
    print('cross: %d passed, %d failed' % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


if __name__ == '__main__':
    main()
