/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c: joins tensor-parallel slices of Megatron's parameters, and stacks layers.
 *
 *     by rows     linear_qkv, linear_fc1, word_embeddings, output_layer
 *     by columns  linear_proj, linear_fc2: every rank has their complete biases
 *     whole       norms, positions, routers
 *
 * On every rank, linear_fc1 of a gated MLP has the gate's rows before the others, so gates and
 * other rows are joined separately.  An MLP is gated if linear_fc1 has twice as many rows as
 * linear_fc2 has columns.  The names of Megatron-LM before Core follow the same rules.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "libckpt/map/extent.h"

/* The number behind "weight" or "bias", which experts in one module have; else the name's end. */
static const char *mgr_number(const char *name)
{
    const char *dot = strrchr(name, '.'), *part = dot ? dot + 1 : name;
    size_t n = strcspn(part, "0123456789"), digits = strspn(part + n, "0123456789");
    bool is =
        (n == 6 && strncmp(part, "weight", n) == 0) || (n == 4 && strncmp(part, "bias", n) == 0);

    return is && !part[n + digits] && strstr(name, ".experts.linear_fc") ? part + n
                                                                         : name + strlen(name);
}

/* True if a name ends with one of the given parts, after a dot. */
static bool mgr_ends(const char *name, const char *const *ends, size_t n)
{
    size_t have = (size_t)(mgr_number(name) - name);

    for (size_t i = 0; i < n; i++) {
        size_t k = strlen(ends[i]);
        if (have >= k && strncmp(name + have - k, ends[i], k) == 0 &&
            (have == k || name[have - k - 1] == '.'))
            return true;
    }
    return false;
}

#define MGR_ENDS(name, list) mgr_ends(name, list, sizeof(list) / sizeof *(list))

static bool mgr_by_rows(const char *name)
{
    static const char *const ends[] = {
        "linear_qkv.weight",        "linear_qkv.bias",
        "linear_q.weight",          "linear_q.bias",
        "linear_kv.weight",         "linear_kv.bias",
        "linear_q_proj.weight",     "linear_q_up_proj.weight",
        "linear_kv_up_proj.weight", "linear_fc1.weight",
        "linear_fc1.bias",          "core_attention.softmax_offset",
        "word_embeddings.weight",   "word_embeddings_for_head.weight",
        "output_layer.weight",      "output_layer.bias",
        "query_key_value.weight",   "query_key_value.bias",
        "dense_h_to_4h.weight",     "dense_h_to_4h.bias",
    };

    return MGR_ENDS(name, ends);
}

static bool mgr_by_columns(const char *name)
{
    static const char *const ends[] = {"linear_proj.weight", "linear_fc2.weight",
                                       "self_attention.dense.weight", "attention.dense.weight",
                                       "dense_4h_to_h.weight"};

    return MGR_ENDS(name, ends);
}

static bool mgr_whole(const char *name)
{
    static const char *const ends[] = {
        "linear_proj.bias",
        "linear_fc2.bias",
        "self_attention.dense.bias",
        "attention.dense.bias",
        "dense_4h_to_h.bias",
        "layer_norm_weight",
        "layer_norm_bias",
        "position_embeddings.weight",
        "tokentype_embeddings.weight",
        "router.weight",
        "router.bias",
        "router.expert_bias",
        "gate_weight",
        "linear_q_down_proj.weight",
        "linear_kv_down_proj.weight",
        "rotary_pos_emb.inv_freq",
    };

    return MGR_ENDS(name, ends) || strstr(name, "layernorm.") || strstr(name, "_norm.") ||
           strstr(name, "layernorm_");
}

/* The second matrix of an MLP: for "...fc1..." it is "...fc2.weight". */
static const ckpt_tensor *mgr_second(const ckpt_map *map, const char *name)
{
    static const char *const pair[][2] = {{"linear_fc1.", "linear_fc2.weight"},
                                          {"dense_h_to_4h.", "dense_4h_to_h.weight"}};

    for (size_t i = 0; i < 2; i++) {
        const char *at = strstr(name, pair[i][0]);
        char other[1024];
        size_t k;
        if (!at || strlen(name) + strlen(pair[i][1]) >= sizeof other)
            continue;
        (void)snprintf(other, sizeof other, "%.*s%s%s", (int)(at - name), name, pair[i][1],
                       mgr_number(name));
        k = ckpt_map_index(map, other, strlen(other));
        return k == SIZE_MAX ? NULL : map->tensors.at[k];
    }
    return NULL;
}

