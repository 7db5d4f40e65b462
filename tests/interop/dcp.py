#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint loads the folders that we write: every tensor and setting, by name.

    dcp.py --bin build/bin FIXTURES

Each run goes to a distributed checkpoint of three ranks.  torch makes a plain file of it (dcp_to_torch_save, which needs all of
.metadata) and loads one tensor of each kind into a template (dcp.load); the values must be those that ckpt reads of the source.
In accelerate's layout its own load_state loads the folder, and in torchtitan's a module and its optimizer get what their flattened
state dicts ask for, as its CheckpointManager does.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict

warnings.simplefilter('ignore')
RUNS = ('z1_bf16_w3_groups', 'z2_bf16_w2_aligned', 'hf_trainer_llama_z3_bf16_w2', 'old0126_z2_fp16_w3', 'fsdp2_mp_w2')
passed, failed = 0, []


def verdict(name, problem):
    global passed
    if problem:
        failed.append(name)
        print('FAIL %s: %s' % (name, problem))
    else:
        passed += 1


def run(*cmd):
    subprocess.run(cmd, check=True, capture_output=True)


def whole(folder, want, tmp):
    out = os.path.join(tmp, 'plain.pt')
    dcp_to_torch_save(folder, out)
    got = torch.load(out, weights_only=False)
    names = {n for n in want if '/' not in n}
    # tied names are written in full, as torch does; a safetensors file has them once
    more = [n for n in got['model'] if n not in names and not any(torch.equal(got['model'][n], want[m]) for m in names)]
    if more or not names <= set(got['model']):
        return 'the model has other names: %s' % (more or sorted(names - set(got['model'])))[:3]
    for name, t in want.items():
        kind, _, param = name.partition('/')
        have = got['optim']['state'][param][kind] if param else got['model'][name]
        if not torch.equal(have, t.to(have.dtype)) or have.shape != t.shape:
            return '%s has other values' % name
    listed = [p for g in got['optim']['param_groups'] for p in g['params']]
    if not all('lr' in g for g in got['optim']['param_groups']) or sorted(listed) != sorted(got['optim']['state']):
        return 'param_groups lack settings or parameters'
    return ''


def template(folder, want):
    """A few tensors into zeros of their shapes, as a program that knows its model does."""
    keys = {n: ('optim.state.%s.%s' % tuple(reversed(n.split('/', 1))) if '/' in n else 'model.' + n) for n in want}
    state = {keys[n]: torch.zeros_like(t) for n, t in want.items()}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    wrong = [n for n, t in want.items() if not torch.equal(state[keys[n]], t)]
    return '%s loaded with other values' % wrong[:3] if wrong else ''


def program(want):
    """A module with the tensors of these names, zeros, with its optimizer and schedule."""
    model = torch.nn.Module()
    kinds = {n.split('/', 1)[0] for n in want if '/' in n}
    trained = {n.split('/', 1)[1] for n in want if '/' in n}
    for name, t in want.items():
        if '/' in name:
            continue
        at, (*up, last) = model, name.split('.')
        for k in up:
            if not hasattr(at, k):
                at.add_module(k, torch.nn.Module())
            at = getattr(at, k)
        if name in trained:
            at.register_parameter(last, torch.nn.Parameter(torch.zeros_like(t)))
        else:
            at.register_buffer(last, torch.zeros_like(t))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, amsgrad='max_exp_avg_sq' in kinds)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0)  # sets initial_lr
    return model, optimizer


def differs(model, optimizer, want):
    params, weights = dict(model.named_parameters()), model.state_dict()
    for name, t in want.items():
        kind, _, param = name.partition('/')
        have = optimizer.state[params[param]].get(kind) if param else weights[name]
        if have is None or not torch.equal(have.to(t.dtype).reshape(t.shape), t):
            return '%s has other values' % name
    return '' if all(g['lr'] != 1.0 for g in optimizer.param_groups) else 'lr is not that of the source'


def titan(folder, want):
    """CheckpointManager's dict: the model at the root, flat settings, what TrainState and LambdaLR keep."""
    model, optimizer = program(want)
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    state = dict(model.state_dict(), optimizer=get_optimizer_state_dict(model, optimizer, options=flat),
                 train_state={'step': 0, 'ntokens_seen': -1}, lr_scheduler={'last_epoch': -1})
    dcp.load(state, checkpoint_id=folder)
    set_optimizer_state_dict(model, optimizer, state['optimizer'], options=flat)
    steps = max(int(t) for n, t in want.items() if n.startswith('step/'))
    ran, epoch = state['train_state']['step'], state['lr_scheduler']['last_epoch']
    # steps that overflowed count for the run, and not for the schedule
    if os.path.basename(folder) != 'step-%d' % ran or ran < steps or not (epoch == ran if ran == steps else 0 <= epoch < ran):
        return 'the run is not at step %d: %s, step %d, epoch %d' % (steps, folder, ran, epoch)
    return differs(model, optimizer, want)


def accelerate(folder, want):
    """load_state of a program under FSDP2, in one process."""
    model, optimizer = program(want)
    a = Accelerator(cpu=True)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type='SHARDED_STATE_DICT', cpu_offload=False)
    AcceleratorState._shared_state.update(distributed_type=DistributedType.FSDP, fsdp_plugin=plugin)
    a._models, a._optimizers = [model], [optimizer]
    a.load_state(folder)
    return differs(model, optimizer, want)


