#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs on a device whose memory the host cannot reach give the bits of runs on the processor.

    far.py --bin build/bin --plugin build/far_device.so [-v] [NAME...]

The plugin computes by the processor's operations (tests/gpu/far_device.c) and ends the process when anybody above them touches
its memory or gives it the host's.  So what differs here, or dies, is a mistake of the runtime, of saving, of loading or of a
communicator.
"""
import argparse
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'replay'))
import generate
import training
from training import Work, ds_config, gpt2, read_lines, write_tokens

SENTIMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures', 'sentiment')
LLAMA = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': 97, 'hidden_size': 24, 'intermediate_size': 40,
         'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 32, 'hidden_act': 'silu',
         'rms_norm_eps': 1e-6, 'initializer_range': 0.02, 'tie_word_embeddings': False, 'rope_theta': 10000.0}
STEPS = 4
MOST = 17 << 20  # bytes: a save's buffers have 16 MiB at most


def optimizer(name, **params):
    return {'optimizer': {'type': name, 'params': {'lr': 0.004, **params}}}


class Checks:
    def __init__(self, work):
        self.w = work
        self.models = {'gpt2': work.write('gpt2.json', gpt2()), 'llama': work.write('llama.json', LLAMA)}
        self.data = work.path('tokens.safetensors')
        write_tokens(self.data, 96, 12, 97)

    def run(self, world, device, args):
        status, out, err = self.w.run(world, list(args) + ['--device', device], 120)
        if status != 0:
            raise RuntimeError('%s: exit %s: %s' % (device, status, err.strip()[-500:]))
        if 'far device' in err:
            raise RuntimeError('%s: %s' % (device, err.strip()[-500:]))
        return out

    def train(self, world, device, config, *more, model='gpt2'):
        """What a run computed: metrics without times, and all weights."""
        metrics, weights = self.w.fresh('metrics'), self.w.fresh('w.safetensors')
        self.run(world, device, ['--deepspeed_config', self.w.write('ds.json', config), '--model', self.models[model], '--data', self.data,
                                 '--max-steps', STEPS, '--metrics', metrics, '--save-weights', weights, *more])
        lines = [{k: v for k, v in x.items() if k != 'seconds'} for x in read_lines(metrics)]
        with open(weights, 'rb') as f:
            return lines, f.read()

    def same(self, world, config, *more, model='gpt2'):
        near, far = (self.train(world, d, config, *more, model=model) for d in ('cpu', 'cuda'))
        out = [] if len(far[0]) == STEPS else ['%d updates' % len(far[0])]
        for a, b in zip(near[0], far[0]):
            if a != b:
                out.append('%s, on the processor %s' % (b, a))
        return out[:2] + (['weights differ'] if near[1] != far[1] else [])

    def resumed(self, world, stage, there, back, *options):
        """Saved on one device, gone on with on the other, as if nothing had been."""
        config = ds_config(stage, 2, kind='bf16')
        want = self.train(world, 'cpu', config)
        folder = self.w.fresh('run')
        args = ['--deepspeed_config', self.w.write('ds.json', config), '--model', self.models['gpt2'], '--data', self.data]
        self.run(world, there, args + ['--max-steps', 2, '--save', folder, *options])
        got = self.train(world, back, config, '--load', folder)
        # at stage 0 in 16 bits a resumed run begins from rounded masters, as DeepSpeed's does
        return [] if got[0] == want[0][2:] and got[1] == want[1] else ['losses %s, expected %s' % (
            [x['loss'] for x in got[0]], [x['loss'] for x in want[0][2:]])]

    def saved_alike(self, world, stage, kind, *options):
        """The files of both are the same, byte for byte, but for the mark that each run draws for itself."""
        folders = []
        for device in ('cpu', 'cuda'):
            folders.append(self.w.fresh('run'))
            self.run(world, device, ['--deepspeed_config', self.w.write('ds.json', ds_config(stage, 2, kind=kind)), '--model',
                                     self.models['gpt2'], '--data', self.data, '--max-steps', 2, '--save', folders[-1], *options])
        out = []
        for top, _, names in os.walk(folders[0]):
            for name in names:
                path = os.path.join(top, name)
                if name == '.zerotrain':
                    continue
                other = os.path.join(folders[1], os.path.relpath(path, folders[0]))
                if not os.path.exists(other) or open(path, 'rb').read() != open(other, 'rb').read():
                    out.append('%s differs' % os.path.relpath(path, folders[0]))
        return out[:3]

    def in_pieces(self, stage, *options):
        """No copy is as long as a partition, neither in a save nor in a resume."""
        folder = self.w.fresh('run')
        args = ['--deepspeed_config', self.w.write('ds.json', ds_config(stage, 2, kind='bf16')), '--model',
                self.w.write('wide.json', gpt2(50000, 128, 2, 1)), '--data', self.data]
        training.ENV['FAR_DEVICE_MOST'] = str(MOST)
        try:
            self.run(1, 'cuda', args + ['--max-steps', 1, '--save', folder, *options])
            self.run(1, 'cuda', args + ['--max-steps', 2, '--load', folder])
        finally:
            del training.ENV['FAR_DEVICE_MOST']
        return []

    def failing(self, world, stage, *options):
        """A device that fails in any of its copies to the host: an error, the old checkpoint, nothing of the new one."""
        old, out, told, n = self.w.fresh('run'), [], 0, 0
        args = ['--deepspeed_config', self.w.write('ds.json', ds_config(stage, 2, kind='bf16')), '--model', self.models['gpt2'], '--data',
                self.data]
        self.run(world, 'cuda', args + ['--max-steps', 1, '--save', old])
        status = 1
        while status != 0 and not out:
            training.ENV['FAR_DEVICE_GETS'] = str(n)
            status, _, err = self.w.run(world, args + ['--device', 'cuda', '--load', old, '--max-steps', 2, '--save', old, *options], 60)
            del training.ENV['FAR_DEVICE_GETS']
            names = sorted(os.listdir(old))
            if status != 0:
                told += 1
                bad = status is None or status < 0 or 'cannot be read any more' not in err
                out += ['get %d: exit %s: %s' % (n, status, err.strip()[-200:])] * bad
                out += ['get %d: %s' % (n, names)] * (names != ['global_step1', 'latest'])
                out += ['get %d: latest' % n] * (open(os.path.join(old, 'latest')).read().strip() != 'global_step1')
            n += 1 + n // (8 if world == 1 else 2)  # what mpirun takes to end
        return out or ['nothing failed'] * (told < 3)

    def classified(self, world):
        """Evaluation and prediction of a classifier of text."""
        base = ['--deepspeed_config', self.w.write('ds.json', ds_config(3, 8)), '--model', SENTIMENT, '--seq', 24]
        data, weights = os.path.join(SENTIMENT, 'eval.tsv'), self.w.fresh('first.safetensors')
        self.run(1, 'cpu', base + ['--data', data, '--max-steps', 1, '--save-weights', weights])
        base += ['--init', weights]
        out = [self.run(world, d, base + ['--evaluate', '--eval-data', data]) for d in ('cpu', 'cuda')]
        out += [self.run(world, d, base + ['--predict', '-', '--data', data]) for d in ('cpu', 'cuda')]
        return ['scores differ: %s, %s' % tuple(out[:2])] * (out[0] != out[1]) + ['predictions differ'] * (out[2] != out[3])

    def generated(self, name, want):
        """Texts are those of the processor."""
        folder = self.w.fresh(name)
        generate.write_folder(folder, name, want['ends'])
        got = generate.generate(self.w, folder, (3, 2, 2, False), '--device', 'cuda')
        return [] if got == want['texts'] else ['%s, on the processor %s' % (got, want['texts'])]

    def refused(self, config, text, *more):
        status, _, err = self.w.run(1, ['--deepspeed_config', self.w.write('ds.json', config), '--model', self.models['gpt2'], '--data',
                                        self.data, '--max-steps', 1, '--device', 'cuda', *more])
        return [] if status and status > 0 and text in err else ['exit %s: %s' % (status, err[-300:])]


    def offload_times(self):
        """A profile shows the time of updates on the host, and only where there are any."""
        problems = []
        for zero, wanted in (({'offload_optimizer': {'device': 'cpu'}}, True), ({}, False)):
            status, _, err = self.w.run(1, ['--deepspeed_config', self.w.write('ds.json', ds_config(2, 2, kind='bf16', zero=zero)), '--model',
                                            self.models['gpt2'], '--data', self.data, '--max-steps', 2, '--device', 'cuda', '--profile'])
            times = re.findall('offloaded optimizer: updates on the host ([0-9.]+) s, copies at the same time ([0-9.]+) s', err)
            if status != 0 or len(times) != int(wanted):
                problems.append('%s: exit %s, %s' % (zero, status, err[-400:]))
        return problems

    def slots(self):
        """--slots, which the launcher makes of --include: each rank takes the GPU of its number, or says that there is none."""
        problems = []
        training.ENV['FAR_DEVICE_GPUS'] = '0xa'  # 1 and 3 of four
        for slots, said in (('1,3', ''), ('3,1', ''), ('1,2', 'this machine has no GPU 2'), ('1,4', 'slot 4 of rank 1'), ('1', 'a GPU number for rank 1'),
                            ('1,x', 'a GPU number for rank 1')):
            status, _, err = self.w.run(2, ['--deepspeed_config', self.w.write('ds.json', ds_config(2, 2)), '--model', self.models['gpt2'],
                                            '--data', self.data, '--max-steps', 1, '--device', 'cuda', '--slots', slots])
            if (status == 0) != (not said) or said not in err:
                problems.append('--slots %s: exit %s, %s' % (slots, status, err[-300:]))
        del training.ENV['FAR_DEVICE_GPUS']
        return problems


def cases(c, w):
    for stage in range(4):
        for world in (1, 2):
            for kind in ('fp32', 'bf16'):
                yield 'stage %d, %d ranks, %s' % (stage, world, kind), lambda s=stage, n=world, k=kind: c.same(n, ds_config(s, 2, 2, k))
    for stage in (0, 1, 2, 3):
        yield 'stage %d, 3 ranks, fp16' % stage, lambda s=stage: c.same(3, ds_config(s, 1, 2, 'fp16'))
    yield 'llama, stage 3', lambda: c.same(2, ds_config(3, 2, 1, 'bf16'), model='llama')
    yield 'llama, stage 2, dropout, checkpointing', lambda: c.same(
        2, ds_config(2, 2, 2), '--dropout', '--activation-checkpointing', model='llama')
    for name, want in generate.recorded().items():
        if not name.startswith('t5'):
            yield 'text of ' + name, lambda n=name, x=want: c.generated(n, x)
    yield 'dropout', lambda: c.same(2, ds_config(1, 2, 2, 'bf16'), '--dropout')
    yield 'lora', lambda: c.same(2, ds_config(2, 2), '--lora-rank', 2)
    yield 'frozen, stage 3', lambda: c.same(2, ds_config(3, 2, 1, 'bf16'), '--freeze', '*.mlp.*')
    yield 'groups', lambda: c.same(2, ds_config(1, 2, 1, 'bf16'), '--param-groups', 'decay')
    yield 'fp32 on the way', lambda: c.same(2, ds_config(2, 2, 2, 'bf16', communication_data_type='fp32'))
    yield 'fp32 on the way, stage 3', lambda: c.same(2, ds_config(3, 2, 2, 'bf16', communication_data_type='fp32'))
    for name, stage in (('SGD', 1), ('Adagrad', 2), ('Lion', 3), ('Lamb', 0)):
        more = optimizer(name, momentum=0.9) if name == 'SGD' else optimizer(name)
        yield 'optimizer %s' % name, lambda m=more, s=stage: c.same(2, {**ds_config(s, 2), 'zero_allow_untested_optimizer': True, **m})
    # from the third update on it compresses
    yield 'optimizer OneBitAdam', lambda: c.same(2, {**ds_config(0, 2), **optimizer('OneBitAdam', freeze_step=2)})
    for stage in (1, 2, 3):
        yield 'optimizer Muon, stage %d' % stage, lambda s=stage: c.same(
            2, {**ds_config(s, 2, kind='bf16', zero={'reduce_scatter': False}), **optimizer('Muon')})
    cpu, nvme = {'offload_optimizer': {'device': 'cpu'}}, {'offload_optimizer': {'device': 'nvme', 'nvme_path': w.path('swap')}}
    for stage in (1, 2, 3):
        for kind in ('fp32', 'bf16'):
            yield 'offload to the host, stage %d, %s' % (stage, kind), lambda s=stage, k=kind: c.same(2, ds_config(s, 2, 2, k, cpu))
    small = {**cpu, 'reduce_bucket_size': 500}
    for stage, kind in ((1, 'bf16'), (2, 'fp32'), (3, 'bf16')):
        yield 'offload to the host in pieces, stage %d, %s' % (stage, kind), lambda s=stage, k=kind: c.same(2, ds_config(s, 2, 2, k, small))
    yield 'offload to the host, sub-groups', lambda: c.same(2, ds_config(3, 2, 1, 'bf16', {**cpu, 'sub_group_size': 1500}))
    yield 'offload to the host, Muon', lambda: c.same(1, {**ds_config(2, 2, 1, 'bf16', cpu), **optimizer('Muon')})
    yield 'offload to the host, times', c.offload_times
    yield 'offload to files', lambda: c.same(2, ds_config(3, 2, 2, 'bf16', {**nvme, 'sub_group_size': 3000}))
    yield 'offload of weights', lambda: c.refused(ds_config(3, 2, zero={'offload_param': {'device': 'cpu'}}), 'offload_param')
    yield 'no such device', lambda: c.refused(ds_config(1, 2), 'cpu, cuda or auto', '--device', 'tpu')
    for stage in range(4):
        yield 'files of stage %d' % stage, lambda s=stage: c.saved_alike(2, s, 'bf16' if s else 'fp32')
    yield 'files, offload, in the background', lambda: c.saved_alike(2, 3, 'bf16', '--async-save')
    for there, back in (('cpu', 'cuda'), ('cuda', 'cpu')):
        for stage in (1, 2, 3):
            yield 'saved on %s, resumed on %s, stage %d' % (there, back, stage), lambda s=stage, t=there, b=back: c.resumed(2, s, t, b)
    for stage in (0, 1, 3):
        yield 'saved and resumed in pieces, stage %d' % stage, lambda s=stage: c.in_pieces(s)
    for world, stage in ((1, 0), (1, 2), (1, 3), (2, 1)):
        yield 'fails during a save, stage %d, %d ranks' % (stage, world), lambda s=stage, n=world: c.failing(n, s)
    yield 'fails during a save in the background', lambda: c.failing(1, 2, '--async-save')
    yield 'evaluation and prediction', lambda: c.classified(1)
    yield 'evaluation and prediction, 2 ranks', lambda: c.classified(2)
    yield 'GPUs that were chosen', c.slots
    # each process has a device of its own: the communicator is the plugin's
    training.ENV['FAR_DEVICE_OWN'] = '1'
    for stage in range(4):
        yield 'the plugin\'s communicator, stage %d' % stage, lambda s=stage: c.same(2, ds_config(s, 2, 2, 'bf16'))
    del training.ENV['FAR_DEVICE_OWN']


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--plugin', default='build/far_device.so')
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('only', nargs='*', help='parts of names')
    a = p.parse_intermixed_args()
    training.ENV['ZEROTRAIN_CUDA_PLUGIN'] = os.path.abspath(a.plugin)
    w = Work(a.bin)
    os.mkdir(w.path('swap'))
    c = Checks(w)
    passed = failed = 0
    for name, check in cases(c, w):
        if a.only and not any(x in name for x in a.only):
            continue
        start = time.time()
        try:
            problems = check()
        except Exception as x:  # a failure of any kind is a failed check
            problems = ['%s: %s' % (type(x).__name__, x)]
        passed += not problems
        failed += bool(problems)
        if problems:
            print('FAIL %s: %s' % (name, '; '.join(problems)[:900]), flush=True)
        elif a.verbose:
            print('ok   %s (%.1f s)' % (name, time.time() - start), flush=True)
    print('far device: %d passed, %d failed' % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


if __name__ == '__main__':
    main()
