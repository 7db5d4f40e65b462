# SPDX-License-Identifier: Apache-2.0
"""tokens.py: converts text to the token files with which zerotrain(1) trains language models.

    python -m ckpt.tokens --tokenizer PATH -o FILE.bin|FILE.npy [--model PATH] TEXT...

Each TEXT is a plain text (one document, or one per line with --lines) or .jsonl (one document per line, in its member "text").
The tokenizer is a tokenizer.json, or its folder, read by the `tokenizers` library.  Each document ends with the end token.  The
output appears when it is complete; zerotrain cuts it into samples (--seq).

A .bin file contains only tokens, of 2 bytes each if the vocabulary has up to 65536, else 4.  zerotrain infers the width from
the vocabulary of the *model*, so --model should name its config.json.  A .npy file stores the width itself.
"""
from __future__ import annotations

import argparse
import array
import json
import os
import sys
from typing import Any, BinaryIO, Iterable, Iterator, List, Optional

BATCH = 256     # documents per call of the tokenizer
NPY = 128       # bytes of the .npy header, enough for any count


class Wrong(Exception):
    """An error for the user, printed without a traceback."""


def read_json(path: str) -> Any:
    try:
        with open(path, encoding='utf-8') as f:
            return json.load(f)
    except OSError as x:
        raise Wrong('%s: %s' % (path, x.strerror)) from None
    except ValueError as x:
        raise Wrong('%s: is not JSON: %s' % (path, x)) from None


