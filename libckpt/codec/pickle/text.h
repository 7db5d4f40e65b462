/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h: decodes the text arguments of pickle opcodes: numbers, escapes, long integers.
 */
#ifndef CKPT_CODEC_PICKLE_TEXT_H
#define CKPT_CODEC_PICKLE_TEXT_H

#include "libckpt/codec/pickle/node.h"

/* True for UTF-8 as Python writes it: lone surrogates are allowed. */
bool ckpt_pk_text_ok(const char *s, uint64_t n);

/*
 * Make an integer from n bytes (two's complement, little-endian): an INT if it fits, else a LONG of
 * minimal length.
 */
int ckpt_pk_long(const ckpt_pk *p, ckpt_value **out, const uint8_t *bytes, uint64_t n);

/* Parse "-123" or "123L": at most 64 digits, else CKPT_ELIMIT. */
int ckpt_pk_decimal(const ckpt_pk *p, ckpt_value **out, ckpt_text s);

/* Parse a memo number of PUT or GET. */
int ckpt_pk_memo_number(const ckpt_pk *p, ckpt_text s, uint64_t *out);

/* Parse "1.5e-3", "inf", "nan". */
int ckpt_pk_float(const ckpt_pk *p, ckpt_value **out, ckpt_text s);

/* Decode the argument of UNICODE: Latin-1 with \uXXXX escapes. */
int ckpt_pk_unicode(const ckpt_pk *p, ckpt_value **out, ckpt_text s);

/* Decode the argument of STRING: a quoted literal with escapes, as Python 2's repr writes it. */
int ckpt_pk_string(const ckpt_pk *p, ckpt_value **out, ckpt_text s);

/* Decode a text of Python 2, where strings were bytes: STR if it is UTF-8, else BYTES. */
int ckpt_pk_old_string(const ckpt_pk *p, ckpt_value **out, const char *s, uint64_t n);

#endif
