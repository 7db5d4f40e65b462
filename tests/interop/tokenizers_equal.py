#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token numbers of zerotrain's tokenizer, and texts of tokens, against Hugging Face's `tokenizers`, on small tokenizers that the library trains here.

    tokenizers_equal.py --encode PROGRAM [--seed N] [--count N] [--record FOLDER]

--record writes the small tokenizers, texts and numbers that the unit test compares (tests/fixtures/tokenizers).
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = None
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r'\p{N}{1,3}', r'\p{N}')
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's 1234567 o'clock; we'LL see, they've said.",
    "    indented\n\tcode(x, y) {\n        return x+y; // 3.14159\r\n}\n\n\n",
    "你好，世界！今天天气很好。日本語のテキスト、カタカナ。한국어 텍스트입니다.",
    "مرحبا بالعالم، كيف حالك؟ שלום עולם!",
    "Emoji 😀😃👨‍👩‍👧‍👦 🇩🇪 👍🏽 and symbols ™©®√∞ — “quotes” … ½ ² Ⅷ ٣٤٥",
    "Ünïcödé é combining e\u0301 a\u030a; ﬁ ligature, Ａ fullwidth, ẞ ß, İstanbul ıI, Σίσυφος",
    "a\u00a0b\u2003c\u200bd\u2028e\u0085f\x0bg\x0ch\x00i\x7fj\u180ek",
    "naïve café résumé Привет мир, как дела? Ελληνικά हिन्दी नमस्ते ไทย",
    "<s>[INST] text </s> <|endoftext|> <|im_start|>user\nhi<|im_end|>\n x<mask> y",
]

# ckpt refuses a NUL in JSON, so vocabularies of characters do not get it
CLEAN = [x.replace('\0', '') for x in CORPUS]


def random_text(r):
    ranges = [(0x20, 0x7e)] * 6 + [(0, 0x1f), (0x80, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x5ff), (0x600, 0x6ff),
              (0x900, 0x97f), (0x1100, 0x11ff), (0x2000, 0x206f), (0x2070, 0x218b), (0x3000, 0x30ff), (0x4e00, 0x4f00), (0xac00, 0xad00),
              (0xf900, 0xfa00), (0xff00, 0xffef), (0x1f300, 0x1f64f), (0x20000, 0x20100), (0xe000, 0xe010)]
    words = ["<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<mask>", "  ", "\n", "\n\n", " ", " \t", "'s", "'LL", "123", "▁", "the", "ſ",
             "\r\n", "<0x41>", "é", "ﬁ", "1", "ab", "İ"]
    parts = []
    for _ in range(r.randrange(1, 14)):
        if r.random() < 0.4:
            parts.append(r.choice(words))
        elif r.random() < 0.4:
            s = r.choice(CORPUS)
            a = r.randrange(len(s))
            parts.append(s[a:a + r.randrange(1, 30)])
        else:
            lo, hi = r.choice(ranges)
            parts.append(''.join(chr(r.randint(lo, hi)) * r.choice([1, 1, 1, 3]) for _ in range(r.randrange(1, 8))))
    return ''.join(parts)


def byte_level(regex, special, **more):
    t = Tokenizer(models.BPE(**more))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if regex is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(regex), 'isolated'), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(vocab_size=420, special_tokens=special, show_progress=False,
                                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def template(t, before, after=''):
    names = [x for x in (before, after) if x]
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single=' '.join(x for x in (before, '$A', after) if x), special_tokens=[(x, t.token_to_id(x)) for x in names])])


def gpt2():
    return byte_level(GPT2, ['<|endoftext|>'])


def roberta():
    t = byte_level(GPT2, ['<s>', '</s>'])
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.add_special_tokens([AddedToken('<mask>', lstrip=True, rstrip=False)])
    t.post_processor = processors.RobertaProcessing(('</s>', t.token_to_id('</s>')), ('<s>', t.token_to_id('<s>')))
    return t


def llama3():
    t = byte_level(LLAMA3, [], ignore_merges=True)
    t.add_special_tokens(['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<s>'])
    template(t, '<s>')
    return t


def qwen2():
    t = byte_level(QWEN2, [])
    t.normalizer = normalizers.NFC()
    t.add_special_tokens(['<|endoftext|>', '<|im_start|>', '<|im_end|>'])
    t.add_tokens([AddedToken('é', normalized=True, single_word=True), AddedToken('the', rstrip=True)])
    return t


def starcoder():
    t = byte_level(GPT2, ['<|endoftext|>'])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return t


