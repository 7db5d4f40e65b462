/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: parses Megatron-Core's names.
 *
 *     optimizer.state.<kind>.<weight>              state of one parameter, in the model's shape
 *     chained_<i>.optimizer.state.<kind>.<weight>  the same, of one of several optimizers
 *     optimizer.distributed. ...                   flat buffers over data-parallel ranks
 *     ... _extra_state/shard_ ..., rng_state/ ...  objects
 *
 * All other names belong to the model.  NeMo 2 writes "module." before a weight's name, which is
 * dropped.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "libckpt/base/index.h"

enum { MGN_KIND = 64 };

typedef struct mgn_reader {
    ckpt_dcp_role *out;
    const ckpt_dcp_metadata *m;
    ckpt_arena *arena;
    ckpt_index weight; /* the model's items by name */
    ckpt_err *err;
} mgn_reader;

/* ---- one name ---- */

/* Skip a prefix "chained_<i>.". */
static const char *mgn_unchained(const char *name)
{
    static const char chained[] = "chained_";
    size_t n;

    if (strncmp(name, chained, sizeof chained - 1) != 0)
        return name;
    n = strspn(name + sizeof chained - 1, "0123456789");
    return n > 0 && name[sizeof chained - 1 + n] == '.' ? name + sizeof chained + n : name;
}

static bool mgn_begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

/* The weight of an optimizer state's name; *kind has room for MGN_KIND bytes.  NULL: not state. */
static const char *mgn_cut(const char *item, char *kind)
{
    static const char state[] = "optimizer.state.";
    const char *name = mgn_unchained(item), *dot;

    if (!mgn_begins(name, state))
        return NULL;
    name += sizeof state - 1;
    dot = strchr(name, '.');
    if (!dot || dot == name || dot - name >= MGN_KIND || !dot[1])
        return NULL;
    (void)snprintf(kind, MGN_KIND, "%.*s", (int)(dot - name), name);
    return dot + 1;
}

bool ckpt_meg_is_expert(const char *name)
{
    return strstr(name, ".experts.") != NULL;
}

bool ckpt_meg_is_buffer(const char *name)
{
    return strstr(name, ".expert_bias") || strstr(name, "inv_freq") ||
           strstr(name, ".local_tokens_per_expert");
}

uint32_t ckpt_meg_stacked(const char *name)
{
    const char *dot = strstr(name, ".layers."),
               *layer = mgn_begins(name, "layers.") ? name + 7 : (dot ? dot + 8 : NULL);
    uint32_t n = layer && (*layer < '0' || *layer > '9');

    // experts have numbers in one rank's file, and a stacked axis in joined tensors
    return n + (strstr(name, ".experts.experts.") != NULL);
}

/* ---- second names ---- */

bool ckpt_meg_second(const char **out, ckpt_arena *arena, const char *name)
{
    assert(out && arena && name);
    static const char *const norm[][2] = {
        {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"},
        // of multi-latent attention
        {"self_attention.q_layernorm.", "self_attention.linear_q_up_proj.layer_norm_"},
        {"self_attention.kv_layernorm.", "self_attention.linear_kv_up_proj.layer_norm_"}};

    *out = NULL;
    for (size_t i = 0; i < 2 * sizeof norm / sizeof *norm; i++) {
        const char *one = norm[i / 2][i % 2], *at = strstr(name, one);
        if (!at)
            continue;
        *out = ckpt_arena_printf(arena, "%.*s%s%s", (int)(at - name), name, norm[i / 2][1 - i % 2],
                                 at + strlen(one));
        return *out != NULL;
    }
    return true;
}

/* Find the tensor before t in the list that has the second name of t.  false: no memory. */
static bool mgn_first(ckpt_tensor **out, ckpt_map *map, const ckpt_tensor *t, size_t before)
{
    const char *other;
    size_t at;

    *out = NULL;
    if (!ckpt_meg_second(&other, map->arena, t->name))
        return false;
    at = other ? ckpt_map_index(map, other, strlen(other)) : SIZE_MAX;
    if (at < before && map->tensors.at[at]->dtype == t->dtype &&
        map->tensors.at[at]->n_elems == t->n_elems)
        *out = map->tensors.at[at];
    return true;
}

int ckpt_meg_twins(ckpt_map *map, ckpt_err *err)
{
    assert(map);
    ckpt_tensors *list = &map->tensors;
    ckpt_tensor **first = ckpt_alloc((list->n + 1) * sizeof(ckpt_tensor *));
    size_t n = 0;
    int rc = first ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++)
        rc = mgn_first(&first[i], map, list->at[i], i) ? CKPT_OK : ckpt_fail_memory(err);
    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        ckpt_tensor *t = list->at[i];
        if (!first[i]) {
            list->at[n++] = t;
            continue;
        }
        t->twin = first[i]->twin;
        first[i]->twin = t;
    }
    ckpt_free(first);
    if (rc != CKPT_OK || n == list->n)
        return rc;
    list->n = n;
    return ckpt_map_reindex(map, err);
}

