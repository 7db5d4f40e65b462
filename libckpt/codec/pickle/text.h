/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h: the textual arguments of pickle opcodes: numbers, escapes, long integers.
 */
#ifndef CKPT_CODEC_PICKLE_TEXT_H
#define CKPT_CODEC_PICKLE_TEXT_H

#include "libckpt/codec/pickle/node.h"

/* Well-formed UTF-8 as Python writes it: single surrogates are let through. */
bool ckpt_pk_text_ok(const char *s, uint64_t n);

/* Two's complement, little-endian, n bytes: an INT if it fits, else a LONG of minimal length. */
int ckpt_pk_long(const ckpt_pk *p, ckpt_value **out, const uint8_t *bytes, uint64_t n);

/* "-123", "123L": at most 64 digits, else CKPT_ELIMIT. */
int ckpt_pk_decimal(const ckpt_pk *p, ckpt_value **out, ckpt_text s);

/* A number of the memo, as PUT and GET have it. */
int ckpt_pk_memo_number(const ckpt_pk *p, ckpt_text s, uint64_t *out);

/* "1.5e-3", "inf", "nan". */
int ckpt_pk_float(const ckpt_pk *p, ckpt_value **out, ckpt_text s);

/* The argument of UNICODE: Latin-1 with \uXXXX escapes. */
int ckpt_pk_unicode(const ckpt_pk *p, ckpt_value **out, ckpt_text s);

/* The argument of STRING: a quoted literal with escapes, as Python 2's repr writes it. */
int ckpt_pk_string(const ckpt_pk *p, ckpt_value **out, ckpt_text s);

/* Text of Python 2, whose strings were bytes: STR if it is UTF-8, else BYTES. */
int ckpt_pk_old_string(const ckpt_pk *p, ckpt_value **out, const char *s, uint64_t n);

#endif