def deepseek():
    t = byte_level(QWEN2, ['<|endoftext|>'])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r'\p{N}{1,3}'), 'isolated'), pre_tokenizers.Split(Regex('[一-龥぀-ゟ゠-ヿ]+'), 'isolated'),
        pre_tokenizers.Split(Regex(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return t


def o200k():
    return byte_level(O200K, ['<|endoftext|>'])


def neox():
    t = byte_level(GPT2, ['<|endoftext|>'])
    t.normalizer = normalizers.NFC()
    t.add_tokens([AddedToken(' ' * n, normalized=True) for n in range(2, 6)])
    return t


# what means something else to PCRE2 than to Oniguruma: classes in classes, \\w with marks, \\h, lines
ONIGURUMA = {'bloom': ' ?[^(\\s|[.,!?…。，、।۔،])]+', 'nested': '[a-c[x-z]]+|[^a-cx-z]', 'words': '\\w+|\\W', 'hexadecimal': '\\h+|\\H', 'lines': '^a.*|.$|.'}


def oniguruma(name):
    return byte_level(ONIGURUMA[name], ['<|endoftext|>'])


def sentencepiece_bpe(post):
    t = Tokenizer(models.BPE(unk_token='<unk>', fuse_unk=True, byte_fallback=True))
    special = ['<unk>', '<s>', '</s>'] + ['<0x%02X>' % i for i in range(256)]
    t.normalizer = normalizers.Sequence([normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
    trainer = trainers.BpeTrainer(vocab_size=560, special_tokens=special, show_progress=False, limit_alphabet=80)
    t.train_from_iterator([x.replace(' ', ' ▁') for s in CLEAN for x in s.split('\n')] * 3, trainer)
    j = json.loads(t.to_str())
    j['added_tokens'] = [x for x in j['added_tokens'] if x['id'] < 3]
    t = Tokenizer.from_str(json.dumps(j))
    post(t)
    return t


def llama2():
    return sentencepiece_bpe(lambda t: template(t, '<s>'))


def mistral():
    def post(t):
        t.normalizer = None
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='first', split=False)
        template(t, '<s>', '</s>')
    return sentencepiece_bpe(post)


def gemma():
    def post(t):
        t.normalizer = normalizers.Replace(' ', '▁')
        t.pre_tokenizer = pre_tokenizers.Split(' ', 'merged_with_previous')
        template(t, '<s>')
    return sentencepiece_bpe(post)


def no_fallback():
    t = Tokenizer(models.BPE(unk_token='<unk>', fuse_unk=False))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits()])
    t.train_from_iterator(CLEAN * 3, trainers.BpeTrainer(vocab_size=200, special_tokens=['<unk>'], show_progress=False, limit_alphabet=60))
    return t


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(' {2,}'), ' ')])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='always')
    t.train_from_iterator(CLEAN * 3, trainers.UnigramTrainer(vocab_size=200, special_tokens=['<pad>', '</s>', '<unk>'], unk_token='<unk>',
                                                              show_progress=False))
    template(t, '', '</s>')
    return t


def unigram_bytes():
    t = unigram()
    j = json.loads(t.to_str())
    j['model']['byte_fallback'] = True
    j['model']['vocab'] += [['<0x%02X>' % i, -20.0] for i in range(256)]
    j['normalizer'] = {'type': 'Sequence', 'normalizers': [{'type': 'NFD'}, {'type': 'StripAccents'}]}
    j['pre_tokenizer'] = {'type': 'Sequence', 'pretokenizers': [{'type': 'WhitespaceSplit'}, {
        'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': 'always', 'split': True}]}
    return Tokenizer.from_str(json.dumps(j))


def behaviors():
    """All behaviors of Split, on a model that knows every byte."""
    for behavior in ('removed', 'isolated', 'merged_with_previous', 'merged_with_next', 'contiguous'):
        for invert in (False, True):
            t = gpt2()
            t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r'\s|[aeiou]'), behavior, invert=invert),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
            yield 'split_%s%s' % (behavior, '_invert' if invert else ''), t


def fields(data):
    """Numbers and values of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        v = shift = 0
        while True:
            v |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return v
    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            n = {1: 8, 5: 4}.get(tag & 7) or varint()
            yield tag >> 3, data[at:at + n]
            at += n


def sentencepiece_model(folder, **options):
    """Train a model; return its path."""
    import sentencepiece
    with open(folder + '/text', 'w') as f:
        f.write('\n'.join(x.replace('\0', ' ').replace('\n', ' ') for x in CORPUS * 20))
    sentencepiece.SentencePieceTrainer.train(input=folder + '/text', model_prefix=folder + '/m', hard_vocab_limit=False, minloglevel=2, **options)
    return folder + '/m.model'


def charsmap():
    """T5's table of characters, which this library cannot make."""
    with tempfile.TemporaryDirectory() as d:
        with open(sentencepiece_model(d, vocab_size=300), 'rb') as f:
            model = list(fields(f.read()))
    pieces = [dict(fields(v)) for k, v in model if k == 1]
    table = [dict(fields(v)).get(2) for k, v in model if k == 3][0]
    t = Tokenizer(models.Unigram([(x[1].decode(), struct.unpack('<f', x[2])[0] if 2 in x else 0.0) for x in pieces], 0, False))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(table), normalizers.Replace(Regex(' {2,}'), ' ')])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='always')
    return t


