#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replay recorded DeepSpeed runs with zerotrain and compare losses, norms, rates, scales and final weights, update by update.

  deepspeed.py --bin build/bin [--golden ../shared/golden] [--resume] [--worlds 1,2,3] [--device cuda] [name ...]

The records (runs_w*.json, run_*.safetensors, ckpt_*) were made with DeepSpeed 0.19.8 on the CPU; record_runs.py makes those in
tests/fixtures/golden/decoders.  With --resume the runs also go on from DeepSpeed's own checkpoint after update 10, and save there
and go on with another number of ranks.
"""
import argparse
import array
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

# largest deviation: mean loss (absolute), gradient norm (relative), weights (absolute, None: not limited), their rms
FP32 = (2e-6, 2e-6, 1e-5, 1e-7)
TOLERANCE = {'fp32': FP32, 'adagrad': (5e-5, 2e-4, 2e-4, 5e-6), 'muon': (1e-4, 5e-3, 1.5e-4, 2e-5),
             'bf16': (6e-3, 2.5e-2, None, 1e-3), 'bf16 bert': (1.6e-2, 2e-2, None, 1e-3),
             'bf16 t5': (3.2e-2, 3e-2, None, 2e-3),   # the loss has that dtype, and is above 4
             'fp16': (8e-4, 3e-3, None, 1e-4), 'fp16 bert': (2e-3, 1.5e-3, None, 1e-4)}
RESUMED = {'fp32': 2.4e-7, 'bf16': 1.7e-3, 'fp16': 1.0e-4}
WEIGHT_NOISE = 7e-2  # of gradients that are zero in theory: the bias of keys


def kind_of(config):
    return 'fp16' if config.get('fp16', {}).get('enabled') else 'bf16' if config.get('bf16', {}).get('enabled') else 'fp32'


def unscaled(run):
    """Stage 0 in fp16, where DeepSpeed 0.19.8 forgets to scale the loss: the engine does not follow it there."""
    return kind_of(run['ds_config']) == 'fp16' and run['ds_config'].get('zero_optimization', {}).get('stage', 0) == 0


def tolerance(run):
    kind = kind_of(run['ds_config'])
    optimizer = run['ds_config']['optimizer']['type'].lower()
    if kind == 'fp32':
        return TOLERANCE.get(optimizer, FP32)
    return TOLERANCE[kind + (' bert' if run['model'] == 'bert' else ' t5' if run['model'].startswith('t5') else '')]


def read_floats(path):
    """{name: array of float} of an fp32 safetensors file."""
    with open(path, 'rb') as f:
        data = f.read()
    n = struct.unpack('<Q', data[:8])[0]
    out = {}
    for name, e in json.loads(data[8:8 + n]).items():
        if name == '__metadata__':
            continue
        if e['dtype'] != 'F32':
            raise ValueError('%s: %s is %s' % (path, name, e['dtype']))
        a = array.array('f')
        a.frombytes(data[8 + n + e['data_offsets'][0]:8 + n + e['data_offsets'][1]])
        out[name] = a
    return out


def is_noise(name, i, n):
    """Elements whose gradient is rounding noise: BERT's key biases, the middle third of GPT-2's c_attn.bias."""
    return name.endswith('key.bias') or (name.endswith('c_attn.bias') and n // 3 <= i < 2 * n // 3)


def compare_weights(path, want_path, limit, rms_limit):
    got, want = read_floats(path), read_floats(want_path)
    want = {k[2:] if k.startswith('p/') else k: v for k, v in want.items()}
    worst, noise, squares, count, problems = 0.0, 0.0, 0.0, 0, []
    for name in want:
        if name not in got:
            problems.append('weight %s is missing' % name)
            continue
        if len(got[name]) != len(want[name]):
            problems.append('weight %s has another size' % name)
            continue
        n = len(want[name])
        for i in range(n):
            d = abs(got[name][i] - want[name][i])
            if not d < 1e30:
                problems.append('weight %s is not finite' % name)
                break
            if is_noise(name, i, n):
                noise = max(noise, d)
            else:
                worst = max(worst, d)
                squares += d * d
                count += 1
    rms = math.sqrt(squares / max(count, 1))
    if limit is not None and worst > limit:
        problems.append('weights differ by %.2e, limit %.0e' % (worst, limit))
    if rms > rms_limit:
        problems.append('weights differ by %.2e rms, limit %.0e' % (rms, rms_limit))
    if noise > WEIGHT_NOISE:
        problems.append('key biases differ by %.2e' % noise)
    return problems, 'weights %.1e, rms %.1e' % (worst, rms)


def number(x):
    return math.inf if x in (None, 'inf') else float(x)


def compare_steps(lines, run, first, limits, exact_scale):
    """Problems of the metrics lines against the record from update `first` on, and the largest deviations."""
    problems, worst_loss, worst_norm = [], 0.0, 0.0
    if len(lines) != len(run['mean_loss']) - first:
        problems.append('%d updates, expected %d' % (len(lines), len(run['mean_loss']) - first))
    for k, line in enumerate(lines):
        i = first + k
        if i >= len(run['mean_loss']):
            break
        if line['step'] != i + 1:
            problems.append('line %d is of step %s' % (k, line['step']))
        d = abs(line['loss'] - run['mean_loss'][i]) if line['loss'] is not None else math.inf
        worst_loss = max(worst_loss, d)
        norm = number(run['grad_norm'][i])
        got = number(line['grad_norm'])
        if math.isinf(norm) != math.isinf(got):
            problems.append('step %d: norm %s, expected %s' % (i + 1, got, norm))
        elif not math.isinf(norm):
            worst_norm = max(worst_norm, abs(got - norm) / max(abs(norm), 1e-30))
        if bool(run['overflow'][i]) != line['skipped']:
            problems.append('step %d: skipped %s' % (i + 1, line['skipped']))
        if abs(line['lr'] - run['lr'][i][0]) > 1e-12 * abs(run['lr'][i][0]):
            problems.append('step %d: lr %s, expected %s' % (i + 1, line['lr'], run['lr'][i][0]))
        if exact_scale and run['scale'][i] is not None and line['loss_scale'] != run['scale'][i]:
            problems.append('step %d: scale %s, expected %s' % (i + 1, line['loss_scale'], run['scale'][i]))
    if not worst_loss <= limits[0]:
        problems.append('loss differs by %.2e, limit %.0e' % (worst_loss, limits[0]))
    if not worst_norm <= limits[1]:
        problems.append('norm differs by %.2e, limit %.0e' % (worst_norm, limits[1]))
    return problems, 'loss %.1e, norm %.1e' % (worst_loss, worst_norm)


class Runner:
    def __init__(self, bin_, golden, device='cpu'):
        self.bin, self.golden, self.device, self.verbose = bin_, golden, device, False
        self.work = tempfile.mkdtemp(prefix='ckpt-engine-')
        self.env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')

    def train(self, run, world, args, steps, data=None):
        """Lines of metrics, and what went wrong.  data: another file than the record's."""
        config = os.path.join(self.work, 'ds.json')
        metrics = os.path.join(self.work, 'metrics.jsonl')
        if os.path.exists(metrics):
            os.remove(metrics)
        with open(config, 'w') as f:
            json.dump(run['ds_config'], f)
        first = os.path.join(self.golden, 'run_data_%s.safetensors' % run['model'])
        cmd = [os.path.join(self.bin, 'zerotrain'), '--deepspeed_config', config, '--model',
               os.path.join(self.golden, 'run_model_%s.json' % run['model']), '--init', first, '--data', data or first, '--max-steps', str(steps),
               '--metrics', metrics, '--param-groups', 'decay' if run['groups'] else 'single', '--threads', '1', '--quiet', '--force'] + args
        if self.device != 'cpu':
            cmd += ['--device', self.device]
        if world > 1:
            cmd = ['mpirun', '--oversubscribe', '--bind-to', 'none', '-n', str(world)] + cmd
        p = subprocess.run(cmd, capture_output=True, text=True, env=self.env, timeout=600)
        if p.returncode:
            return [], 'exit %d: %s' % (p.returncode, p.stderr.strip()[:300])
        with open(metrics) as f:
            return [json.loads(x) for x in f], None

    def replay(self, run):
        weights = os.path.join(self.work, 'w.safetensors')
        limits = tolerance(run)
        lines, problem = self.train(run, run['world'], ['--save-weights', weights], len(run['mean_loss']))
        if problem:
            return [problem], ''
        problems, text = compare_steps(lines, run, 0, limits, True)
        name = run.get('weights', run['name'])   # None: not recorded
        more, note = [], 'no weights'
        if name:
            more, note = compare_weights(weights, os.path.join(self.golden, 'run_%s.safetensors' % name), limits[2], limits[3])
        os.remove(weights)
        return problems + more, text + ', ' + note

    def resume(self, run):
        """From DeepSpeed's checkpoint after update 10."""
        limits = list(tolerance(run))
        limits[0] += RESUMED[kind_of(run['ds_config'])]
        lines, problem = self.train(run, run['world'], ['--load', os.path.join(self.golden, run['ckpt'])], len(run['mean_loss']))
        return ([problem], '') if problem else compare_steps(lines, run, 10, limits, True)

    def own(self, run):
        """Saved by the engine after update 10, and resumed by it."""
        folder = os.path.join(self.work, 'run')
        limits = list(tolerance(run))
        limits[0] += RESUMED[kind_of(run['ds_config'])]
        shutil.rmtree(folder, ignore_errors=True)
        lines, problem = self.train(run, run['world'], ['--save', folder], 10)
        if not problem:
            lines, problem = self.train(run, run['world'], ['--load', folder], len(run['mean_loss']))
        return ([problem], '') if problem else compare_steps(lines, run, 10, limits, True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--golden', default='../shared/golden')
    p.add_argument('--worlds', default='1,2,3')
    p.add_argument('--resume', action='store_true')
    p.add_argument('--device', default='cpu')
    p.add_argument('--verbose', action='store_true')
    p.add_argument('names', nargs='*')
    a = p.parse_args()
    r = Runner(a.bin, a.golden, a.device)
    passed = failed = 0
    for world in a.worlds.split(','):
        path = os.path.join(a.golden, 'runs_w%s.json' % world)
        if not os.path.exists(path):
            continue
        with open(path) as f:
            runs = json.load(f)['runs']
        for run in runs:
            if unscaled(run) or (a.names and run['name'] not in a.names):
                continue
            todo = [('', r.replay)]
            if a.resume and 'ckpt' in run and os.path.isdir(os.path.join(a.golden, run['ckpt'])):
                todo += [(' resumed from DeepSpeed', r.resume), (' saved and resumed', r.own)]
            for what, check in todo:
                try:
                    problems, note = check(run)
                except subprocess.TimeoutExpired:
                    problems, note = ['did not end within 600 s'], ''
                if problems:
                    failed += 1
                    print('FAIL %s%s: %s%s' % (run['name'], what, '; '.join(problems[:4]), ' (%s)' % note if note else ''))
                else:
                    passed += 1
                    if a.verbose:
                        print('ok   %s%s: %s' % (run['name'], what, note))
    shutil.rmtree(r.work, ignore_errors=True)
    print('engine: %d passed, %d failed' % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


if __name__ == '__main__':
    main()
