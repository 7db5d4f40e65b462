/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bnb.c: recognizes the state of bitsandbytes' optimizers, and finds its tensors in the file.
 *
 * Checked against bitsandbytes 0.50.2 (optim/optimizer.py, optim/ademamix.py).
 */
#include "formats/deepspeed/layout/bnb.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/layout/boxes.h"
#include "libckpt/map/map.h"
#include "libckpt/map/moments8.h"
#include "libckpt/map/state.h"

/* ---- recognizing the state ---- */

/* Find a tensor of moment i in the dict, e.g. "state1" for i = 0; NULL if there is none. */
static const ckpt_value *dbn_get(const ckpt_value *dict, const char *what, uint32_t i)
{
    char key[16];

    (void)snprintf(key, sizeof key, "%s%u", what, i + 1);
    const ckpt_value *v = ckpt_value_get(dict, key);
    return v && v->kind == CKPT_V_TENSOR ? v : NULL;
}

/* Find a key of the dict that blockwise moments do not have; NULL if there is none. */
static const char *dbn_other(const ckpt_value *dict)
{
    static const char *const known[] = {"step",  "state1",  "state2", "qmap1",
                                        "qmap2", "absmax1", "absmax2"};
    ckpt_dict all = ckpt_value_map(dict);

    for (uint64_t i = 0; i < all.n; i++) {
        bool is = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            is = is || ckpt_value_is(all.at[i].key, known[k]);
        if (!is)
            return all.at[i].key->kind == CKPT_V_STR ? all.at[i].key->as.text.at : "another key";
    }
    return NULL;
}

ckpt_ds_bnb ckpt_ds_bnb_look(const ckpt_value *state)
{
    ckpt_ds_bnb b = {.dict = ckpt_value_get(state, CKPT_BNB_KEY)};
    const ckpt_value *first;

    if (!b.dict)
        b.dict = dbn_get(state, "state", 0) ? state : NULL;
    if (!b.dict)
        return b;
    first = dbn_get(b.dict, "state", 0);
    b.n = dbn_get(b.dict, "state", 1) ? 2 : 1;
    if (!first)
        b.why = "it has no tensor state1";
    else if (first->as.tensor->ndim == 2 && first->as.tensor->shape[0] == 2)
        b.why = "AdEMAMix keeps two means in one tensor";
    else if (ckpt_value_get(b.dict, "unorm_vec"))
        b.why = "LAMB and LARS keep norms of each rank's update (unorm_vec)";
    else if (dbn_other(b.dict))
        b.why = "it is not blockwise";
    else if (first->as.tensor->dtype != CKPT_U8 && first->as.tensor->dtype != CKPT_F32)
        b.why = "its moments are of neither 8 nor 32 bits";
    else
        b.bits = first->as.tensor->dtype == CKPT_U8 ? 8 : 32;
    return b;
}

const char *ckpt_ds_bnb_name(const ckpt_ds_bnb *b, uint32_t i)
{
    if (b->n == 1)
        return "state1";
    return i ? "exp_avg_sq" : "exp_avg";
}

ckpt_value *ckpt_ds_bnb_entry(const ckpt_ds_job *job, const ckpt_ds_bnb *b, ckpt_value *state)
{
    ckpt_arena *arena = job->map->arena;
    ckpt_value *entry = ckpt_value_new(arena, CKPT_V_DICT);
    ckpt_dict from = ckpt_value_map(state);

    for (uint64_t i = 0; entry && i < from.n; i++) {
        if (from.at[i].value != b->dict && from.at[i].value->kind != CKPT_V_TENSOR &&
            !ckpt_dict_add(arena, &entry->as.map, from.at[i].key, from.at[i].value))
            return NULL;
    }
    // a step that is a tensor has no axes, or one element
    ckpt_value *step = ckpt_value_get(state, "step");
    if (entry && step && step->kind == CKPT_V_TENSOR &&
        !ckpt_dict_add_cstr(arena, &entry->as.map, "step", step))
        return NULL;
    for (uint32_t i = 0; entry && i < b->n; i++) {
        ckpt_value *v = ckpt_arena_copy(arena, dbn_get(b->dict, "state", i), sizeof *v);
        ckpt_tensor_value *t = v ? ckpt_arena_copy(arena, v->as.tensor, sizeof *t) : NULL;
        if (!t)
            return NULL;
        t->dtype = CKPT_F32;
        v->as.tensor = t;
        if (!ckpt_dict_add_cstr(arena, &entry->as.map, ckpt_ds_bnb_name(b, i), v))
            return NULL;
    }
    return entry;
}

