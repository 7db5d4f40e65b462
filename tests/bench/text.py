#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure BPE: zerotrain's tokenizer beside Hugging Face's `tokenizers`, both on one thread.

  text.py --encode build/encode [--mb 8] [--rounds 5]     (tests/bench/run.sh build/bin text)

The library trains a tokenizer of 16000 tokens on the sources and pages of this tree, with GPT-2's and with Llama 3's way to split
text.  The text is lines of the same in a random order, until there are enough of them; each is encoded by itself.  The programs
take turns, each in a process of its own; the tokens must be as many.  Figures: best and median of MB per second of the processor.
"""
import argparse
import datetime
import glob
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def lines_of_tree():
    found = []
    for pattern in ('engine/**/*.c', 'libckpt/**/*.c', 'man/*.[1-7]', '*.md'):
        for path in sorted(glob.glob(os.path.join(ROOT, pattern), recursive=True)):
            with open(path, encoding='utf-8') as f:
                found += f.read().splitlines(True)
    return found


def train(lines, split):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), 'isolated'),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=16000, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def child(tokenizer, text):
    """One turn of the library: the tokens, and the seconds."""
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(tokenizer)
    with open(text, encoding='utf-8', newline='') as f:
        lines = f.read().splitlines(True)
    start = time.process_time()
    n = sum(len(x.ids) for x in t.encode_batch(lines))
    print(n, time.process_time() - start)


def turn(command, data=None):
    out = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True, env=dict(os.environ, TOKENIZERS_PARALLELISM='false'))
    tokens, seconds = out.stdout.split()
    return int(tokens), float(seconds)


def measure(a, folder, name, split, lines):
    tokenizer, text = os.path.join(folder, name + '.json'), os.path.join(folder, 'text')
    train(lines, split).save(tokenizer)
    r, some, size = random.Random(7), [], 0
    while size < a.mb * 1000000:
        some.append(r.choice(lines))
        size += len(some[-1].encode())
    with open(text, 'w', encoding='utf-8', newline='') as f:
        f.write(''.join(some))
    data = b''.join(b'%d\n%s' % (len(x.encode()), x.encode()) for x in some)
    ours, theirs = [], []
    for _ in range(a.rounds):
        ours.append(turn([a.encode, tokenizer, 'time'], data))
        theirs.append(turn([sys.executable, os.path.abspath(__file__), 'child', tokenizer, text]))
    if len({n for n, _ in ours + theirs}) != 1:
        sys.exit('%s: zerotrain has %d tokens, tokenizers %d' % (name, ours[0][0], theirs[0][0]))
    rate = [[size / 1e6 / s for _, s in x] for x in (ours, theirs)]
    cells = ['%.2f' % f(x) for x in rate for f in (max, statistics.median)]
    print('| ' + ' | '.join([name, str(ours[0][0])] + cells + ['%.2f' % (max(rate[0]) / max(rate[1]))]) + ' |', flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('--encode', required=True)
    p.add_argument('--mb', type=int, default=8)
    p.add_argument('--rounds', type=int, default=5)
    a = p.parse_args()
    import tokenizers
    print('%s; tokenizers %s; %d MB; load %.1f\n' % (datetime.date.today(), tokenizers.__version__, a.mb, os.getloadavg()[0]))
    print('| split | tokens | zerotrain, best MB/s | median | tokenizers, best MB/s | median | ratio of bests |')
    print('| --- ' * 7 + '|')
    lines = lines_of_tree()
    with tempfile.TemporaryDirectory() as folder:
        measure(a, folder, 'gpt2', None, lines)
        measure(a, folder, 'llama3', LLAMA3, lines)


if __name__ == '__main__':
    if sys.argv[1:2] == ['child']:
        child(*sys.argv[2:])
    else:
        main()