/* Decide if an MLP is gated: its first matrix or bias has twice as many rows as the second has
 * columns.  False if it has neither as many nor twice as many. */
static bool mgr_gated(const ckpt_map *map, const char *name, uint32_t lead, bool *gated)
{
    const ckpt_tensor *second = mgr_second(map, name);
    size_t k = ckpt_map_index(map, name, strlen(name));
    const ckpt_tensor *first = k == SIZE_MAX ? NULL : map->tensors.at[k];

    if (!first || !second || first->ndim <= lead || second->ndim <= lead + 1)
        return false;
    *gated = first->shape[lead] == 2 * second->shape[lead + 1];
    return *gated || first->shape[lead] == second->shape[lead + 1];
}

bool ckpt_meg_rule(ckpt_slice_rule *out, const ckpt_map *map, const char *name, uint32_t lead)
{
    assert(out && map && name);
    bool gated = false;

    *out = (ckpt_slice_rule){.kind = CKPT_SLICE_SAME};
    if (mgr_by_columns(name)) {
        *out = (ckpt_slice_rule){.kind = CKPT_SLICE_CAT, .axis = 1};
        return true;
    }
    if (!mgr_by_rows(name))
        return mgr_whole(name);
    out->kind = CKPT_SLICE_CAT;
    if (!strstr(name, "linear_fc1.") && !strstr(name, "dense_h_to_4h."))
        return true;
    if (!mgr_gated(map, name, lead, &gated))
        return false;
    if (gated)
        *out = (ckpt_slice_rule){.kind = CKPT_SLICE_SUB, .n_subs = 2};
    return true;
}

/* ---- stacking ---- */

/* Append the extents of one layer to those of the stack. */
static bool mgr_lift(ckpt_slice_extents *to, const ckpt_tensor *t, uint64_t layer,
                     const ckpt_tensor *like)
{
    uint32_t lead = like->ndim - t->ndim;

    for (uint32_t i = 0; i < t->n_extents; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(t, i, &room);
        bool flat = ckpt_extent_is_flat(t, e);
        ckpt_extent *slot = ckpt_vec_push(&to->extent);
        if (!slot)
            return false;
        *slot = *e;
        to->flat = to->flat && flat;
        for (uint32_t k = 0; !flat && k < lead; k++) {
            uint64_t below = 1;
            for (uint32_t later = k + 1; later < lead; later++)
                below *= like->shape[later];
            ckpt_axis *axis = ckpt_vec_push(&to->axis);
            if (!axis)
                return false;
            *axis = (ckpt_axis){layer / below % like->shape[k], 1, 0};
            slot->ndim++;
        }
        for (uint32_t k = 0; k < e->ndim; k++) {
            ckpt_axis *axis = ckpt_vec_push(&to->axis);
            if (!axis)
                return false;
            *axis = e->axis[k];
            axis->start += flat && lead ? layer * t->n_elems : 0;
        }
    }
    return true;
}

/* Make a tensor of n stacked layers, in the map's list or hidden. */
static int mgr_pile(ckpt_tensor **out, ckpt_map *map, const ckpt_tensor *like,
                    const ckpt_tensor *const *layer, uint64_t n, ckpt_err *err)
{
    ckpt_slice_extents all = {.flat = true};
    size_t axis = 0;
    bool ok = true;
    int rc;

    for (uint64_t i = 0; ok && i < n; i++)
        ok = mgr_lift(&all, layer[i], i, like);
    for (size_t i = 0; ok && i < all.extent.n; axis += all.extent.at[i++].ndim)
        all.extent.at[i].axis = &all.axis.at[axis];
    rc = !ok          ? ckpt_fail_memory(err)
         : like->file ? ckpt_map_add_hidden(map, like->name, strlen(like->name), like, out, err)
                      : ckpt_map_add(map, like->name, strlen(like->name), like, out, err);
    if (rc == CKPT_OK && all.flat && all.extent.n > 0)
        ckpt_extent_sort(all.extent.at, (uint32_t)all.extent.n);
    if (rc == CKPT_OK)
        rc = ckpt_map_back(map, *out, all.extent.at, (uint32_t)all.extent.n, err);
    ckpt_vec_free(&all.extent);
    ckpt_vec_free(&all.axis);
    return rc;
}

