#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Texts that zerotrain generates: greedy ones equal to those of transformers, which tests/fixtures/generated.json has; drawn ones
that depend on the seed alone.

    generate.py --bin build/bin [--some] [--device cuda] [NAME...]

With --device cuda, greedily only.

The models are the recorded ones of record_models.py, with matrices that are 4 times as large, so that texts differ.
tests/interop/generate.py records the texts.
"""
import argparse
import array
import glob
import json
import os
import random
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from training import Work, write_safetensors

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures')
PLACES = {'gpt2_masked': 'golden', 'llama_gqa': 'golden', 't5': 'models_t5', 't5_gated': 'models_t5'}
NAMES = ['gpt2_masked', 'llama_gqa', 'qwen2_tied', 'qwen3', 'mistral', 'qwen2_windows', 'opt', 'opt_after', 'neox', 'neox_serial', 'bloom',
         'olmo2', 'gemma2', 'gemma3', 'phi3', 't5', 't5_gated']
NEW = 8
# stage, samples of a batch, ranks, offload
RUNS = [(0, 1, 1, False), (2, 4, 1, False), (1, 3, 2, False), (3, 2, 2, False), (3, 2, 3, True)]


def read_tensors(path):
    with open(path, 'rb') as f:
        data = f.read()
    n = struct.unpack('<Q', data[:8])[0]
    for name, t in json.loads(data[8:8 + n]).items():
        if name != '__metadata__':
            a, b = t['data_offsets']
            yield name, t['dtype'], t['shape'], data[8 + n + a:8 + n + b]


def model(name):
    """(class, configuration, weights by name) of a recorded model."""
    place = os.path.join(FIXTURES, PLACES.get(name, 'models'))
    with open(os.path.join(place, 'models.json')) as f:
        entry = next(x for x in json.load(f)['models'] if x['name'] == name)
    tensors = {}
    for key, dtype, shape, data in read_tensors(os.path.join(place, f'model_{name}.safetensors')):
        if key.startswith('w/'):
            assert dtype == 'F32'
            values = array.array('f', data)
            if len(shape) > 1:
                values = array.array('f', (4 * x for x in values))
            tensors[key[2:]] = (dtype, shape, values.tobytes())
    return entry['cls'], {**entry['config'], 'architectures': [entry['cls']]}, tensors


def recorded():
    """By name of a model, the tokens that end texts, and the texts."""
    with open(os.path.join(FIXTURES, 'generated.json')) as f:
        return json.load(f)


def prompts(vocab):
    r = random.Random(1)
    return [[r.randrange(3, vocab) for _ in range(n)] for n in (7, 1, 12, 3, 3, 5, 2)]


def write_folder(folder, name, ends):
    """The folder of a model whose texts end with one of `ends`; its prompts."""
    _, config, tensors = model(name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'config.json'), 'w') as f:
        json.dump(config, f)
    with open(os.path.join(folder, 'generation_config.json'), 'w') as f:
        json.dump({'eos_token_id': ends}, f)
    write_safetensors(os.path.join(folder, 'model.safetensors'), tensors)
    with open(os.path.join(folder, 'prompts.jsonl'), 'w') as f:
        f.write(''.join(json.dumps({'input_ids': p}) + '\n' for p in prompts(config['vocab_size'])))


def configuration(stage, micro, ranks, offload=False):
    z = {'stage': stage}
    if stage == 3:
        z['stage3_param_persistence_threshold'] = 100
    if offload:
        z.update({'offload_param': {'device': 'cpu'}, 'offload_optimizer': {'device': 'cpu'}})
    return {'train_micro_batch_size_per_gpu': micro, 'train_batch_size': micro * ranks, 'zero_optimization': z,
            'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-3}}}


def generate(work, folder, run, *more):
    """The tokens of each text, or what the program says instead."""
    out = work.fresh('texts')
    status, _, err = work.run(run[2], ['--deepspeed_config', work.write('ds.json', configuration(*run)), '--model', folder, '--data',
                                       os.path.join(folder, 'prompts.jsonl'), '--generate', out, '--json', '--max-new-tokens', NEW, *more])
    if status:
        return err.strip()[:400]
    with open(out) as f:
        lines = [json.loads(x) for x in f]
    if [x['prompt'] for x in lines] != list(range(len(lines))):
        return 'the prompts are not in order'
    return [x['ids'] for x in lines]


def greedy(work, name, want, runs):
    folder = work.fresh(name)
    write_folder(folder, name, want['ends'])
    bad = 0
    for run in runs:
        got = generate(work, folder, run)
        if got != want['texts']:
            bad += 1
            print('%s, stage %d, batches of %d, %d ranks%s: %s\n  expected %s' % (name, *run[:3], ', offload' * run[3], got, want['texts']))
    return bad


def drawn(work, name, want):
    """Texts by chance: the same on any number of ranks, others with another seed, the greedy ones where there is no choice."""
    folder = work.fresh(name)
    write_folder(folder, name, want['ends'])
    hot = ['--temperature', 1.5, '--top-k', 20, '--top-p', 0.95]
    one = generate(work, folder, RUNS[1], *hot)
    checks = {
        'are those of greedy search': one != want['texts'],
        'differ on two ranks': one == generate(work, folder, (3, 4, 2, False), *hot),
        'are the same with another seed': one != generate(work, folder, RUNS[1], *hot, '--seed', 7),
        'of the most probable token are others': want['texts'] == generate(work, folder, RUNS[1], '--temperature', 3, '--top-k', 1),
        'of a small part are others': want['texts'] == generate(work, folder, RUNS[1], '--temperature', 1, '--top-p', 1e-9),
        'of all tokens are not drawn': isinstance(generate(work, folder, RUNS[1], '--temperature', 1), list),
    }
    bad = [k for k, ok in checks.items() if not ok]
    for k in bad:
        print('%s: drawn texts %s' % (name, k))
    return len(bad)


def unequal(work):
    """Ranks with other prompts, and an output that cannot be written: one clear error, and no file."""
    folder, other = work.fresh('m'), work.fresh('other')
    for x in (folder, other):
        write_folder(x, 'llama_gqa', [1])
    with open(os.path.join(other, 'prompts.jsonl'), 'a') as f:
        f.write('{"input_ids": [5]}\n')
    bad = 0
    args = ['--deepspeed_config', work.write('ds.json', configuration(3, 2, 2)), '--json', '--model', folder, '--max-new-tokens', NEW]
    for data, out, said in ((other, work.fresh('out'), 'file of --data'), (folder, work.fresh('none') + '/out', 'cannot be written')):
        rank = [args + ['--generate', out, '--data', os.path.join(x, 'prompts.jsonl')] for x in (folder, data)]
        status, _, err = work.run(2, rank[0], 120, rank[1])
        if not status or said not in err or os.path.exists(out) or glob.glob(os.path.join(os.path.dirname(out), '.out*.tmp')):
            bad += 1
            print('unequal: exit %s: %s' % (status, err[:300]))
    return bad


# the configuration of the program that runs T0_3B on two GPUs with ZeRO-3 and offload, in the documentation of transformers
T0 = {'fp16': {'enabled': False}, 'bf16': {'enabled': False},
      'zero_optimization': {'stage': 3, 'offload_param': {'device': 'cpu', 'pin_memory': True}, 'overlap_comm': True,
                            'contiguous_gradients': True, 'reduce_bucket_size': 24 * 24, 'stage3_prefetch_bucket_size': int(0.9 * 24 * 24),
                            'stage3_param_persistence_threshold': 10 * 24},
      'steps_per_print': 2000, 'train_batch_size': 2, 'train_micro_batch_size_per_gpu': 1, 'wall_clock_breakdown': False}
REVIEWS = ['Is this review positive or negative? Review: this is the best cast iron skillet you will ever buy',
           'Is this review positive or negative? Review: this is the worst restaurant ever']


def t0(work):
    """That program: a review on each of two ranks; text in, text out."""
    folder = work.fresh('t0')
    cls, config, _ = model('t5')
    os.makedirs(folder)
    with open(os.path.join(FIXTURES, 'tokenizers', 'unigram.json')) as f:
        tokenizer = f.read()
    config['vocab_size'] = 256
    for name, text in (('config.json', json.dumps(config)), ('tokenizer.json', tokenizer)):
        with open(os.path.join(folder, name), 'w') as f:
            f.write(text)
    ids = struct.pack('<8q', *range(4, 12))
    data = work.fresh('pairs.safetensors')
    write_safetensors(data, {'input_ids': ('I64', [2, 4], ids), 'labels': ('I64', [2, 4], ids)})
    made = work.fresh('made')
    status, _, err = work.run(1, ['--deepspeed_config', work.write('ds.json', configuration(0, 2, 1)), '--model', folder, '--init', 'none',
                                  '--data', data, '--max-steps', 1, '--save-model', made])
    if status:
        print('t0: ' + err.strip()[-400:])
        return 1
    with open(os.path.join(made, 'tokenizer.json'), 'w') as f:
        f.write(tokenizer)
    reviews = work.write('reviews.txt', '\n'.join(REVIEWS) + '\n')
    got = []
    for ranks in (2, 1):
        config = {**T0, 'train_batch_size': ranks}
        got.append(work.run(ranks, ['--deepspeed', work.write('ds.json', config), '--model_name_or_path', made, '--data', reviews,
                                    '--do_predict', '--predict_with_generate', '--generate', '-']))
    if got[0][0] or got[0][1] != got[1][1] or got[0][1].count('\n') != 2 or len(got[0][1]) < 10:
        print('t0: %s, on one rank %s' % tuple(got))
        return 1
    return 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('--some', action='store_true')
    p.add_argument('--device', default='cpu')
    p.add_argument('names', nargs='*')
    a = p.parse_args()
    work = Work(a.bin)
    work.program += ['--device', a.device]
    near = a.device == 'cpu'
    names = a.names or NAMES
    bad = 0
    for i, name in enumerate(names):
        runs = [RUNS[2 + i % 3]] if a.some else RUNS
        bad += greedy(work, name, recorded()[name], [(*r[:3], r[3] and near) for r in runs])   # GPUs have no offload_param
    for name in ['qwen2_tied'] if near and a.some else ['qwen2_tied', 't5'] if near else []:
        bad += drawn(work, name, recorded()[name])
    bad += t0(work) + unequal(work) if near else 0
    print('generated texts: %d models, %d wrong' % (len(names), bad))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
