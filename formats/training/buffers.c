/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buffers.c: chooses between buffers and frozen parameters, which files of torch do not tell apart.
 *
 * Both are floating tensors of the model that no optimizer has.  The difference matters in stage 3:
 * its model files have the values of buffers, and placeholders for frozen parameters, and DeepSpeed
 * loads only the form that it expects.  FSDP shards parameters and not buffers.  Otherwise names
 * show the difference: frozen parameters are mostly whole modules of known kinds ("weight", "bias",
 * a name that a trained parameter has in another module), and a tensor with a name of its own
 * beside trained parameters of one module is mostly a buffer.
 */
#include <assert.h>
#include <string.h>

#include "formats/training/buffers.h"
#include "libckpt/base/index.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/map.h"

typedef struct bfr_names {
    const ckpt_state *state;
    ckpt_index last;   /* of trained parameters, by the last part of the name */
    ckpt_index module; /* by the rest of the name */
    bool sharded;      /* some of them are stored in parts */
} bfr_names;

/* Bytes of the name before its last part. */
static size_t bfr_module(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot + 1 - name) : 0;
}

static bool bfr_same_last(const void *ctx, uint32_t number, const void *key)
{
    const bfr_names *w = ctx;
    const char *name = w->state->param.at[number]->name;

    return strcmp(name + bfr_module(name), key) == 0;
}

static bool bfr_same_module(const void *ctx, uint32_t number, const void *key)
{
    const bfr_names *w = ctx;
    const char *name = w->state->param.at[number]->name;
    size_t n = bfr_module(key);

    return bfr_module(name) == n && memcmp(name, key, n) == 0;
}

static bool bfr_has_last(const bfr_names *w, const char *last, uint32_t *hash)
{
    *hash = ckpt_hash_bytes(last, strlen(last), 0);
    return ckpt_index_find(&w->last, *hash, bfr_same_last, w, last) != CKPT_INDEX_NONE;
}

static bool bfr_has_module(const bfr_names *w, const char *name, uint32_t *hash)
{
    *hash = ckpt_hash_bytes(name, bfr_module(name), 0);
    return ckpt_index_find(&w->module, *hash, bfr_same_module, w, name) != CKPT_INDEX_NONE;
}

/* Index the trained parameters; false: no memory. */
static bool bfr_index(bfr_names *w)
{
    bool ok = true;

    for (size_t i = 0; ok && i < w->state->param.n; i++) {
        const ckpt_tensor *t = w->state->param.at[i];
        uint32_t hash;
        w->sharded |= ckpt_extent_many(t);
        if (!bfr_has_last(w, t->name + bfr_module(t->name), &hash))
            ok = ckpt_index_add(&w->last, hash, (uint32_t)i);
        if (ok && !bfr_has_module(w, t->name, &hash))
            ok = ckpt_index_add(&w->module, hash, (uint32_t)i);
    }
    return ok;
}

/* True for a tensor that is certainly a parameter. */
static bool bfr_is_param(const bfr_names *w, const ckpt_tensor *t)
{
    const char *last = t->name + bfr_module(t->name);
    uint32_t hash;

    return ckpt_extent_many(t) || strcmp(last, "weight") == 0 || strcmp(last, "bias") == 0 ||
           bfr_has_last(w, last, &hash);
}

static bool bfr_is_buffer(const bfr_names *w, const ckpt_tensor *t)
{
    uint32_t hash;

    if (bfr_is_param(w, t))
        return false;
    // a tensor of one row may be whole because one rank has it all
    return (w->sharded && t->ndim > 0 && t->shape[0] > 1) || bfr_has_module(w, t->name, &hash);
}

int ckpt_train_buffers(ckpt_map *map, const ckpt_state *state, ckpt_err *err)
{
    assert(map && state);
    bfr_names w = {.state = state};
    bool ok = bfr_index(&w);

    for (size_t i = 0; ok && i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        if (t->role == CKPT_ROLE_FROZEN && bfr_is_buffer(&w, t))
            t->role = CKPT_ROLE_BUFFER;
    }
    ckpt_index_free(&w.last);
    ckpt_index_free(&w.module);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

const char *ckpt_train_doubtful(ckpt_arena *arena, const ckpt_map *map, const ckpt_state *state)
{
    assert(arena && map && state);
    enum { MOST = 4 };
    bfr_names w = {.state = state};
    const char *text = bfr_index(&w) ? "" : NULL;
    size_t n = 0;

    for (size_t i = 0; text && !w.sharded && i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        if (t->role == CKPT_ROLE_FROZEN && !t->owner && !bfr_is_param(&w, t) && n++ < MOST)
            text = ckpt_arena_printf(arena, "%s%s%.200s", text, *text ? ", " : "", t->name);
    }
    if (text && n > MOST)
        text = ckpt_arena_printf(arena, "%s and %zu more", text, n - MOST);
    ckpt_index_free(&w.last);
    ckpt_index_free(&w.module);
    return text;
}
