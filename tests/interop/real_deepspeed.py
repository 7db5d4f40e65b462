#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train and save tiny models with the real DeepSpeed on the CPU, consolidate with ours, and compare bit for bit.

  real_deepspeed.py --bin build/bin

What must come out is what the engine held before it saved, and DeepSpeed's own zero_to_fp32 on the same folder where it can
read it.  Each world is one set of processes (gloo) that writes all its configurations.
"""
import argparse
import contextlib
import io
import os
import socket
import subprocess
import sys
import tempfile

from checks import mine

os.environ['DS_ACCELERATOR'] = 'cpu'
LEGACY = {'checkpoint': {'checkpoint_serialization': False}}
FP32_GRADS = {'data_types': {'grad_accum_dtype': 'fp32'}}

# name, world, stage, bf16, groups, zero_optimization, other configuration
CONFIGS = list(mine([
    ('stage 1 fp32', 2, 1, False, 1, {}, {}),
    ('stage 1 fp32 gradients', 3, 1, True, 3, {}, FP32_GRADS),
    ('stage 2 bf16', 2, 2, True, 3, {}, {}),
    ('stage 2 round robin', 3, 2, True, 3, {'round_robin_gradients': True}, {}),
    ('stage 2 aligned', 3, 2, True, 2, {'parameter_alignment': True}, {}),
    ('stage 2 aligned round robin', 2, 2, True, 3, {'parameter_alignment': True, 'round_robin_gradients': True}, {}),
    ('stage 2 legacy container', 2, 2, True, 2, {}, LEGACY),
    ('stage 3 fp32', 2, 3, False, 1, {}, {}),
    ('stage 3 bf16 sub-groups', 3, 3, True, 3, {'sub_group_size': 3000}, {}),
    ('stage 3 persistent', 2, 3, True, 2, {'stage3_param_persistence_threshold': 500}, {}),
    ('stage 3 legacy container', 3, 3, True, 1, {}, LEGACY),
]))


def make_model(empty, torch):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = nn.Linear(57, 131)
            self.back = nn.Linear(131, 19)
            self.emb = nn.Embedding(11, 19)
            self.out = nn.Linear(19, 11, bias=False)
            self.third = nn.Linear(19, 11, bias=False)
            self.out.weight = self.third.weight = self.emb.weight
            self.still = nn.Linear(19, 19)
            self.again = nn.Linear(19, 19, bias=False)
            self.again.weight = self.still.weight
            self.still.requires_grad_(False)
            self.unused = nn.Parameter(torch.randn(13))
            self.one = nn.Parameter(torch.randn(1))
            self.odd = nn.ParameterDict({'a-b c': nn.Parameter(torch.randn(3, 5)), '\u00e9\n"\\/': nn.Parameter(torch.randn(7))})
            if empty:  # two of them: DeepSpeed takes them for tied
                self.none = nn.Parameter(torch.randn(0, 4))
                self.none_too = nn.Parameter(torch.randn(0, 4))
            self.register_buffer('steps', torch.arange(7))
            self.register_buffer('mask', torch.tensor([True, False]))
            self.register_buffer('brief', torch.randn(6).bfloat16())
            self.register_buffer('turned', torch.randn(4, 6).t())
            self.register_buffer('shared', self.steps)
            self.register_buffer('unsaved', torch.randn(9), persistent=False)

        def forward(self, x, y):
            h = torch.tanh(self.back(torch.tanh(self.wide(x.to(self.wide.weight.dtype)))))
            h = h + self.again(self.still(h)) + 0.05 * self.emb((y + 1) % 11)
            z = self.out(h) + self.third(h) * self.one
            for p in self.odd.values():
                z = z + p.mean()
            return torch.nn.functional.cross_entropy(z.float(), y)

    return Net()


def train(config, folder, rank):
    """One configuration on one rank: two steps, the truth beside the checkpoint."""
    import deepspeed
    import torch
    _, _, stage, bf16, groups, zero, more = config
    torch.manual_seed(3 + CONFIGS.index(config))
    model = make_model(stage == 2, torch)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{'params': trained[i::groups], 'lr': 1e-3 * (i + 1)} for i in range(groups)])
    ds = {'train_micro_batch_size_per_gpu': 3, 'zero_allow_untested_optimizer': True, 'bf16': {'enabled': bf16},
          'zero_optimization': dict({'stage': stage, 'stage3_param_persistence_threshold': 0}, **zero)}
    engine = deepspeed.initialize(model=model, config=dict(ds, **more), optimizer=optimizer)[0]
    data = torch.Generator().manual_seed(rank)
    for _ in range(2):
        loss = engine(torch.randn(3, 57, generator=data), torch.randint(0, 11, (3,), generator=data))
        engine.backward(loss)
        engine.step()
    live = {}
    # What these functions give with round_robin_gradients alone is of another parameter.
    if not zero.get('round_robin_gradients'):
        for name, p in engine.module.named_parameters():
            if p.requires_grad and (stage == 3 or p.numel()):
                live[name] = deepspeed.utils.safe_get_full_fp32_param(p).detach().clone()
    engine.save_checkpoint(folder, client_state={'iteration': 2, 'args': argparse.Namespace(lr=0.1)})
    if rank == 0:
        torch.save(live, folder + '.live')
    engine.destroy()


def worker(root):
    import logging

    import deepspeed
    import torch
    torch.set_num_threads(1)
    deepspeed.init_distributed('gloo')
    logging.getLogger('DeepSpeed').setLevel(logging.ERROR)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    for config in CONFIGS:
        if config[1] == world:
            train(config, os.path.join(root, config[0].replace(' ', '_')), rank)
            torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def launch(root, world):
    """The ranks of one world; their words only when one fails."""
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    ranks = []
    for r in range(world):
        env = dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(world), MASTER_ADDR='127.0.0.1',
                   MASTER_PORT=str(port), OMP_NUM_THREADS='1', PYTHONWARNINGS='ignore')
        log = open(os.path.join(root, 'log%d_%d' % (world, r)), 'w+')
        ranks.append((subprocess.Popen([sys.executable, os.path.abspath(__file__), '--worker', root], env=env, stdout=log,
                                       stderr=subprocess.STDOUT), log))
    for p, log in ranks:
        try:
            code = p.wait(timeout=900)
        except subprocess.TimeoutExpired:
            code = 'none, it hangs'
        if code:
            log.seek(0)
            print('world %d: exit %s\n%s' % (world, code, log.read()[-1500:]))
            for other, _ in ranks:
                other.kill()
        log.close()


def tool(bin_, name, *args):
    p = subprocess.run([os.path.join(bin_, name)] + list(args), capture_output=True, text=True, timeout=900)
    assert p.returncode == 0, '%s %s: exit %d: %s' % (name, ' '.join(args), p.returncode, p.stderr.strip())
    return p.stdout


def bits(t):
    import torch
    return t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b''


def same(got, want, ordered):
    assert set(got) == set(want), 'names differ: %s' % sorted(set(got) ^ set(want))[:5]
    assert not ordered or list(got) == list(want), 'order differs'
    for k, v in want.items():
        v = v.float() if v.is_floating_point() else v   # as DeepSpeed's script writes what its function gives
        assert got[k].dtype == v.dtype and got[k].shape == v.shape and bits(got[k]) == bits(v), '%s differs' % k


def compare(config, bin_, run, tmp):
    import safetensors.torch
    import torch
    from deepspeed.utils import zero_to_fp32 as ds
    out = os.path.join(tmp, 'w.bin')
    tool(bin_, 'zero_to_fp32', '-q', run, out)
    ours = torch.load(out, weights_only=True)
    live = torch.load(run + '.live')
    assert live or config[5].get('round_robin_gradients'), 'nothing was recorded'
    for k, v in live.items():  # by value: its sums over ranks make 0.0 of -0.0
        assert torch.equal(ours[k], v.float()), '%s is not what the engine held' % k
    assert {'steps', 'mask', 'brief', 'turned', 'out.weight', 'third.weight', 'still.bias', 'again.weight'} <= set(ours), sorted(ours)
    if config[6] == {}:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            theirs = ds.get_fp32_state_dict_from_zero_checkpoint(run, exclude_frozen_parameters=config[2] == 1)
        # Of stage 1 it has no frozen parameters; ours takes them from the module.
        same({k: v for k, v in ours.items() if config[2] > 1 or k in theirs}, theirs, True)
    out = os.path.join(tmp, 'w.safetensors')
    tool(bin_, 'zero_to_fp32', '-q', run, out)
    got = safetensors.torch.load_file(out)
    with safetensors.safe_open(out, 'pt') as f:
        got.update({k: got[v] for k, v in f.metadata().items() if v in got and k not in got})
    same(got, ours, False)
    assert 'ok: ' in tool(bin_, 'ckpt', 'verify', run)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--worker', metavar='ROOT')
    a = p.parse_args()
    if a.worker:
        return worker(a.worker)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as root:
        for world in sorted({c[1] for c in CONFIGS}):
            launch(root, world)
        for config in CONFIGS:
            with tempfile.TemporaryDirectory() as tmp:
                try:
                    compare(config, a.bin, os.path.join(root, config[0].replace(' ', '_')), tmp)
                    passed += 1
                except Exception as e:  # a failure of any kind is a failed check
                    failed += 1
                    print('FAIL %s, world %d: %s' % (config[0], config[1], e))
    print('interop real: %d passed, %d failed' % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


main()