def make():
    for f in (gpt2, roberta, llama3, qwen2, starcoder, deepseek, o200k, neox, llama2, mistral, gemma, no_fallback, unigram, unigram_bytes):
        yield f.__name__, f()
    for name in ONIGURUMA:
        yield name, oniguruma(name)
    yield from behaviors()
    try:
        yield 'charsmap', charsmap()
    except ImportError:
        print('tokenizers: no sentencepiece: its table of characters is not tried')


def ours(program, path, texts, special, decode=False):
    data = b''.join(b'%d\n%s' % (len(x.encode()), x.encode()) for x in texts)
    words = [program, '--decode', path] if decode else [program, path] + (['special'] if special else [])
    p = subprocess.run(words, input=data, capture_output=True)
    if p.returncode:
        raise SystemExit('%s: %s' % (path, p.stderr.decode()))
    return p.stdout.decode().split('\n')[:-1]


def compare(a, name, t, texts):
    path = os.path.join(a.folder, name + '.json')
    t.save(path, pretty=False)
    t = Tokenizer.from_file(path)
    bad = 0
    for special in (True, False):
        want = [' '.join(map(str, x.ids)) for x in t.encode_batch(texts, add_special_tokens=special)]
        got = ours(a.encode, path, texts, special)
        for text, w, g in zip(texts, want, got):
            if w != g:
                bad += 1
                if bad <= 3:
                    print('%s: %r:\n  tokenizers %s\n  zerotrain  %s' % (name, text, w, g))
                    print('   ', [t.id_to_token(int(x)) for x in w.split()], '\n   ', [t.id_to_token(int(x)) for x in g.split() if x.isdigit()])
        if len(got) != len(want):
            bad += 1
    return bad


LLAMA = [decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse()]
DECODERS = {'none': None, 'llama': decoders.Sequence(LLAMA + [decoders.Strip(' ', 1, 0)]), 'gemma': decoders.Sequence(LLAMA),
            'metaspace': decoders.Metaspace(prepend_scheme='always'), 'metaspace never': decoders.Metaspace(prepend_scheme='never'),
            'wordpiece': decoders.WordPiece('##'), 'wordpiece plain': decoders.WordPiece('a', cleanup=False),
            'strip': decoders.Strip('e', 2, 0)}   # its end panics on short tokens


def some_ids(t, texts, r):
    """Tokens of texts, and any tokens: parts of characters, special ones, numbers without a token."""
    n = t.get_vocab_size()
    return [x.ids for x in t.encode_batch(texts)] + [[r.randrange(n + 3) for _ in range(r.randrange(12))] for _ in range(len(texts))]


def compare_decoded(a, name, t, texts, r):
    """The texts of tokens, with the decoders of known models."""
    bad = 0
    some = some_ids(t, texts[:150], r)
    for kind, decoder in DECODERS.items() if not isinstance(t.decoder, decoders.ByteLevel) else [('bytes', t.decoder)]:
        j = json.loads(t.to_str())
        j['decoder'] = None if decoder is None else json.loads(decoder.__getstate__())
        t = Tokenizer.from_str(json.dumps(j))
        path = os.path.join(a.folder, name + '.json')
        t.save(path)
        want = [json.dumps(t.decode(x, skip_special_tokens=True)) for x in some]
        got = ours(a.encode, path, [' '.join(map(str, x)) for x in some], False, True)
        got = [json.dumps(json.loads(x)) if x[:1] == '"' else x for x in got]
        for ids, w, g in zip(some, want, got):
            if w != g:
                bad += 1
                if bad <= 3:
                    print('%s, decoder %s: %r:\n  tokenizers %s\n  zerotrain  %s' % (name, kind, [t.id_to_token(x) for x in ids], w, g))
        bad += len(got) != len(want)
    return bad


