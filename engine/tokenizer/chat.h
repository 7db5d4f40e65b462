/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat.h: declares how conversations become text, as chat templates of transformers write them.
 *
 * A template is a program in Jinja.  This code does not run it: it compares its text with those of
 * a list, after blanks inside its tags and differences of layout are removed, and then writes what
 * that template writes.
 */
#ifndef ZT_TOKENIZER_CHAT_H
#define ZT_TOKENIZER_CHAT_H

#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

typedef struct zt_chat zt_chat; /* a known template */

/* Find a template by its text.  Errors CKPT_EUNSUPPORTED: it is not known; CKPT_ELIMIT */
int zt_chat_find(const zt_chat **out, ckpt_text template, ckpt_err *err);

/* A part of a text, in bytes: an answer. */
typedef struct zt_span {
    size_t from, to;
} zt_span;
CKPT_VEC(zt_spans, zt_span);

/* A conversation: a list of {"role", "content"}, and the texts of special tokens. */
typedef struct zt_talk {
    const ckpt_value *messages;
    ckpt_text bos, eos;
    bool prompt; /* add_generation_prompt: end with the begin of an answer */
} zt_talk;

/*
 * Append the text of a conversation, and its answers with the token that ends each.
 *
 * Errors  CKPT_EFORMAT: a message without role and content, roles that the template refuses;
 *         CKPT_ELIMIT
 */
int zt_chat_write(const zt_chat *c, const zt_talk *talk, ckpt_bytes *text, zt_spans *answers,
                  ckpt_err *err);

#endif
