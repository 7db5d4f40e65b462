#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `ckpt mem` says that an update sends is what zerotrain counts on its own wires, to the byte, on every rank.

    wires.py [--some] --bin build/bin [-v] [NAME...]

Formulas are of K parameters and N ranks.  What a run moves beside them is named here, and nothing else may differ:

  rest       stage 0: the K mod N elements that are left when a sum is cut into slices go from everyone to everyone;
             and so does a whole sum of at most 64 KiB over all ranks
  padding    stages 1, 2: a group is padded to a multiple of 2 N elements; stage 3: each parameter to one of N
  head       stage 3: the last layer's weights stay from its forward to its backward pass
  tied       stage 3: weights that two layers use are gathered for each
  persistent stage 3: parameters up to stage3_param_persistence_threshold are gathered once in an update

Without mpirun, or where zerotrain is built without MPI, nothing is run, and the closing line says so.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'replay'))
from training import ENV, Work, ds_config, gpt2, write_tokens

ENV.setdefault('PMIX_MCA_gds', 'hash')
STEPS, LENGTH, VOCAB, SMALL = 2, 8, 1021, 64 << 10
LLAMA = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': VOCAB, 'hidden_size': 48, 'intermediate_size': 88,
         'num_hidden_layers': 3, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 32, 'hidden_act': 'silu',
         'rms_norm_eps': 1e-5, 'rope_theta': 10000.0, 'tie_word_embeddings': False, 'initializer_range': 0.02, 'attention_bias': False}
