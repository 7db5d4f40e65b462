#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint loads the folders that we write: every tensor and setting, by name.

    dcp.py --bin build/bin FIXTURES

Each run goes to a distributed checkpoint of three ranks.  torch makes a plain file of it (dcp_to_torch_save, which needs all of
.metadata) and loads one tensor of each kind into a template (dcp.load); the values must be those that ckpt reads of the source.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

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


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('fixtures')
    a = p.parse_args()
    ckpt = os.path.join(a.bin, 'ckpt')
    for name in RUNS:
        source = os.path.join(a.fixtures, name, 'ckpt')
        with tempfile.TemporaryDirectory() as tmp:
            flat = os.path.join(tmp, 'o.safetensors')
            run(ckpt, 'convert', '-q', '--with-optimizer', source, flat)
            run(ckpt, 'reshard', '-q', '--to', 'dcp', '--world', '3', '--to-tag', 'x', source, os.path.join(tmp, 'out'))
            want, folder = load_file(flat), os.path.join(tmp, 'out', 'x')
            verdict(name + ' dcp_to_torch_save', whole(folder, want, tmp))
            verdict(name + ' dcp.load', template(folder, want))
    print('interop dcp: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed else 0


sys.exit(main())