/* ---- finding its tensors ---- */

/* Add one of a moment's tensors to the map as a hidden tensor; check its dtype and size. */
static int dbn_tensor(ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v, const char *what,
                      const ckpt_tensor *want, const ckpt_tensor **out)
{
    ckpt_ds_flat flat = {0};
    ckpt_tensor *t = NULL;
    int rc;

    *out = NULL;
    if (!v)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: %s is missing, a tensor of bitsandbytes' 8-bit moments",
                               s->path, what);
    rc = ckpt_ds_shard_flat(job, s, v, what, &flat);
    if (rc != CKPT_OK)
        return rc;
    if (flat.dtype != want->dtype || flat.n != want->shape[0])
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: %s is %s of %" PRIu64 " elements, expected %s of %" PRIu64
                               " (8-bit moments of bitsandbytes, blocks of %u)",
                               s->path, what, ckpt_dtype_name((ckpt_dtype)flat.dtype), flat.n,
                               ckpt_dtype_name(want->dtype), want->shape[0], CKPT_M8_BLOCK);
    rc = ckpt_map_add_hidden(job->map, what, strlen(what), want, &t, job->err);
    if (rc == CKPT_OK)
        rc = ckpt_ds_flat_back(job, &flat, 0, t);
    *out = t;
    return rc;
}

/* Add a moment's codes, scales and table, and a source that computes floats from them. */
static int dbn_made(ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_ds_bnb *b, uint32_t i,
                    size_t group, ckpt_ds_flat *out)
{
    static const char *const what[] = {"state", "absmax", "qmap"};
    const uint64_t n[] = {out->n, ckpt_m8_blocks(out->n), CKPT_M8_CODES};
    ckpt_moments8 m = {0};
    const ckpt_tensor **at[] = {&m.codes, &m.scale, &m.table};
    const char *name = NULL;
    int rc = CKPT_OK;

    for (size_t k = 0; rc == CKPT_OK && k < 3; k++) {
        const ckpt_tensor want = {
            .dtype = k ? CKPT_F32 : CKPT_U8, .ndim = 1, .shape = &n[k], .role = CKPT_ROLE_STATE};
        name = ckpt_arena_printf(job->map->arena, "%s%u of group %zu", what[k], i + 1, group);
        if (!name)
            return ckpt_fail_memory(job->err);
        rc = dbn_tensor(job, s, dbn_get(b->dict, what[k], i), name, &want, at[k]);
        if (rc == CKPT_OK && !*at[k]) {
            out->dtype = CKPT_DTYPE_NONE; // the problem has been noted
            return CKPT_OK;
        }
    }
    out->dtype = CKPT_F32;
    out->at = 0;
    return rc == CKPT_OK ? ckpt_m8_add(job->map, name, &m, &out->source, job->err) : rc;
}

int ckpt_ds_bnb_flat(ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_ds_bnb *b, uint32_t i,
                     size_t group, ckpt_ds_flat *out)
{
    assert(s && b && out);
    int rc = ckpt_ds_shard_flat(job, s, dbn_get(b->dict, "state", i), i ? "state2" : "state1", out);

    if (rc != CKPT_OK)
        return rc;
    if (out->dtype == (b->bits == 8 ? CKPT_U8 : CKPT_F32))
        return b->bits == 8 ? dbn_made(job, s, b, i, group, out) : CKPT_OK;
    rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                         "%s: state%u of group %zu is %s, but state1 has %" PRIu32 " bits", s->path,
                         i + 1, group, ckpt_dtype_name((ckpt_dtype)out->dtype), b->bits);
    out->dtype = CKPT_DTYPE_NONE;
    return rc;
}

int ckpt_ds_bnb_fact(const ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout)
{
    const ckpt_value *optim = head->optim.optim;

    for (size_t g = 0; g < layout->group.n; g++) {
        ckpt_ds_bnb b = ckpt_ds_bnb_look(ckpt_ds_optim_state(head, optim, g, 0));
        if (b.why)
            return ckpt_map_fact(job->map, job->err, CKPT_MOMENTS, "of bitsandbytes, not read: %s",
                                 b.why);
        if (b.bits == 8)
            return ckpt_map_fact(job->map, job->err, CKPT_MOMENTS,
                                 "8-bit moments of bitsandbytes, blocks of %u", CKPT_M8_BLOCK);
    }
    return CKPT_OK;
}
