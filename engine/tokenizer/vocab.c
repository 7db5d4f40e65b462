/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.c: finds tokens by their text. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/tokenizer/inside.h"

static bool voc_same(const void *ctx, uint32_t number, const void *key)
{
    const tz_token *have = &((const tz_vocab *)ctx)->token.at[number];
    const ckpt_text *text = key;

    return have->n == text->n && memcmp(have->text, text->at, text->n) == 0;
}

const tz_token *tz_vocab_find(const tz_vocab *v, const char *s, size_t n)
{
    const ckpt_text key = {s, n};
    uint32_t at = ckpt_index_find(&v->by_text, ckpt_hash_bytes(s, n, 0), voc_same, v, &key);

    return at == CKPT_INDEX_NONE ? NULL : &v->token.at[at];
}

int tz_vocab_add(tz_vocab *v, const tz_token *token, ckpt_err *err)
{
    assert(v && token);
    tz_token *to;

    if (token->id < 0 || token->id >= TZ_TOKENS)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "token '%.80s' has number %" PRId32 ": expected 0 to %d", token->text,
                         token->id, TZ_TOKENS - 1);
    if (tz_vocab_find(v, token->text, token->n))
        return CKPT_OK;
    to = v->token.n < TZ_TOKENS ? ckpt_vec_push(&v->token) : NULL;
    if (!to)
        return ckpt_fail_memory(err);
    *to = *token;
    v->last = token->id > v->last ? token->id : v->last;
    if (!ckpt_index_add(&v->by_text, ckpt_hash_bytes(token->text, token->n, 0),
                        (uint32_t)v->token.n - 1))
        return ckpt_fail_memory(err);
    return CKPT_OK;
}

void tz_vocab_free(tz_vocab *v)
{
    ckpt_vec_free(&v->token);
    ckpt_index_free(&v->by_text);
}

void tz_vocab_bytes(const tz_vocab *v, int32_t out[256])
{
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        const tz_token *t;

        (void)snprintf(name, sizeof name, "<0x%02X>", i);
        t = tz_vocab_find(v, name, 6);
        out[i] = t ? t->id : -1;
    }
}