/* Make the stack, and a twin for each further copy of its layers. */
static int mgr_stack(ckpt_map *map, const char *name, const ckpt_tensor *weight,
                     const ckpt_tensor **layer, uint64_t n, ckpt_err *err)
{
    ckpt_tensor like = {.name = name,
                        .dtype = layer[0]->dtype,
                        .ndim = weight->ndim,
                        .shape = weight->shape,
                        .role = CKPT_ROLE_STATE};
    ckpt_tensor *last = NULL, *made;
    bool more = true;
    int rc = CKPT_OK;

    while (rc == CKPT_OK && more) {
        rc = mgr_pile(&made, map, &like, layer, n, err);
        if (rc == CKPT_OK && last)
            last->twin = made;
        last = made;
        like.file = 1; // twins are hidden, so that the list has the name once
        for (uint64_t i = 0; i < n; i++) {
            layer[i] = layer[i]->twin;
            more = more && layer[i];
        }
    }
    return rc;
}

/* ---- parts ---- */

static int mgr_order(const void *pa, const void *pb)
{
    const ckpt_meg_part *a = pa, *b = pb;
    int name = strcmp(a->weight->name, b->weight->name);

    if (name)
        return name;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return (a->tp > b->tp) - (a->tp < b->tp);
}

/* Join the ranks' slices of one layer of a weight. */
static int mgr_whole_layer(const ckpt_tensor **out, ckpt_map *map, const ckpt_meg_part *part,
                           uint32_t tp, ckpt_err *err)
{
    const ckpt_tensor **slice;
    ckpt_tensor *whole = NULL;
    ckpt_slice_rule rule;
    int rc;

    *out = part->slice;
    if (tp == 1)
        return CKPT_OK;
    slice = ckpt_arena_array(map->arena, tp, sizeof *slice);
    const char *name =
        ckpt_arena_printf(map->arena, "%s layer %" PRIu64, part->weight->name, part->layer);
    if (!slice || !name)
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; i < tp; i++)
        slice[i] = part[i].slice;
    (void)ckpt_meg_rule(&rule, map, part->weight->name, part->weight->ndim - part->slice->ndim);
    const ckpt_slice_set set = {.name = name, .slice = slice, .n = tp};
    rc = ckpt_slices_join(&whole, map, &rule, &set, err);
    *out = whole;
    return rc;
}

/* The number of parts in a stacked weight: layers, or layers times experts. */
static uint64_t mgr_layers(const ckpt_tensor *weight, const ckpt_tensor *part)
{
    uint64_t n = 1;

    for (uint32_t k = 0; k < weight->ndim - part->ndim; k++)
        n *= weight->shape[k];
    return n;
}

/* Join and stack all layers of one weight. */
static int mgr_weight(ckpt_map *map, const char *kind, const ckpt_meg_part *part, size_t n,
                      uint32_t tp, ckpt_err *err)
{
    const ckpt_tensor *weight = part->weight;
    uint64_t n_layers = mgr_layers(weight, part->slice);
    const ckpt_tensor **layer = ckpt_arena_array(map->arena, n_layers, sizeof *layer);
    const char *name = ckpt_arena_printf(map->arena, "%s/%s", kind, weight->name);
    size_t listed = map->tensors.n;
    int rc = layer && name ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK && n != n_layers * tp)
        rc = ckpt_fail(err, CKPT_EMISMATCH, "%s: %zu pieces of '%.200s', expected %" PRIu64,
                       map->path, n, name, n_layers * tp);
    for (uint64_t i = 0; rc == CKPT_OK && i < n_layers; i++)
        rc = mgr_whole_layer(&layer[i], map, &part[i * tp], tp, err);
    // remove the layers that joining added to the list, because only the stack is a tensor of the
    // model
    map->tensors.n = listed;
    if (rc == CKPT_OK)
        rc = ckpt_map_reindex(map, err);
    return rc == CKPT_OK ? mgr_stack(map, name, weight, layer, n_layers, err) : rc;
}

int ckpt_meg_stack(ckpt_map *map, const char *kind, ckpt_meg_parts *parts, uint32_t tp,
                   ckpt_err *err)
{
    assert(map && kind && parts);
    int rc = CKPT_OK;

    if (parts->n > 0)
        qsort(parts->at, parts->n, sizeof *parts->at, mgr_order);
    for (size_t i = 0, end; rc == CKPT_OK && i < parts->n; i = end) {
        for (end = i; end < parts->n && parts->at[end].weight == parts->at[i].weight;)
            end++;
        rc = mgr_weight(map, kind, &parts->at[i], end - i, tp, err);
    }
    return rc;
}