/* ---- all items ---- */

static bool mgn_same(const void *ctx, uint32_t number, const void *key)
{
    const mgn_reader *r = ctx;

    return strcmp(r->m->item.at[number].name.at, key) == 0;
}

/* Mark the model's tensors; optimizer tensors stay FLAT until mgn_moment finds their weight. */
static int mgn_model(mgn_reader *r)
{
    for (size_t i = 0; i < r->m->item.n; i++) {
        const ckpt_dcp_item *item = &r->m->item.at[i];
        const char *name = mgn_unchained(item->name.at);
        if (!item->is_tensor)
            continue;
        r->out[i].what = mgn_begins(name, "optimizer.") ? CKPT_DCP_FLAT : CKPT_DCP_WEIGHT;
        if (r->out[i].what == CKPT_DCP_WEIGHT &&
            !ckpt_index_add(&r->weight, ckpt_hash_bytes(item->name.at, (size_t)item->name.n, 0),
                            (uint32_t)i))
            return ckpt_fail_memory(r->err);
    }
    return CKPT_OK;
}

static bool mgn_same_shape(const ckpt_dcp_item *a, const ckpt_dcp_item *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/*
 * Mark an item as the state of a weight with the same shape.  Older releases stored state flat and
 * sharded over data-parallel ranks; such state stays FLAT.
 */
static int mgn_moment(mgn_reader *r, size_t i)
{
    const ckpt_dcp_item *item = &r->m->item.at[i];
    char kind[MGN_KIND];
    const char *name = item->is_tensor ? mgn_cut(item->name.at, kind) : NULL;
    uint32_t at;

    if (!name)
        return CKPT_OK;
    at = ckpt_index_find(&r->weight, ckpt_hash_bytes(name, strlen(name), 0), mgn_same, r, name);
    if (at == CKPT_INDEX_NONE || !mgn_same_shape(&r->m->item.at[at], item))
        return CKPT_OK;
    r->out[i] = (ckpt_dcp_role){.what = CKPT_DCP_MOMENT,
                                .name = name,
                                .key = ckpt_arena_string(r->arena, kind, strlen(kind))};
    r->out[at].trained = true;
    return r->out[i].key ? CKPT_OK : ckpt_fail_memory(r->err);
}

/* Drop a prefix that all weights have, of NeMo 2's module around the model. */
static void mgn_drop_module(mgn_reader *r)
{
    static const char module[] = "module.";
    bool all = true;

    for (size_t i = 0; all && i < r->m->item.n; i++)
        all = r->out[i].what != CKPT_DCP_WEIGHT || mgn_begins(r->out[i].name, module);
    for (size_t i = 0; all && i < r->m->item.n; i++) {
        if (r->out[i].what == CKPT_DCP_WEIGHT || r->out[i].what == CKPT_DCP_MOMENT)
            r->out[i].name += sizeof module - 1;
    }
}

int ckpt_meg_roles(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena, ckpt_err *err)
{
    assert(m && arena && (out || m->item.n == 0));
    mgn_reader r = {.out = out, .m = m, .arena = arena, .err = err};
    int rc;

    for (size_t i = 0; i < m->item.n; i++)
        out[i] = (ckpt_dcp_role){.what = CKPT_DCP_OTHER, .name = m->item.at[i].name.at};
    rc = mgn_model(&r);
    for (size_t i = 0; rc == CKPT_OK && i < m->item.n; i++)
        rc = mgn_moment(&r, i);
    mgn_drop_module(&r);
    ckpt_index_free(&r.weight);
    return rc;
}
