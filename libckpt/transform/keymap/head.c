/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head.c: makes a head another name of its table, and lets the run check that both are equal.
 */
#include "libckpt/transform/keymap/head.h"

#include <assert.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"
#include "libckpt/transform/keymap/expr.h"

static ckpt_tensor *rhd_at(const ckpt_map *map, const char *name)
{
    size_t i = ckpt_map_index(map, name, strlen(name));

    return i == SIZE_MAX ? NULL : map->tensors.at[i];
}

ckpt_tensor *ckpt_head_of(const ckpt_map *map)
{
    static const char *const heads[] = {"lm_head.weight", "embed_out.weight", "output_layer.weight",
                                        NULL};

    for (size_t i = 0; heads[i]; i++) {
        ckpt_tensor *head = rhd_at(map, heads[i]);
        if (head && !head->owner)
            return head;
    }
    return NULL;
}

ckpt_tensor *ckpt_head_table(const ckpt_map *map)
{
    static const char *const ends[] = {"embed_tokens.weight", "wte.weight",
                                       "word_embeddings.weight", "embed_in.weight", NULL};

    for (size_t k = 0; ends[k]; k++) {
        for (size_t i = 0; i < map->tensors.n; i++) {
            ckpt_tensor *t = map->tensors.at[i];
            size_t n = strlen(t->name), m = strlen(ends[k]);

            if (n >= m && strcmp(t->name + n - m, ends[k]) == 0 && t->role != CKPT_ROLE_STATE)
                return t;
        }
    }
    return NULL;
}

bool ckpt_head_same_shape(const ckpt_tensor *a, const ckpt_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

/*
 * Add hidden copies of the head and of its copies before those of the table, so that the run
 * compares them.
 */
static int rhd_prove(ckpt_map *map, const ckpt_tensor *head, ckpt_tensor *table, ckpt_err *err)
{
    const ckpt_tensor *rest = table->twin;
    ckpt_tensor *before = table;
    int rc = CKPT_OK;

    for (const ckpt_tensor *t = head; rc == CKPT_OK && t; t = t->twin) {
        ckpt_tensor *made = NULL;

        rc = ckpt_map_add_hidden(map, t->name, strlen(t->name), t, &made, err);
        if (rc != CKPT_OK)
            break;
        ckpt_extent_share(made, t);
        made->flags = t->flags;
        made->owner = made->twin = made->addend = NULL;
        before->twin = made;
        before = made;
    }
    before->twin = rest;
    return rc;
}

int ckpt_head_tie(ckpt_map *map, ckpt_tensor *head, ckpt_tensor *table, ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < map->tensors.n; i++) {
        if (map->tensors.at[i]->owner == head)
            return ckpt_fail(err, CKPT_EUSAGE, "tie: %.200s is tied to %.200s: tie %.200s first",
                             map->tensors.at[i]->name, head->name, table->name);
    }
    if (head == table || !ckpt_head_same_shape(head, table) || head->dtype != table->dtype ||
        table->owner || head->addend || table->addend)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "tie: %.200s (%s) cannot be another name of %.200s (%s): shape or dtype "
                         "differ, or they are means",
                         head->name, ckpt_dtype_name(head->dtype), table->name,
                         ckpt_dtype_name(table->dtype));
    rc = rhd_prove(map, head, table, err);
    if (rc != CKPT_OK)
        return rc;
    head->owner = table;
    head->twin = NULL;
    map->tied = true;
    rc = ckpt_map_fact(map, err, "tied", "%.200s to %.200s", head->name, table->name);
    return rc == CKPT_OK ? ckpt_map_note(map, CKPT_INFO, err,
                                         "%.200s becomes another name of %.200s: nothing is "
                                         "written if any element differs",
                                         head->name, table->name)
                         : rc;
}

/* True if a rule of this side drops a tensor. */
static bool rhd_drops(const ckpt_remap *r, unsigned side, const ckpt_tensor *t)
{
    ckpt_rm_capture c;

    for (size_t i = 0; i < r->rules.n; i++) {
        const ckpt_rm_rule *rule = &r->rules.at[i];
        if (rule->does == CKPT_RM_DROP && !rule->off && rule->side == side &&
            ckpt_rm_match(&rule->term[0].at[0], t->name, &c))
            return true;
    }
    return false;
}

int ckpt_head_dropped(ckpt_map *map, const ckpt_remap *r, const ckpt_rm_rule *rule, ckpt_err *err)
{
    assert(map && r && rule);
    ckpt_tensor *head = ckpt_head_of(map), *table = ckpt_head_table(map);
    ckpt_rm_capture c;

    if (!head || !ckpt_rm_match(&rule->term[0].at[0], head->name, &c))
        return CKPT_OK;
    if (table && rhd_drops(r, rule->side, table))
        return CKPT_OK; // a part of the model without its vocabulary
    if (table && table->owner == head)
        return CKPT_OK; // the same values
    return table ? ckpt_head_tie(map, head, table, err)
                 : ckpt_fail(err, CKPT_EMISSING,
                             "%s: %.200s is tied to the embedding, which is missing", map->path,
                             head->name);
}