# config.json, and the pattern of the last layer's parameters; what is tied to an earlier layer's
MODELS = {'gpt2': (gpt2(VOCAB, 64, 4, 2, 16), r'ln_f\.', r'wte\.'), 'tiny': (gpt2(VOCAB // 10, 20, 4, 2, 16), r'ln_f\.', r'wte\.'),
          'llama': (LLAMA, r'^model\.norm\.|^lm_head\.', None)}
LINE = re.compile(r'^profile: rank (\d+) in (\d+) updates: sent (\d+), received (\d+) bytes of tensors', re.M)


class Wires:
    def __init__(self, work, bin_):
        self.w, self.ckpt, self.known = work, os.path.join(bin_, 'ckpt'), {}
        self.data = work.path('tokens.safetensors')
        write_tokens(self.data, 96, LENGTH, VOCAB // 10)

    def zerotrain(self, world, name, config, *more):
        model = self.w.write('config.json', MODELS[name][0])
        status, out, err = self.w.run(world, ['--deepspeed_config', self.w.write('ds.json', config), '--model', model, '--data', self.data,
                                              '--max-steps', STEPS, *more])
        if status != 0:
            raise RuntimeError('exit %s: %s' % (status, err.strip()[-400:]))
        return err

    def ask(self, *words):
        p = subprocess.run([self.ckpt] + [str(x) for x in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
        if p.returncode != 0:
            raise RuntimeError('ckpt %s: %s' % (words[0], p.stderr.strip()))
        return json.loads(p.stdout)

    def model(self, name):
        """A folder with the weights, and the elements of each parameter, those that are shared once."""
        if name not in self.known:
            folder = self.w.fresh('model')
            self.zerotrain(1, name, ds_config(0, 1), '--save-model', folder)
            tensors = self.ask('ls', '--json', folder)['tensors']
            sizes = {}
            for t in tensors:
                n = 1
                for x in t['shape']:
                    n *= x
                sizes[t['name']] = n
            self.known[name] = folder, sizes
        return self.known[name]

    def beside(self, name, world, stage, accumulation, wide, wide_sums, threshold):
        """Bytes that all ranks send beside the formula's, by their names."""
        _, sizes = self.model(name)
        _, head, tied = MODELS[name]
        k, others, weight, gradient = sum(sizes.values()), world - 1, 4 if wide else 2, 4 if wide_sums else 2
        if stage == 0:
            left = k if world * k * gradient <= SMALL else k % world
            return {'rest': (world - 2) * others * left * gradient}
        if stage < 3:
            padding = -k % (2 * world)
            return {'padding': padding * others * ((gradient if stage == 1 else 0) + weight)}
        padded = {x: n + -n % world for x, n in sizes.items()}
        extra = {'padding': (sum(padded.values()) - k) * (2 * weight + gradient) * accumulation, 'head': 0, 'tied': 0, 'persistent': 0}
        for x, n in padded.items():
            more = -1 if re.search(head, x) else 1 if tied and re.search(tied, x) else 0
            if sizes[x] <= threshold:
                extra['persistent'] += (1 - 2 * accumulation) * n * weight
            elif more:
                extra['head' if more < 0 else 'tied'] += more * n * weight * accumulation
        return {x: n * others for x, n in extra.items()}

    def shares(self, total, name, world, stage, accumulation, wide_sums):
        """What each rank sends, and receives, of the bytes of all."""
        if stage != 2:
            return [(total // world, total // world)] * world
        # a rank sends what it does not own, and receives what it owns from each of the others
        k = sum(self.model(name)[1].values())
        gradient, slice_ = 4 if wide_sums else 2, (k + -k % (2 * world)) // world
        own = [max(0, min(slice_, k - r * slice_)) for r in range(world)]
        published = (total - accumulation * gradient * (world - 1) * k) // world
        return [(published + accumulation * gradient * (k - n), published + accumulation * gradient * (world - 1) * n) for n in own]

    def check(self, name, world, stage, accumulation, kind, sums, shared, threshold):
        folder, _ = self.model(name)
        more = {'communication_data_type': sums} if sums else {}
        zero = {'stage3_param_persistence_threshold': threshold} if stage == 3 else None
        ENV['ZT_COMM_SHARED'] = '1' if shared else '0'
        config = ds_config(stage, 1, accumulation, kind, zero, **more)
        if kind == 'fp16':
            config[kind]['loss_scale'] = 16   # an update that is skipped publishes no weights
        err = self.zerotrain(world, name, config, '--profile')
        counted = {int(r): (int(s), int(v)) for r, n, s, v in LINE.findall(err) if int(n) == STEPS}
        if sorted(counted) != list(range(world)):
            return ['ranks told: %s' % err.strip()[-300:]]
        words = ['mem', '--json', '--gpus', world, '--dtype', kind, '--accumulation', accumulation] + (['--comm-dtype', sums] if sums else [])
        told = {x['scheme']: x for x in self.ask(*words, folder)['traffic']}['all-reduce' if stage == 0 else 'zero-%d' % stage]
        beside = self.beside(name, world, stage, accumulation, kind == 'fp32', (sums or kind) == 'fp32', threshold)
        total = told['all_bytes'] + sum(beside.values())
        want = self.shares(total, name, world, stage, accumulation, (sums or kind) == 'fp32')
        problems = ['rank %d: sent, received %s in %d updates; the formula says %d of all ranks, beside it are %s: %s for each update' %
                    (r, counted[r], STEPS, told['all_bytes'], beside, want[r])
                    for r in range(world) if counted[r] != (want[r][0] * STEPS, want[r][1] * STEPS)]
        if told['rank_bytes'] != -(-told['all_bytes'] // world):
            problems.append('rank_bytes %d of all_bytes %d on %d ranks' % (told['rank_bytes'], told['all_bytes'], world))
        return problems


def cases(some):
    """Model, ranks, stage, micro batches, dtype, dtype of sums, shared memory or messages, stage 3's persistence threshold."""
    if some:
        return [('gpt2', 3, 0, 2, 'fp32', None, True, 0), ('gpt2', 2, 1, 2, 'bf16', 'fp32', True, 0), ('llama', 3, 2, 2, 'bf16', None, True, 0),
                ('gpt2', 3, 3, 2, 'bf16', None, False, 100)]
    found, i = [], 0
    for world in (2, 3, 4):
        for stage in range(4):
            for accumulation in (1, 3):
                kind, sums = (('fp32', None), ('bf16', None), ('bf16', 'fp32'), ('fp16', None))[(i + stage) % 4]
                found.append((('gpt2', 'llama', 'tiny')[i % 3], world, stage, accumulation, kind, sums, i % 2 == 0, (0, 100000, 64)[i % 3]))
                i += 1
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--some', action='store_true')
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('only', nargs='*', help='parts of names')
    a = p.parse_intermixed_args()
    if not shutil.which('mpirun'):
        print('skipped: no mpirun')
        print('wires: 0 passed, 0 failed')
        return 0
    w = Wires(Work(a.bin), a.bin)
    config = w.w.write('ds.json', ds_config(1, 1))
    probe = w.w.run(2, ['--deepspeed_config', config, '--print-config', '--model', w.w.write('config.json', MODELS['tiny'][0])])
    if probe[0] != 0 and 'built without' in probe[2]:
        print('skipped: built without MPI')
        print('wires: 0 passed, 0 failed')
        return 0
    passed = failed = 0
    for case in cases(a.some):
        label = '%s, %d ranks, stage %d, %d micro batches, %s, sums in %s, %s, threshold %d' % (
            case[:5] + (case[5] or case[4], 'memory' if case[6] else 'messages', case[7]))
        if a.only and not any(x in label for x in a.only):
            continue
        try:
            problems = w.check(*case)
        except Exception as x:  # a failure of any kind is a failed check
            problems = ['%s: %s' % (type(x).__name__, x)]
        passed += not problems
        failed += bool(problems)
        if problems:
            print('FAIL %s: %s' % (label, '; '.join(problems[:2])[:900]), flush=True)
        elif a.verbose:
            print('ok   %s' % label, flush=True)
    print('wires: %d passed, %d failed' % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
