/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapt_tokens.c: finds the embedding with rows that an adapter trained, and checks their indices.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/peft/adapting.h"
#include "formats/peft/tokens.h"

static int ai_order(const void *pa, const void *pb)
{
    const ckpt_token *a = pa, *b = pb;

    return (a->row > b->row) - (a->row < b->row);
}

/* The list of a module's indices: the one of all modules, or of the only key that ends the path. */
static const ckpt_value *ai_list(const ckpt_adapting *a, const char *module)
{
    const ckpt_value *given = a->config.tokens, *found = NULL;
    const ckpt_dict all = given ? ckpt_value_map(given) : (ckpt_dict){0};
    const size_t n = strlen(module);

    if (given && given->kind == CKPT_V_LIST)
        return given;
    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_text *key = &all.at[i].key->as.text;

        if (key->n > n || strcmp(module + n - key->n, key->at) != 0)
            continue;
        if (found)
            return NULL;
        found = all.at[i].value;
    }
    return found;
}

/* Read the indices in the order of rows; each must be a row of the base, and be there once. */
static int ai_read(ckpt_adapting *a, const ckpt_adapt_module *m, const ckpt_tensor *t,
                   ckpt_token **out)
{
    const ckpt_value *list = ai_list(a, m->name);
    const ckpt_tensor *rows = m->part[CKPT_PEFT_TOKENS];
    const ckpt_seq all = list ? ckpt_value_seq(list) : (ckpt_seq){0};
    ckpt_token *token;

    if (all.n != rows->shape[0] || all.n == 0)
        return ckpt_fail(a->err, CKPT_EMISMATCH,
                         "%s: %.200s has %" PRIu64 " rows, but %s has %" PRIu64
                         " indices of tokens for this module",
                         a->opts.path, rows->name, rows->shape[0], a->config.path, all.n);
    token = ckpt_arena_alloc(a->map->arena, all.n * sizeof *token);
    if (!token)
        return ckpt_fail_memory(a->err);
    for (uint64_t i = 0; i < all.n; i++) {
        if (all.at[i]->kind != CKPT_V_INT || all.at[i]->as.i < 0 ||
            (uint64_t)all.at[i]->as.i >= t->shape[0])
            return ckpt_fail(a->err, CKPT_EMISMATCH,
                             "%s: a token of %.200s has no row in the base's %.200s, which has "
                             "%" PRIu64 " rows: tokens were added, or the adapter belongs to "
                             "another base; resize the base's embeddings first",
                             a->config.path, m->name, t->name, t->shape[0]);
        token[i] = (ckpt_token){(uint64_t)all.at[i]->as.i, i};
    }
    qsort(token, all.n, sizeof *token, ai_order);
    for (uint64_t i = 1; i < all.n; i++) {
        if (token[i].row == token[i - 1].row)
            return ckpt_fail(a->err, CKPT_EFORMAT,
                             "%s: token %" PRIu64 " of %.200s is listed twice", a->config.path,
                             token[i].row, m->name);
    }
    *out = token;
    return CKPT_OK;
}

/*
 * Use a tensor of a tied head, too: reads compare it with that of the embedding.  Either may be
 * NULL.
 */
static int ai_join_head(ckpt_adapting *a, const ckpt_tensor **rows, const ckpt_tensor *head)
{
    ckpt_tensor *copy;

    if (head && !*rows)
        *rows = head;
    if (!head || *rows == head)
        return CKPT_OK;
    if (head->n_elems != (*rows)->n_elems || head->shape[0] != (*rows)->shape[0])
        return ckpt_fail(a->err, CKPT_EMISMATCH,
                         "%s: %.200s and %.200s have different shapes, but the base's head is tied "
                         "to its embedding; --untie writes a separate one",
                         a->opts.path, head->name, (*rows)->name);
    copy = ckpt_nest_hide(a->map, *rows, a->err);
    if (!copy)
        return CKPT_ELIMIT;
    copy->twin = head;
    *rows = copy;
    return CKPT_OK;
}

