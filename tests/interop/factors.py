#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Learning rates of transformers' schedules, recorded for tests/unit/engine/optim/test_schedule.c.

    factors.py [--update] [--bin build/bin]

Without --update the recorded rates are compared with those of the installed transformers.
"""
import argparse
import json
import os
import sys

import torch
from transformers import get_scheduler

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures', 'golden', 'hf_schedules.json')
N = 26
KINDS = (('constant', {}), ('constant_with_warmup', {}), ('linear', {}), ('cosine', {}), ('cosine', {'num_cycles': 1.25}),
         ('cosine_with_restarts', {}), ('cosine_with_restarts', {'num_cycles': 3}), ('polynomial', {}),
         ('polynomial', {'power': 2.5, 'lr_end': 1e-5}), ('inverse_sqrt', {}), ('inverse_sqrt', {'timescale': 7}),
         ('cosine_with_min_lr', {'min_lr': 1e-5}), ('cosine_with_min_lr', {'min_lr_rate': 0.1, 'num_cycles': 0.75}))


def case(kind, more, warmup, total, lrs):
    """The rates of every update; lrs: one base rate for each group, the first is the optimizer's default."""
    groups = [{'params': [torch.nn.Parameter(torch.zeros(1))], 'lr': lr} for lr in lrs]
    optimizer = torch.optim.SGD(groups, lr=lrs[0])
    scheduler = get_scheduler(kind, optimizer, warmup, total, scheduler_specific_kwargs=dict(more))
    rates = []
    for _ in range(N):
        rates.append([g['lr'] for g in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    params = {} if kind == 'constant' else {'num_warmup_steps': warmup}
    if kind not in ('constant', 'constant_with_warmup', 'inverse_sqrt'):
        params['num_training_steps'] = total
    state = scheduler.state_dict()
    return {'type': kind, 'params': {**params, **more}, 'lrs': lrs, 'lr': rates, 'state': list(state)}


def main():
    args = argparse.ArgumentParser()
    args.add_argument('--update', action='store_true')
    args.add_argument('--bin')
    args = args.parse_args()
    cases = [case(kind, more, warmup, 20, lrs) for kind, more in KINDS
             for warmup, lrs in ((0, [1e-3]), (3, [5e-4, 3e-3])) if kind != 'constant' or warmup == 0]
    lines = ',\n'.join(json.dumps(c) for c in cases)
    text = '{"cases": [\n' + lines + '\n]}\n'
    if args.update:
        with open(PATH, 'w', encoding='utf-8') as f:
            f.write(text)
    else:
        with open(PATH, encoding='utf-8') as f:
            if f.read() != text:
                print('transformers computes other learning rates than recorded: factors.py --update')
                return 1
    print(f'{len(cases)} schedules of transformers: rates as recorded')
    return 0


if __name__ == '__main__':
    sys.exit(main())
