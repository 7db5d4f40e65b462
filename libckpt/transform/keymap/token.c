/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token.c: finds the number of a special token in the tokenizer's files beside a model.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/address.h"
#include "libckpt/transform/keymap/expr.h"

enum { TOK_BYTES = 256 << 20 /* limit of a file */ };

/* tokenizer_config.json: {"added_tokens_decoder": {"12": {"content": "[IMG_BREAK]"}}} */
static const ckpt_value *tok_in_config(const ckpt_value *v, const char *text)
{
    const ckpt_value *all = ckpt_value_get(v, "added_tokens_decoder");
    const ckpt_dict map = ckpt_value_map(all);

    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *content = ckpt_value_get(map.at[i].value, "content");
        if (content && ckpt_value_is(content, text))
            return map.at[i].key;
    }
    return NULL;
}

/* tokenizer.json: {"added_tokens": [{"id": 12, "content": "[IMG_BREAK]"}]} */
static const ckpt_value *tok_in_tokenizer(const ckpt_value *v, const char *text)
{
    const ckpt_seq list = ckpt_value_seq(ckpt_value_get(v, "added_tokens"));

    for (uint64_t i = 0; i < list.n; i++) {
        const ckpt_value *content = ckpt_value_get(list.at[i], "content");
        if (content && ckpt_value_is(content, text))
            return ckpt_value_get(list.at[i], "id");
    }
    return NULL;
}

/* A number, or a text of digits. */
static bool tok_number(const ckpt_value *v, int64_t *out)
{
    uint64_t n = 0;

    if (v && v->kind == CKPT_V_STR && ckpt_parse_u64(v->as.text.at, &n) && n <= INT32_MAX) {
        *out = (int64_t)n;
        return true;
    }
    return v && v->kind == CKPT_V_INT && ckpt_value_as_int(v, out);
}

int ckpt_rm_token(const ckpt_value **out, const ckpt_rm_facts *f, const char *text, ckpt_err *err)
{
    assert(out && f && text);
    static const struct {
        const char *file;
        const ckpt_value *(*find)(const ckpt_value *v, const char *text);
    } from[] = {{"tokenizer_config.json", tok_in_config}, {"tokenizer.json", tok_in_tokenizer}};
    int64_t number = -1;
    int rc = CKPT_OK;

    *out = NULL;
    for (size_t i = 0; rc == CKPT_OK && i < sizeof from / sizeof *from; i++) {
        // a tokenizer is large, and one number of it is wanted
        ckpt_arena *scratch = ckpt_arena_new(UINT64_C(4) * TOK_BYTES);
        const char *path =
            scratch ? ckpt_arena_printf(scratch, "%s%s", f->folder, from[i].file) : NULL;
        ckpt_value *v = NULL;
        int64_t own = -1;
        bool there = false;

        rc = path ? ckpt_address_there(path, &there, err) : ckpt_fail_memory(err);
        if (rc == CKPT_OK && there)
            rc = ckpt_json_read(&v, scratch, path, TOK_BYTES, err);
        if (rc == CKPT_OK && v && tok_number(from[i].find(v, text), &own) && own >= 0) {
            if (number >= 0 && own != number)
                rc = ckpt_fail(err, CKPT_EMISMATCH,
                               "%s: the token %.80s has the number %" PRId64 ", but %" PRId64
                               " in %s: a file is of another model; copy both "
                               "from this model",
                               path, text, own, number, from[0].file);
            number = own;
        }
        ckpt_arena_free(scratch);
    }
    if (rc == CKPT_OK && number >= 0) {
        *out = ckpt_value_int(f->arena, number);
        rc = *out ? CKPT_OK : ckpt_fail_memory(err);
    }
    return rc;
}