def pieces(a, texts):
    """tokenizer.model against the sentencepiece library, on texts without special pieces and the texts of bytes."""
    import sentencepiece
    bad = 0
    for name, options in (('spm_bpe', dict(model_type='bpe', byte_fallback=True, vocab_size=560, normalization_rule_name='identity',
                                           remove_extra_whitespaces=False)),
                          ('spm_bpe_trim', dict(model_type='bpe', vocab_size=260, normalization_rule_name='identity')),
                          ('spm_unigram', dict(vocab_size=300, normalization_rule_name='identity')),
                          ('spm_unigram_bytes', dict(vocab_size=560, byte_fallback=True, normalization_rule_name='identity'))):
        path = sentencepiece_model(a.folder, **options)
        m = sentencepiece.SentencePieceProcessor(model_file=path)
        # SentencePiece reads U+2581 in text as a blank, and its unigram takes a NUL as an end
        some = [x for x in texts if not any(y in x for y in ('<s>', '</s>', '<unk>', '<0x', '▁', '\0')) and
                (not options.get('remove_extra_whitespaces', True) or not any(ord(c) > 127 and c.isspace() or c in SPACES for c in x))]
        wrong = 0
        for text, got in zip(some, ours(a.encode, path, some, False)):
            want = ' '.join(map(str, m.encode(text)))
            if want != got:
                wrong += 1
                if wrong <= 3:
                    print('%s: %r:\n  sentencepiece %s\n  zerotrain     %s' % (name, text, want, got))
        print('%s: %d of %d texts differ' % (name, wrong, len(some)))
        bad += wrong > 0
    return bad


# white space that a Strip of transformers' conversion removes at the ends, and SentencePiece does not
SPACES = '\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f'


def record(a):
    r = random.Random(5)
    # ckpt refuses a NUL in JSON
    texts = [x.replace('\0', '\1') for x in CORPUS + [''] + [random_text(r) for _ in range(60)]]
    os.makedirs(a.record, exist_ok=True)
    with open(os.path.join(a.record, 'texts.json'), 'w') as f:
        json.dump(texts, f, ensure_ascii=True)
        f.write('\n')
    for name, t in make():
        if name in ('gpt2', 'llama3', 'qwen2', 'mistral', 'llama2', 'unigram'):
            t.save(os.path.join(a.record, name + '.json'), pretty=False)
            with open(os.path.join(a.record, name + '.ids'), 'w') as f:
                f.write(''.join(' '.join(map(str, t.encode(x).ids)) + '\n' for x in texts))
    import sentencepiece
    with tempfile.TemporaryDirectory() as d:
        path = sentencepiece_model(d, model_type='bpe', byte_fallback=True, vocab_size=560, normalization_rule_name='identity',
                                   remove_extra_whitespaces=False)
        with open(path, 'rb') as f, open(os.path.join(a.record, 'spm.model'), 'wb') as to:
            to.write(f.read())
        m = sentencepiece.SentencePieceProcessor(model_file=path)
        # special pieces are not found in text by this library
        plain = [x for x in texts if not any(y in x for y in ('<s>', '</s>', '<unk>', '<0x', '▁'))]
        with open(os.path.join(a.record, 'spm.ids'), 'w') as f:
            f.write(''.join(' '.join(map(str, [1] + m.encode(x))) + '\n' if x in plain else '\n' for x in texts))


def record_decoded(a):
    """decoded.json: tokens and their text, for the recorded tokenizers; those without a decoder get one."""
    r = random.Random(6)
    with open(os.path.join(a.record, 'texts.json')) as f:
        texts = json.load(f)
    out = {}
    for name, kind in (('gpt2', 'bytes'), ('llama3', 'bytes'), ('qwen2', 'bytes'), ('mistral', 'metaspace'), ('llama2', 'llama'),
                       ('unigram', 'metaspace')):
        path = os.path.join(a.record, name + '.json')
        t = Tokenizer.from_file(path)
        if kind != 'bytes':
            t.decoder = DECODERS[kind]
            t.save(path, pretty=False)
        out[name] = [{'ids': x, 'text': t.decode(x)} for x in some_ids(t, r.sample(texts, 10), r)]
    with open(os.path.join(a.record, 'decoded.json'), 'w') as f:
        json.dump(out, f, ensure_ascii=True)
        f.write('\n')


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--encode', required=True)
    p.add_argument('--seed', type=int, default=random.randrange(1 << 30))
    p.add_argument('--count', type=int, default=500)
    p.add_argument('--record')
    a = p.parse_args()
    if a.record:
        record(a)
        return record_decoded(a)
    r = random.Random(a.seed)
    texts = CORPUS + ['', ' ', '\n'] + ['ab' * 3000, ' ' * 500, '\n' * 300 + 'x'] + [random_text(r) for _ in range(a.count)]
    bad = n = 0
    with tempfile.TemporaryDirectory() as a.folder:
        for name, t in make():
            n += 1
            wrong = compare(a, name, t, texts) + compare_decoded(a, name, t, texts, r)
            bad += wrong > 0
            if wrong:
                print('%s: %d of %d texts differ (seed %d)' % (name, wrong, 2 * len(texts), a.seed))
        bad += pieces(a, texts)
    print('tokenizers: %d of %d equal on %d texts' % (n - bad, n, len(texts)))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