def uncounted(ckpt, tmp):
    """SGD counts no steps: a run that is made of it says that its own count is not known."""
    state = {'model': {'w': torch.ones(3)}, 'optim': {'state': {'w': {'momentum_buffer': torch.ones(3)}}, 'param_groups': [
        {'lr': 0.1, 'momentum': 0.9, 'params': ['w']}]}}
    dcp.save(state, checkpoint_id=os.path.join(tmp, 'sgd'), no_dist=True)
    p = subprocess.run([ckpt, 'reshard', os.path.join(tmp, 'sgd'), os.path.join(tmp, 'zero')], capture_output=True, text=True)
    return '' if p.returncode == 0 and 'counts no steps' in p.stderr else 'exit %d: %s' % (p.returncode, p.stderr)


def rate_is_tensor(ckpt, tmp, flat):
    """A rate that the optimizer keeps as a tensor, as compiled updates want it, is a number in training states."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW([{'params': [model.weight]}, {'params': [model.bias], 'lr': torch.tensor(0.25)}], lr=torch.tensor(0.5))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {'model': model.state_dict(),
             'optim': get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=flat))}
    source, zero, back, plain = (os.path.join(tmp, '%s-%d' % (n, flat)) for n in ('rate', 'zero', 'back', 'plain.pt'))
    dcp.save(state, checkpoint_id=source, no_dist=True)
    run(ckpt, 'reshard', '-q', '--world', '2', '--stage', '2', '--to-tag', 'x', source, zero)
    run(ckpt, 'reshard', '-q', '--to', 'dcp', '--to-tag', 'x', zero, back)
    dcp_to_torch_save(os.path.join(back, 'x'), plain)
    groups = [(g['lr'], g['params']) for g in torch.load(plain, weights_only=False)['optim']['param_groups']]
    return '' if groups == [(0.5, ['weight']), (0.25, ['bias'])] else 'groups are %s' % groups


def numbered(ckpt, tmp):
    """What optimizer.state_dict() has are numbers, in a distributed checkpoint and, as texts, in the one file that torch makes of it."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    source, one, zero, flat = (os.path.join(tmp, n) for n in ('numbered', 'one.pt', 'zero', 'flat.safetensors'))
    dcp.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, checkpoint_id=source, no_dist=True)
    p = subprocess.run([ckpt, 'reshard', source, zero], capture_output=True, text=True)
    if p.returncode == 0 or 'by number' not in p.stderr:
        return 'exit %d: %s' % (p.returncode, p.stderr)
    dcp_to_torch_save(source, one)
    run(ckpt, 'reshard', '-q', '--world', '2', '--stage', '2', one, zero)
    run(ckpt, 'convert', '-q', '--with-optimizer', zero, flat)
    got = load_file(flat)
    wrong = [n for n, p in model.named_parameters() if not torch.equal(got['exp_avg/' + n], optimizer.state[p]['exp_avg'])]
    return '%s have other moments' % wrong if wrong else ''


def pairs(ckpt, tmp):
    """Pairs of 4-bit floats, in both directions, over one and two files."""
    made, source = os.path.join(tmp, 'made'), os.path.join(tmp, 'f4.pt')
    want = torch.arange(12, dtype=torch.uint8).mul(21).reshape(3, 4).view(torch.float4_e2m1fn_x2)
    torch.save({'w': want, 'b': torch.ones(3)}, source)
    for world in '1', '2':
        run(ckpt, 'convert', '-qf', '--to', 'dcp', '-w', world, source, made)
        dcp_to_torch_save(os.path.join(made, os.listdir(made)[0]), os.path.join(tmp, 'plain.pt'))
        got = torch.load(os.path.join(tmp, 'plain.pt'), weights_only=False)['model']['w']
        if got.dtype != want.dtype or not torch.equal(got.view(torch.uint8), want.view(torch.uint8)):
            return 'other values, in %s files' % world
    dcp.save({'model': {'w': want, 'b': torch.ones(3)}}, checkpoint_id=os.path.join(tmp, 'theirs'))
    for folder in made, os.path.join(tmp, 'theirs'):
        run(ckpt, 'convert', '-qf', folder, os.path.join(tmp, 'back.pt'))
        back = torch.load(os.path.join(tmp, 'back.pt'))['w']
        if not torch.equal(back.view(torch.uint8), want.view(torch.uint8)):
            return 'read with other values'
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('fixtures')
    a = p.parse_args()
    ckpt = os.path.join(a.bin, 'ckpt')
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='0', RANK='0', WORLD_SIZE='1', LOCAL_RANK='0', ACCELERATE_USE_CPU='true')
    dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
    for name in RUNS:
        source = os.path.join(a.fixtures, name, 'ckpt')
        with tempfile.TemporaryDirectory() as tmp:
            flat = os.path.join(tmp, 'o.safetensors')
            run(ckpt, 'convert', '-q', '--with-optimizer', source, flat)
            run(ckpt, 'reshard', '-q', '--to', 'dcp', '--world', '3', '--to-tag', 'x', source, os.path.join(tmp, 'out'))
            want, folder = load_file(flat), os.path.join(tmp, 'out', 'x')
            verdict(name + ' dcp_to_torch_save', whole(folder, want, tmp))
            verdict(name + ' dcp.load', template(folder, want))
            for layout, load in ('torchtitan', titan), ('accelerate', accelerate):
                out = os.path.join(tmp, layout)
                run(ckpt, 'reshard', '-q', '--to', 'dcp', '--layout', layout, '--world', '3', source, out)
                verdict('%s %s' % (name, layout), load(os.path.join(out, os.listdir(out)[0]), want))
    with tempfile.TemporaryDirectory() as tmp:
        verdict('sgd', uncounted(ckpt, tmp))
        verdict('numbers', numbered(ckpt, tmp))
        verdict('pairs of 4-bit floats', pairs(ckpt, tmp))
        for flat in False, True:
            verdict('a rate that is a tensor, flat %d' % flat, rate_is_tensor(ckpt, tmp, flat))
    print('interop dcp: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed else 0


sys.exit(main())