/* Find the embedding or head; *out stays NULL for a tied head, whose rows are kept for later. */
static int ai_find(ckpt_adapting *a, const ckpt_adapt_module *m, ckpt_tensor **out)
{
    const ckpt_tensor *rows = m->part[CKPT_PEFT_TOKENS];
    const char *name = ckpt_adapt_name(a, m->name, "weight");
    ckpt_tensor *t = name ? ckpt_adapt_find(a, name) : NULL;
    char mine[120], theirs[120];

    a->n_tokens++;
    if (!name)
        return ckpt_fail_memory(a->err);
    if (a->opts.weight != 1)
        return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s has whole rows, which a weight of the adapter cannot scale: "
                         "leave the weight at 1",
                         a->opts.path, rows->name);
    if (!t && strstr(name, "lm_head") && !a->head_rows && rows->ndim == 2) {
        a->head_rows = rows;
        a->head_base = m->part[CKPT_PEFT_BASE_WEIGHT];
        return CKPT_OK;
    }
    if (!t)
        return ckpt_fail(a->err, CKPT_EMISSING,
                         "%s: the base has no %.200s: the adapter may belong to another base (see "
                         "base_model_name_or_path in adapter_config.json)",
                         a->opts.path, name);
    if (t->ndim != 2 || rows->ndim != 2 || t->shape[1] != rows->shape[1] || t->n_elems == 0)
        return ckpt_fail(a->err, CKPT_EMISMATCH,
                         "%s: %.200s %s does not fit the base's %.200s %s: the adapter may belong "
                         "to another base",
                         a->opts.path, rows->name, ckpt_adapt_shape(mine, rows), t->name,
                         ckpt_adapt_shape(theirs, t));
    if (ckpt_adapt_merged(a, t))
        return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s was changed by another adapter already, and trained tokens "
                         "replace its rows: give this adapter first",
                         a->opts.path, t->name);
    *out = t;
    return CKPT_OK;
}

/*
 * True if the configuration has one list for an embedding and a head that is tied to it: peft then
 * saves the rows of the embedding alone.
 */
static bool ai_one_list(const ckpt_adapting *a)
{
    const ckpt_dict all = ckpt_value_map(a->config.tokens);
    bool head = false;

    for (uint64_t i = 0; i < all.n; i++) {
        const char *key = all.at[i].key->as.text.at, *last = strrchr(key, '.');

        head = head || strcmp(last ? last + 1 : key, "lm_head") == 0;
    }
    return all.n == 2 && head && !ckpt_adapt_find(a, "lm_head.weight") &&
           ckpt_value_equal(all.at[0].value, all.at[1].value, 4);
}

int ckpt_adapt_tokens_end(const ckpt_adapting *a)
{
    assert(a);
    const ckpt_value *given = a->config.tokens;
    const uint64_t n = !given                       ? 0
                       : given->kind == CKPT_V_LIST ? ckpt_value_seq(given).n > 0
                       : ai_one_list(a)             ? 1
                                                    : ckpt_value_map(given).n;

    if (a->head_rows)
        return ckpt_fail(a->err, CKPT_EMISSING,
                         "%s: %.200s changes a head that is tied in the base, and its embedding "
                         "does not change; --untie writes a separate one",
                         a->opts.path, a->head_rows->name);
    return a->n_tokens >= n ? CKPT_OK
                            : ckpt_fail(a->err, CKPT_EMISSING,
                                        "%s: has trained tokens of %" PRIu64 " modules, but %s "
                                        "lists %" PRIu64 ": the file is cut",
                                        a->opts.path, a->n_tokens, a->config.path, n);
}

int ckpt_adapt_tokens(ckpt_adapting *a, const ckpt_adapt_module *m)
{
    assert(a && m && m->part[CKPT_PEFT_TOKENS]);
    ckpt_tokens o = {.rows = m->part[CKPT_PEFT_TOKENS]};
    ckpt_tensor *t = NULL;
    ckpt_token *token = NULL;
    const ckpt_tensor *base = m->part[CKPT_PEFT_BASE_WEIGHT];
    int rc = ai_find(a, m, &t);

    if (rc != CKPT_OK || !t)
        return rc;
    o.n = o.rows->shape[0];
    rc = ai_read(a, m, t, &token);
    o.token = token;
    if (rc == CKPT_OK)
        rc = ai_join_head(a, &o.rows, a->head_rows);
    if (rc == CKPT_OK)
        rc = ai_join_head(a, &base, a->head_base);
    if (rc == CKPT_OK) {
        a->head_rows = a->head_base = NULL;
        rc = ckpt_adapt_hide(&o.base, a, t, base, false);
    }
    return rc == CKPT_OK ? ckpt_tokens_put(a->map, t, &o, a->err) : rc;
}