def load_tokenizer(path: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise Wrong('the package that reads tokenizer.json is missing: pip install tokenizers') from None
    try:
        return Tokenizer.from_file(path)
    except Exception as x:   # the library raises plain Exception
        raise Wrong('%s: %s' % (path, x)) from None


def end_token(tokenizer: Any, path: str, named: Optional[str]) -> int:
    """Number of the end token: the named one, or eos_token of the tokenizer_config.json beside the tokenizer."""
    if named is None:
        beside = os.path.join(os.path.dirname(path), 'tokenizer_config.json')
        found = read_json(beside).get('eos_token') if os.path.exists(beside) else None
        named = found.get('content') if isinstance(found, dict) else found
        if not named:
            raise Wrong('the folder of %s does not name the token that ends a document: use --eos TOKEN, or --no-eos' % path)
    number = tokenizer.token_to_id(named)
    if number is None:
        raise Wrong('%s: has no token %r' % (path, named))
    return number


def documents(path: str, field: str, lines: bool) -> Iterator[str]:
    try:
        with open(path, encoding='utf-8', newline='') as f:
            if path.endswith('.jsonl'):
                for i, line in enumerate(f, 1):
                    if line.strip():
                        yield member(path, i, line, field)
            elif lines:
                for line in f:
                    if line.strip():
                        yield line.rstrip('\r\n')
            else:
                text = f.read()
                if text:
                    yield text
    except OSError as x:
        raise Wrong('%s: %s' % (path, x.strerror)) from None
    except UnicodeDecodeError as x:
        raise Wrong('%s: is not UTF-8: byte %d' % (path, x.start)) from None


def member(path: str, number: int, line: str, field: str) -> str:
    try:
        row = json.loads(line)
        text = row.get(field)
    except (ValueError, AttributeError):
        raise Wrong('%s: line %d is not a JSON object' % (path, number)) from None
    talk = [x for x in ('messages', 'conversations', 'conversation', 'instruction', 'prompt') if x in row]
    if not isinstance(text, str) and talk:
        raise Wrong('%s: line %d has no text in %r, but has %r: convert the conversation to text with apply_chat_template(..., '
                    'tokenize=False) of transformers and write it as %r, or use --field' % (path, number, field, talk[0], field))
    if not isinstance(text, str):
        raise Wrong('%s: line %d has no text in %r (use --field NAME)' % (path, number, field))
    return text


def batches(texts: Iterable[str]) -> Iterator[List[str]]:
    batch: List[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def npy_header(count: int, width: int) -> bytes:
    """Version 1.0 of numpy's format (numpy/lib/format.py), one axis."""
    text = "{'descr': '<u%d', 'fortran_order': False, 'shape': (%d,), }" % (width, count)
    return b'\x93NUMPY\x01\x00' + (NPY - 10).to_bytes(2, 'little') + text.ljust(NPY - 11).encode() + b'\n'


def write(f: BinaryIO, tokenizer: Any, texts: Iterable[str], eos: Optional[int], vocab: int, width: int) -> int:
    """Write the tokens of all documents; return their number."""
    count = 0
    for batch in batches(texts):
        for piece in tokenizer.encode_batch(batch, add_special_tokens=False):
            ids = piece.ids + ([] if eos is None else [eos])
            if ids and max(ids) >= vocab:
                raise Wrong('token %d is outside the vocabulary of the model, which has %d tokens' % (max(ids), vocab))
            row = array.array('H' if width == 2 else 'I', ids)
            if sys.byteorder == 'big':
                row.byteswap()
            f.write(row.tobytes())
            count += len(ids)
    return count


def convert(a: argparse.Namespace) -> str:
    """Write a.output; return the message about it."""
    path = os.path.join(a.tokenizer, 'tokenizer.json') if os.path.isdir(a.tokenizer) else a.tokenizer
    tokenizer = load_tokenizer(path)
    eos = None if a.no_eos else end_token(tokenizer, path, a.eos)
    vocab = tokenizer.get_vocab_size(with_added_tokens=True)
    if a.model:
        config = os.path.join(a.model, 'config.json') if os.path.isdir(a.model) else a.model
        vocab = read_json(config).get('vocab_size')
        if not isinstance(vocab, int) or vocab < 1:
            raise Wrong('%s: has no vocab_size' % config)
    width = 2 if vocab <= 65536 else 4
    npy = a.output.endswith('.npy')
    if not npy and not a.output.endswith('.bin'):
        raise Wrong('%s: the name of the output must end in .bin or .npy' % a.output)
    temporary = a.output + '.ckpt-tokens.tmp'
    try:
        with open(temporary, 'wb') as f:
            f.write(npy_header(0, width) if npy else b'')
            texts = (text for name in a.text for text in documents(name, a.field, a.lines))
            count = write(f, tokenizer, texts, eos, vocab, width)
            if count == 0:
                raise Wrong('the input has no text')
            if npy:
                f.seek(0)
                f.write(npy_header(count, width))
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, a.output)
    except OSError as x:
        raise Wrong('%s: %s' % (x.filename or a.output, x.strerror)) from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return '%s: %d tokens of %d bytes, of a vocabulary of %d%s' % (a.output, count, width, vocab, '' if npy or a.model else
                                                                   ' (zerotrain --token-dtype uint%d)' % (8 * width))


def main(argv: Optional[List[str]] = None) -> int:
    p = argparse.ArgumentParser(prog='python -m ckpt.tokens', description='Text to the token files that zerotrain trains on.')
    p.add_argument('--tokenizer', required=True, metavar='PATH', help='tokenizer.json, or its folder')
    p.add_argument('-o', '--output', required=True, metavar='FILE', help='.bin or .npy')
    p.add_argument('--model', metavar='PATH', help='config.json of the model, or its folder: its vocabulary says how wide tokens are')
    p.add_argument('--eos', metavar='TOKEN', help='that ends a document (eos_token of tokenizer_config.json)')
    p.add_argument('--no-eos', action='store_true', help='documents follow each other without one')
    p.add_argument('--field', default='text', metavar='NAME', help='member of .jsonl lines (text)')
    p.add_argument('--lines', action='store_true', help='each line of a plain text is a document')
    p.add_argument('text', nargs='+', metavar='TEXT')
    a = p.parse_args(argv)
    if a.eos is not None and a.no_eos:
        p.error('--eos has no effect with --no-eos')
    try:
        print(convert(a))
    except Wrong as x:
        print('ckpt.tokens: %s' % x, file=sys.stderr)
        return 2
    return 0


if __name__ == '__main__':
    sys.exit(main())
