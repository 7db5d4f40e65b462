#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy generation of zerotrain against generate() of transformers, on the small models of tests/replay/generate.py; text in, text
out against `tokenizers`.

    generate.py --bin BIN [--record] [NAME...]

--record writes tests/fixtures/generated.json instead.
"""
import argparse
import json
import os
import sys

os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')
os.environ.setdefault('OMP_NUM_THREADS', '1')
import torch
import transformers
from tokenizers import Tokenizer

REPLAY = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'replay')
sys.path.insert(0, REPLAY)
import generate as ours
from training import Work

# transformers imports deepspeed, which must not be the file there
sys.path[:] = [x for x in sys.path if not x or not os.path.isdir(x) or not os.path.samefile(x, REPLAY)]

transformers.logging.set_verbosity_error()


def load(cls, config, tensors):
    """A model of transformers with these weights."""
    torch.manual_seed(1)
    kind = {k: v for k, v in config.items() if k not in ('architectures', 'model_type')}
    c = transformers.AutoConfig.for_model(config['model_type'], **kind)
    m = getattr(transformers, cls)._from_config(c, attn_implementation='eager').eval()
    if cls.startswith('T5') and 'lm_head.weight' in tensors:   # T5 1.1 is loaded like this; _from_config ties
        m.lm_head.weight = torch.nn.Parameter(m.lm_head.weight.detach().clone())
    known = dict(m.named_parameters())
    assert set(known) == set(tensors), set(known) ^ set(tensors)
    with torch.no_grad():
        for name, (_, shape, data) in tensors.items():
            known[name].copy_(torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape))
    return m


def texts(m, prompts, ends):
    """What generate() gives for each prompt alone: new tokens, the end token included."""
    out = []
    for ids in prompts:
        got = m.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False, num_beams=1,
                         max_new_tokens=ours.NEW, use_cache=False, eos_token_id=ends, pad_token_id=0)[0].tolist()
        out.append(got[1:] if m.config.is_encoder_decoder else got[len(ids):])
    return out


def expected(name):
    cls, config, tensors = ours.model(name)
    m = load(cls, config, tensors)
    prompts = ours.prompts(config['vocab_size'])
    free = texts(m, prompts, [config['vocab_size'] + 1])
    ends = sorted({x for t in free for x in t}, key=lambda x: abs(sum(x in t[:-1] for t in free) - 3))[:1] + [1]   # about three texts end
    out = {'ends': ends, 'texts': texts(m, prompts, ends)}
    short, kinds = sum(len(x) < ours.NEW for x in out['texts']), len({tuple(x) for x in out['texts']})
    print('%s: %d of %d texts end early, %d differ' % (name, short, len(prompts), kinds))
    return out


def text(work):
    """Lines of text, by a tokenizer of bytes."""
    path = os.path.join(ours.FIXTURES, 'tokenizers', 'gpt2.json')
    t = Tokenizer.from_file(path)
    c = transformers.GPT2Config(vocab_size=t.get_vocab_size(), n_embd=32, n_layer=2, n_head=4, n_positions=64, eos_token_id=0, bos_token_id=0)
    torch.manual_seed(1)
    m = transformers.GPT2LMHeadModel(c).eval()
    with torch.no_grad():
        for p in m.parameters():
            if p.ndim > 1:
                p.normal_(0, 0.3)
    folder = work.fresh('text')
    m.save_pretrained(folder)
    with open(path) as f, open(os.path.join(folder, 'tokenizer.json'), 'w') as to:
        to.write(f.read())
    lines = ['The quick brown fox', '你好，世界！', 'naïve café', ' 😀 a']
    want = ''.join(t.decode(x) + '\n' for x in texts(m, [t.encode(x).ids for x in lines], [0]))
    path = work.fresh('out')
    status, _, err = work.run(1, ['--deepspeed_config', work.write('ds.json', ours.configuration(0, 3, 1)), '--model', folder, '--data',
                                  work.write('lines.txt', '\n'.join(lines) + '\n'), '--generate', path, '--max-new-tokens', ours.NEW])
    out = '' if status else open(path, encoding='utf-8', newline='').read()
    if out != want:
        print('text: %r %s\n  expected %r' % (out, err[-300:], want))
        return 1
    return 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('--record', action='store_true')
    p.add_argument('names', nargs='*')
    a = p.parse_args()
    names = a.names or ours.NAMES
    found = {name: expected(name) for name in names}
    if a.record:
        path = os.path.join(ours.FIXTURES, 'generated.json')
        with open(path, 'w') as f:
            f.write('{\n' + ',\n'.join(' %s: %s' % (json.dumps(k), json.dumps(v)) for k, v in found.items()) + '\n}\n')
        return 0
    work = Work(a.bin)
    bad = sum(ours.greedy(work, name, found[name], ours.RUNS[1:4:2]) for name in names) + text(work)
    print('generate: %d models, %d wrong' % (len(names), bad))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
