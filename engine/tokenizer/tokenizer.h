/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.h: declares the tokenizer of a model folder, which converts text to token numbers and
 * back.
 *
 *     tokenizer.c  text to tokens: added tokens, then the parts below
 *     file.c       tokenizer.json to those parts; spm.c: tokenizer.model
 *     vocab.c      tokens by their text; sorted.c: the keys that a text begins with
 *     normal.c     normalizers (charsmap.c: SentencePiece's table of characters)
 *     decode.c     tokens to text, by tokenizer.json's decoder
 *     chars.c      classes of characters; fields.c: values of tokenizer.json
 *     split.c      pre-tokenizers; regex.c: regular expressions, by PCRE2
 *     bpe.c        pairs of tokens merged by rank; unigram.c: the most probable pieces
 *
 * Numbers are those of Hugging Face's `tokenizers` library for the same file.  Tables of Unicode
 * are those of PCRE2 and libunistring (Debian 12: Unicode 14), so characters of later versions of
 * Unicode may be split differently.
 *
 * Files are untrusted: sizes and numbers are checked, a table that contradicts itself is refused,
 * and so is a component that this code does not have, by its name.
 */
#ifndef ZT_TOKENIZER_TOKENIZER_H
#define ZT_TOKENIZER_TOKENIZER_H

#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

typedef struct zt_tokenizer zt_tokenizer;
CKPT_VEC(zt_ids, int32_t);

/*
 * Read the tokenizer at path: a SentencePiece model if it ends in ".model", else a tokenizer.json.
 *
 * Errors   CKPT_EFORMAT: damaged, contradicts itself; CKPT_EUNSUPPORTED: a component that is not
 *          implemented; CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT
 */
int zt_tokenizer_open(zt_tokenizer **out, const char *path, ckpt_err *err);
void zt_tokenizer_free(zt_tokenizer *t); /* NULL is fine */

/* Number of a token by its text (an added token, or one of the vocabulary); -1: there is none. */
int32_t zt_tokenizer_find(const zt_tokenizer *t, const char *text);

/*
 * Append the tokens of a text.  Uses memory of t, so only one thread may encode with it at a time.
 *
 * special  add the tokens that the file's post-processor adds, such as a begin token
 * Errors   CKPT_EFORMAT: the text is not UTF-8, or cannot be represented; CKPT_ELIMIT: the text is
 *          longer than ZT_TEXT_BYTES, a regular expression takes too long, out of memory
 */
int zt_tokenizer_encode(zt_tokenizer *t, ckpt_text text, bool special, zt_ids *out, ckpt_err *err);

/*
 * Append the text of n tokens, without special ones and numbers that have no token, as decode of
 * `tokenizers` does.
 *
 * Errors   CKPT_EUNSUPPORTED: the file's decoder is of an unknown kind; CKPT_ELIMIT: the text, or
 *          that after a step of the decoder, is longer than 64 MiB, out of memory
 */
int zt_tokenizer_decode(const zt_tokenizer *t, const int32_t *ids, size_t n, ckpt_bytes *out,
                        ckpt_err *err);

#define ZT_TEXT_BYTES (UINT64_C(256) << 20) /* limit of one text */

#endif
