#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must not change what zerotrain computes, and what a run that is broken off must not lose.

    equal.py --bin build/bin [--some] [-v] [NAME...]

One global batch gives the same losses at any stage and number of ranks (1e-6 relative in fp32), and bit for bit the same with
and without offload, recomputed activations and other bucket sizes.  A run whose ranks are killed goes on from its last checkpoint
with another number of ranks as if nothing had been; SIGTERM, SIGUSR1 end one early, saved and with exit status 0; what is saved in
the background is what is saved at once; the bytes that a rank holds are those of the formulas of ZeRO.
"""
import argparse
import filecmp
import json
import os
import random
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from training import Work, ds_config, gpt2, kill, ranks_of, read_lines, wait_for_step, write_tokens

STEPS, BATCH, LENGTH, VOCAB = 8, 12, 12, 97
FP32, BF16 = 1e-6, 4e-3     # relative, of losses
LONG = 160                  # updates of runs that are broken off
# --some: each stage, dtype and kind of check once
SOME = ('stage 0, 2 ranks', 'stage 1, 3 ranks', 'stage 2, 2 ranks, accumulation', 'stage 3, 3 ranks, bf16', 'stage 1 fp32 optimizer on the host',
        'stage 2 bf16 small buckets', 'stage 3 bf16 overlap', 'stage 3 fp32 all in files', 'killed while saving in the background',
        'SIGTERM to one rank', 'saved in the background, stage 3', 'keep', 'memory of stage 2, 2 ranks', 'memory of stage 3, 2 ranks')
SMALL = {'reduce_bucket_size': 1500, 'allgather_bucket_size': 1000}
SMALL3 = {'reduce_bucket_size': 3000, 'stage3_prefetch_bucket_size': 1000, 'stage3_param_persistence_threshold': 0,
          'stage3_max_live_parameters': 5000, 'stage3_max_reuse_distance': 2000}


class Checks:
    def __init__(self, work):
        self.w = work
        self.model = work.write('gpt2.json', gpt2())
        self.data = work.path('tokens.safetensors')
        write_tokens(self.data, 240, LENGTH, VOCAB)
        self.known = {}

    def args(self, config, steps, *more):
        return ['--deepspeed_config', self.w.write('ds.json', config), '--model', self.model, '--data', self.data, '--max-steps', steps,
                *more]

    def train(self, world, config, steps=STEPS, *more):
        """Lines of metrics; a failure is an exception."""
        metrics = self.w.fresh('metrics')
        status, _, err = self.w.run(world, self.args(config, steps, '--metrics', metrics, *more))
        if status != 0:
            raise RuntimeError('exit %s: %s' % (status, err.strip()[:400]))
        return read_lines(metrics)

    def reference(self, kind, steps=STEPS):
        """Stage 1 of one rank (stage 0 in 16 bits takes a step more at its start)."""
        if (kind, steps) not in self.known:
            self.known[kind, steps] = self.train(1, ds_config(1, BATCH, kind=kind), steps)
        return self.known[kind, steps]

    # ---- equality ----

    def same_losses(self, world, stage, kind, accumulation=1):
        lines = self.train(world, ds_config(stage, BATCH // world // accumulation, accumulation, kind))
        return near(lines, self.reference(kind), FP32 if kind == 'fp32' else BF16)

    def same_bits(self, world, stage, kind, zero, options=(), more=None):
        """With and without some settings."""
        micro = BATCH // world // 2
        if (world, stage, kind) not in self.known:
            self.known[world, stage, kind] = self.train(world, ds_config(stage, micro, 2, kind))
        got = self.train(world, ds_config(stage, micro, 2, kind, zero, **(more or {})), STEPS, *options)
        want = self.known[world, stage, kind]
        keys = ('step', 'loss', 'lr', 'loss_scale', 'skipped')
        if len(got) != STEPS or [[x[k] for k in keys] for x in got] != [[x[k] for k in keys] for x in want]:
            return ['not the same bits: losses %s, without it %s' % ([x['loss'] for x in got], [x['loss'] for x in want])]
        # squares are summed in double precision, sub-group by sub-group: the norm that is told may end otherwise
        apart = 1e-14 if 'sub_group_size' in zero else 0
        return ['norm %r, without it %r' % (a['grad_norm'], b['grad_norm']) for a, b in zip(got, want)
                if not abs(a['grad_norm'] - b['grad_norm']) <= apart * b['grad_norm']]

    def muon(self, files):
        """Whole matrices are updated by all ranks together, also where the state of each comes from a file."""
        runs = []
        for zero in ({}, {'offload_optimizer': files}):
            config = ds_config(3, BATCH // 2, zero={'reduce_scatter': False, 'sub_group_size': 1500, **zero})
            config['optimizer'] = {'type': 'Muon', 'params': {'lr': 0.002, 'muon_lr': 0.02, 'momentum': 0.95, 'betas': [0.9, 0.95],
                                                              'weight_decay': 0.01, 'ns_method': 'gram'}}
            runs.append([(x['step'], x['loss']) for x in self.train(2, config)])
        return [] if len(runs[0]) == STEPS and runs[0] == runs[1] else ['without files %s, with them %s' % tuple(runs)]

    # ---- breaking off ----

    def interrupted(self, world, config, first, last, send, *options):
        """Run until some update of first .. last, send signals; (process, its stderr, folder, metrics).  On a busy machine a run may be
        through before this process is told: then again."""
        for _ in range(20):
            folder, metrics = self.w.fresh('run'), self.w.fresh('metrics')
            p, err = self.w.start(world, self.args(config, LONG, '--metrics', metrics, '--save', folder, *options))
            if wait_for_step(p, metrics, random.randrange(first, last)):
                send(p.pid)
                status = p.wait(300)
                if len(read_lines(metrics)) < LONG:
                    return status, err, folder, read_lines(metrics)
            elif p.wait(300) != 0:
                break
        raise RuntimeError('not stopped in time: %s' % open(err).read()[-300:])

    def killed(self, world, stage, to_world, to_stage, every=4, options=()):
        """All ranks are killed somewhere; another number goes on, and the curve is that of a run that was left alone."""
        want = self.reference('fp32', LONG)

        def all_ranks(pid):
            for x in ranks_of(pid):
                kill(x, signal.SIGKILL)
        _, _, folder, done = self.interrupted(world, ds_config(stage, BATCH // world), 12, 60, all_ranks, '--save-every', every, '--keep', 2,
                                              *options)
        problems = ['up to the kill: ' + x for x in near(done, want[:len(done)], FP32)]
        lines = self.train(to_world, ds_config(to_stage, BATCH // to_world), LONG, '--load', folder)
        first = lines[0]['step'] if lines else 0
        if not len(done) - 2 * every < first <= len(done) + 1 or (first - 1) % every:
            problems.append('killed after update %d, goes on with %d' % (len(done), first))
        return problems + ['after the kill at %d: %s' % (len(done), x) for x in near(lines, want[first - 1:], FP32)]

    def stopped(self, world, sig, whom):
        """A signal to mpirun, to all ranks or to one: saved, exit status 0, and it goes on from there."""
        want = self.reference('fp32', LONG)

        def those(pid):
            ranks = ranks_of(pid)
            for x in {'mpirun': [pid], 'all': ranks, 'last': ranks[-1:]}[whom]:
                kill(x, sig)
        status, err, folder, done = self.interrupted(world, ds_config(2, BATCH // world), 5, 60, those)
        if status != 0:
            return ['exit status %d: %s' % (status, open(err).read()[-300:])]
        with open(os.path.join(folder, 'latest')) as f:
            if f.read().strip() != 'global_step%d' % len(done):
                return ['the checkpoint is not that of the last update, %d' % len(done)]
        lines = self.train(1, ds_config(3, BATCH), LONG, '--load', folder)
        return near(done + lines, want, FP32)

    # ---- saving ----

    def background(self, world, stage, kind):
        """--async-save writes the same files."""
        config = ds_config(stage, BATCH // world, kind=kind)
        folders = [self.w.fresh('run') for _ in range(2)]
        for folder, more in zip(folders, ((), ('--async-save',))):
            self.train(world, config, STEPS, '--save', folder, '--save-every', 3, *more)
        a, b = (sorted(os.path.relpath(os.path.join(d, f), top) for d, _, files in os.walk(top) for f in files) for top in folders)
        if a != b or not any('global_step3' in x for x in a) or not any('global_step8' in x for x in a):
            return ['files %s and %s' % (a, b)]
        # ".zerotrain" says which run has written them
        _, other, broken = filecmp.cmpfiles(*folders, [x for x in a if not x.endswith('.zerotrain')], shallow=False)
        return ['other content: %s' % ', '.join(other + broken)] if other or broken else []

    def keep(self, world):
        folder = self.w.fresh('run')
        self.train(world, ds_config(2, BATCH // world), STEPS, '--save', folder, '--save-every', 2, '--keep', 2)
        have = sorted(os.listdir(folder))
        return [] if have == ['global_step6', 'global_step8', 'latest'] else ['left: %s' % have]

    # ---- memory ----

    def memory(self, stage, world, width, vocab, layers):
        """Model states in bf16: 2 bytes a weight, 2 a gradient, 12 of master and moments, divided as the stage has it."""
        model = self.w.write('big.json', gpt2(vocab, width, 4, layers, 16))
        data = self.w.fresh('big.safetensors')
        write_tokens(data, world, 8, vocab)
        args = ['--deepspeed_config', self.w.write('ds.json', ds_config(stage, 1, kind='bf16')), '--model', model, '--data', data,
                '--max-steps', 1, '--profile']
        status, _, err = self.w.run(world, args, 120)
        if status != 0:
            return ['exit %s: %s' % (status, err.strip()[:300])]
        got = {k: int(v) for k, v in re.findall(r'(weights|masters|optimizer state|gradients|buffers) (\d+)', err)}
        x = vocab * width + 16 * width + layers * (12 * width * width + 13 * width) + 2 * width
        parts = {0: (2, 2, 12, 1, 1), 1: (2, 2, 12, 1, world), 2: (2, 2, 12, world, world), 3: (2, 2, 12, world, world)}[stage]
        want = {'weights': 2 * x / (world if stage == 3 else 1), 'gradients': 2 * x / parts[3], 'masters': 4 * x / parts[4],
                'optimizer state': 8 * x / parts[4]}
        problems = ['%s: %d bytes, expected %d' % (k, got.get(k, -1), want[k]) for k in want
                    if not abs(got.get(k, -1) - want[k]) <= 0.1 * want[k]]
        if not problems and abs(sum(got[k] for k in want) - sum(want.values())) > 0.1 * sum(want.values()):
            problems.append('together %d bytes, expected %d' % (sum(got[k] for k in want), sum(want.values())))
        return problems


def near(lines, want, limit):
    """Are these the losses, update by update?"""
    if len(lines) != len(want):
        return ['%d updates, expected %d' % (len(lines), len(want))]
    out, worst = [], 0.0
    for a, b in zip(lines, want):
        if a['step'] != b['step'] or a['skipped'] != b['skipped'] or abs(a['lr'] - b['lr']) > 1e-12 * abs(b['lr']):
            out.append('update %s (lr %s), expected %s (lr %s)' % (a['step'], a['lr'], b['step'], b['lr']))
        worst = max(worst, abs(a['loss'] - b['loss']) / b['loss'] if a['loss'] is not None else float('inf'))
    return out[:2] + (['losses off by %.2g, more than %.0e' % (worst, limit)] if not worst <= limit else [])


def cases(c, w):
    for stage in range(4):
        for world in (1, 2, 3, 4):
            yield 'stage %d, %d ranks' % (stage, world), lambda s=stage, n=world: c.same_losses(n, s, 'fp32')
    yield 'stage 2, 2 ranks, accumulation', lambda: c.same_losses(2, 2, 'fp32', 3)
    yield 'stage 3, 3 ranks, accumulation', lambda: c.same_losses(3, 3, 'fp32', 2)
    for stage in (1, 2, 3):
        yield 'stage %d, 3 ranks, bf16' % stage, lambda s=stage: c.same_losses(3, s, 'bf16')
    cpu = {'device': 'cpu', 'pin_memory': True}
    nvme = {'device': 'nvme', 'nvme_path': w.path('swap'), 'pipeline_read': True, 'pipeline_write': True}
    param = {'device': 'nvme', 'nvme_path': w.path('swap')}
    checkpointing = ('--activation-checkpointing',)
    for stage, kind in ((1, 'fp32'), (2, 'bf16'), (3, 'bf16'), (3, 'fp32')):
        name = 'stage %d %s ' % (stage, kind)
        one = lambda zero, opts=(), more=None, s=stage, k=kind: lambda: c.same_bits(2, s, k, zero, opts, more)
        yield name + 'optimizer on the host', one({'offload_optimizer': cpu})
        yield name + 'activations computed again', one({}, checkpointing)
        yield name + 'small buckets', one(SMALL3 if stage == 3 else SMALL)
        if kind == 'bf16':
            yield name + 'overlap', one({'overlap_comm': stage != 3})
        if stage == 3:
            yield name + 'weights and optimizer on the host', one({'offload_optimizer': cpu, 'offload_param': cpu})
            yield name + 'optimizer in files', one({'offload_optimizer': nvme})
            yield name + 'sub-groups in files', one({'offload_optimizer': nvme, 'sub_group_size': 1500})
            yield name + 'all in files', one({'offload_optimizer': nvme, 'offload_param': param, **SMALL3}, checkpointing)
            yield name + 'sub-groups', one({'sub_group_size': 2000})
    yield 'Muon, its state in files', lambda: c.muon(nvme)
    yield 'stage 0 activations computed again', lambda: c.same_bits(2, 0, 'fp32', {}, checkpointing)
    yield 'killed, 2 to 3 ranks', lambda: c.killed(2, 2, 3, 2)
    yield 'killed, 3 to 1, stage 3 to 1', lambda: c.killed(3, 3, 1, 1)
    yield 'killed while saving in the background', lambda: c.killed(2, 3, 2, 3, 1, ('--async-save',))
    yield 'SIGTERM, one process', lambda: c.stopped(1, signal.SIGTERM, 'all')
    yield 'SIGTERM to every rank', lambda: c.stopped(2, signal.SIGTERM, 'all')
    yield 'SIGTERM to one rank', lambda: c.stopped(2, signal.SIGTERM, 'last')
    yield 'SIGUSR1 to mpirun', lambda: c.stopped(2, signal.SIGUSR1, 'mpirun')
    yield 'saved in the background, stage 2', lambda: c.background(2, 2, 'bf16')
    yield 'saved in the background, stage 3', lambda: c.background(3, 3, 'fp32')
    yield 'keep', lambda: c.keep(2)
    for stage in range(4):
        for world in (1, 2, 4):
            yield 'memory of stage %d, %d ranks' % (stage, world), lambda s=stage, n=world: c.memory(s, n, 256, 8192, 4)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--some', action='store_true')
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('--seed', type=int, default=int(time.time()))
    p.add_argument('only', nargs='*', help='parts of names')
    a = p.parse_intermixed_args()
    random.seed(a.seed)
    passed = failed = 0
    left = set(SOME) if a.some else set()
    w = Work(a.bin)
    os.mkdir(w.path('swap'))
    c = Checks(w)
    for name, check in cases(c, w):
        if a.only and not any(x in name for x in a.only) or a.some and name not in SOME:
            continue
        left.discard(name)
        start = time.time()
        try:
            problems = check()
        except Exception as x:  # a failure of any kind is a failed check
            problems = ['%s: %s' % (type(x).__name__, x)]
        passed += not problems
        failed += bool(problems)
        if problems:
            print('FAIL %s: %s' % (name, '; '.join(problems[:3])[:700]), flush=True)
        elif a.verbose:
            print('ok   %s (%.1f s)' % (name, time.time() - start), flush=True)
    if left:
        failed += 1
        print('FAIL no such cases: %s' % ', '.join(sorted(left)))
    print('engine equality: %d passed, %d failed%s' % (passed, failed, ' (--seed %d)' % a.seed if failed else ''))
    sys.exit(1 if failed or not passed else 0)


if __name__ == '__main__':
    main()
