#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every optimizer of torch: from FSDP2 on two ranks to ZeRO, back to a distributed checkpoint, on to FSDP2 on three.

    optimizers.py --bin build/bin

What an optimizer keeps differs: moments of several kinds, counts and numbers of a whole parameter, none at all.  The losses of the steps
after the way must be those of the uninterrupted run, which differ only by how three ranks sum.  Some programs save a list with one
optimizer; that state comes along too, and a list of two is refused by every target.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

import ranks
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

warnings.simplefilter('ignore')
O = torch.optim
KINDS = {
    'Adam amsgrad': lambda p: O.Adam(p, lr=1e-2, amsgrad=True),
    'NAdam': lambda p: O.NAdam(p, lr=1e-2),
    'RAdam': lambda p: O.RAdam(p, lr=1e-2),
    'Adamax': lambda p: O.Adamax(p, lr=1e-2),
    'Adagrad': lambda p: O.Adagrad(p, lr=1e-2),
    'Adadelta': lambda p: O.Adadelta(p),
    'RMSprop centered': lambda p: O.RMSprop(p, lr=1e-3, centered=True, momentum=.9),
    'Rprop': lambda p: O.Rprop(p),
    'ASGD': lambda p: O.ASGD(p),
    'SGD nesterov': lambda p: O.SGD(p, lr=1e-2, momentum=.9, nesterov=True),
    'SGD': lambda p: O.SGD(p, lr=1e-2),
    'AdamW two groups': lambda p: O.AdamW([{'params': p[:2], 'weight_decay': .1}, {'params': p[2:], 'weight_decay': 0.}], lr=1e-3),
}

# Keys of a list that holds the optimizer; else it is saved under "optim".
LISTS = {'Adam amsgrad': 'optimizers', 'RAdam': 'optimizer_states'}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.fc, self.out = nn.Embedding(37, 13), nn.Linear(13, 29), nn.Linear(29, 7)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.out(torch.tanh(self.fc(self.emb(x)))) * self.scale


def train(model, optimizer, steps):
    losses = []
    for i in steps:
        torch.manual_seed(i)
        x, y = torch.randint(0, 37, (4, 5)), torch.randint(0, 7, (4, 5))
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def halves(o):
    """The states of two optimizers, each with half of the parameters."""
    names = sorted(o['state'])
    return [{'state': {n: o['state'][n] for n in part}, 'param_groups': [dict(o['param_groups'][0], params=part)]}
            for part in (names[:3], names[3:])]


def rank_main(mode, folder, out):
    """Each optimizer on one rank; rank 0 writes to `out` the relative distance of the losses, by kind."""
    distances = {}
    for kind, make in KINDS.items():
        torch.manual_seed(1)
        model = Model()
        fully_shard(model)
        optimizer = make(list(model.parameters()))
        if mode == 'save':
            train(model, optimizer, range(3))
            m, o = get_state_dict(model, optimizer)
            dcp.save({'model': m, **({LISTS[kind]: [o]} if kind in LISTS else {'optim': o})}, checkpoint_id=os.path.join(folder, kind))
            if kind in LISTS:
                dcp.save({'model': m, LISTS[kind]: halves(o)}, checkpoint_id=os.path.join(folder, kind + '.two'))
            losses = train(model, optimizer, range(3, 6))
            if dist.get_rank() == 0:
                torch.save(losses, os.path.join(folder, kind + '.losses'))
            continue
        m, o = get_state_dict(model, optimizer)
        state = {'model': m, 'optim': o}
        dcp.load(state, checkpoint_id=os.path.join(folder, kind + '.back', 'x'))
        set_state_dict(model, optimizer, model_state_dict=state['model'], optim_state_dict=state['optim'])
        want, got = torch.load(os.path.join(folder, kind + '.losses')), train(model, optimizer, range(3, 6))
        distances[kind] = max(abs(a - b) / abs(b) for a, b in zip(got, want))
    if dist.get_rank() == 0:
        torch.save(distances, out)


def run(world, mode, folder):
    distances, error = ranks.run_ranks(world, lambda rank, out: rank_main(mode, folder, out), 300)
    if error:
        sys.exit('FAIL %s: %s' % (mode, error))
    return distances


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin')
    a = p.parse_args()
    ranks.prepare_torch()
    ckpt = os.path.join(a.bin, 'ckpt')
    with tempfile.TemporaryDirectory() as tmp:
        run(2, 'save', tmp)
        for kind in KINDS:
            at = os.path.join(tmp, kind)
            for cmd in (['--world', '3', '--stage', '2', at, at + '.zero'],
                        ['--to', 'dcp', '--world', '2', '--to-tag', 'x', at + '.zero', at + '.back']):
                subprocess.run([ckpt, 'reshard', '-q'] + cmd, check=True)
        for kind in LISTS:
            for to in ('--to', 'dcp'), ('--to', 'fsdp-ranks', '--world', '2'), ('--stage', '1', '--world', '2'):
                done = subprocess.run([ckpt, 'reshard', '-q', *to, os.path.join(tmp, kind + '.two'), os.path.join(tmp, 'two')],
                                      capture_output=True, text=True)
                if done.returncode != 3 or 'it holds several optimizers' not in done.stderr:
                    sys.exit('FAIL %s twice: status %d: %s' % (kind, done.returncode, done.stderr))
                source, one = os.path.join(tmp, kind), os.path.join(tmp, 'one ' + to[1])
                subprocess.run([ckpt, 'reshard', '-q', *to, source, one], check=True)
                subprocess.run([ckpt, 'diff', '-q', '--with-optimizer', source, one], check=True)
                shutil.rmtree(one)
        distances = run(3, 'load', tmp)
    far = {kind: d for kind, d in distances.items() if not d <= 1e-6}
    for kind, d in far.items():
        print('FAIL %s: losses differ by %g' % (kind, d))
    print('optimizers: %d passed, %d failed' % (len(distances) - len(far), len(far)))
    return 1 if far or len(distances) != len(KINDS) else 0


if __name__ == '__main__':
    sys.exit(main())
