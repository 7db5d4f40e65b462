#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of the hub: what `ckpt convert --to hf` makes of a model's state dict, against save_pretrained's files of the same model.

    hub_names.py --bin build/bin [--count N] [MODEL_TYPE ...]

A tiny random model of each class of which save_pretrained may write other names than state_dict() has (tiny_models.py).  First one class of
each model type, the best known types before the others, then other classes, until N could be made and were compared.
"""
import argparse
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_models
import torch
import transformers
from safetensors.torch import load_file

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
FIRST = ('deepseek_v3 glm4_moe olmoe phimoe ernie4_5_moe qwen3_next jamba granitemoe mixtral qwen2_moe qwen3_moe gemma3 llava mistral3 '
         'qwen2_5_vl qwen2_vl gpt_neox llama4_text gpt_oss dots1 minimax lfm2_moe paligemma internvl aya_vision llava_next mllama').split()


def work():
    """(model type, class), in the order in which they are tried."""
    kinds = tiny_models.renamed()
    order = [k for k in FIRST if k in kinds] + [k for k in kinds if k not in FIRST]
    rows = [sorted(kinds[k], key=lambda n: ('ForCausalLM' not in n and 'Conditional' not in n, n)) for k in order]
    for i in range(max(map(len, rows))):
        yield from ((k, r[i]) for k, r in zip(order, rows) if i < len(r))


def problem(ckpt, kind, name, folder):
    """What is wrong with the conversion of a model; None: nothing."""
    _, config = tiny_models.build(kind, name)
    torch.manual_seed(1)
    model = getattr(transformers, name)(config)
    hub, mine, state = (os.path.join(folder, x) for x in ('hub', 'mine', 'state.pt'))
    torch.save(model.state_dict(), state)
    model.save_pretrained(hub)
    done = subprocess.run([ckpt, 'verify', '--strict', hub], capture_output=True, text=True)
    if done.returncode:
        return 'verify, status %d: %s' % (done.returncode, (done.stdout + done.stderr).strip()[-400:])
    done = subprocess.run([ckpt, 'convert', '-q', '-f', state, mine, '--to', 'hf', '--config', hub], capture_output=True, text=True)
    if done.returncode:
        return 'status %d: %s' % (done.returncode, done.stderr.strip()[-300:])
    want, got = (load_file(os.path.join(x, 'model.safetensors')) for x in (hub, mine))
    if set(want) - set(got):
        return 'misses %s, has %s' % (sorted(set(want) - set(got))[:2], sorted(set(got) - set(want))[:2])
    # what save_pretrained leaves out may be there, but not under a name of the model in memory alone
    more = [n for n in set(got) - set(want) if not any(torch.equal(got[n], t) for t in want.values())]
    wrong = [n for n in want if not torch.equal(want[n], got[n])]
    return 'more: %s' % more[:3] if more else 'other values: %s' % wrong[:3] if wrong else None


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('--count', type=int, default=70, help='classes to try, the most used first; 0: all')
    p.add_argument('kinds', nargs='*')
    a = p.parse_args()
    ckpt = os.path.join(a.bin, 'ckpt')
    with open('tools/share/maps/hf-hub-names.map') as f:
        table = {w for line in f if line.startswith('    when ') for w in line.split()[3:]}
    agree, tried, left_out, failed, unknown = set(), 0, 0, [], []
    for kind, name in work():
        if a.kinds and kind not in a.kinds:
            continue
        if a.count and tried == a.count:
            break
        with tempfile.TemporaryDirectory() as folder:
            try:
                wrong = problem(ckpt, kind, name, folder)
            except Exception as e:  # no such model can be made here
                left_out += 1
                if kind in FIRST:
                    print('hub_names: %s: not made: %s' % (name, str(e)[:120].replace('\n', ' ')))
                continue
        tried += 1
        if wrong and not {kind, name} & table:
            unknown.append(name)
        elif wrong:
            failed.append(name)
            print('FAIL %s (%s): %s' % (name, kind, wrong))
        else:
            agree.add((kind, name))
    print('hub_names: %d of %d classes agree, of %d model types; %d could not be made here' %
          (len(agree), tried, len({k for k, _ in agree}), left_out))
    if unknown:
        print('hub_names: not in the table: %s' % ' '.join(unknown))
    sys.exit(bool(failed) or not agree)


if __name__ == '__main__':
    main()
