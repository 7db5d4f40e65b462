/* SPDX-License-Identifier: Apache-2.0 */
/*
 * masters.c: compares 16-bit parameters with float32 masters beside them.
 *
 * An optimizer that trains 16-bit weights keeps their float32 masters: as state of each parameter
 * (TransformerEngine's "master_param", apex's "master_weights"), or a program saves them beside the
 * model. Masters of another save would make a run that continues from two different steps, so each
 * becomes a tensor that has the 16-bit values as a copy to be compared with.
 */
#include <assert.h>
#include <string.h>

#include "formats/training/masters.h"
#include "libckpt/map/copies.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/map.h"

enum {
    DMA_KEY = 128, /* bytes of a key of masters, with its terminator */
    DMA_DEPTH = 3  /* depth of the search for masters in a value */
};

typedef struct dma_work {
    ckpt_map *map;
    ckpt_state *state;
    bool ignore_copies;
    ckpt_err *err;
} dma_work;

/* The trained 16-bit parameter of this name and of the master's shape, or NULL. */
static const ckpt_tensor *dma_param(const dma_work *w, const ckpt_tensor *master, const char *name)
{
    size_t at = ckpt_map_index(w->map, name, strlen(name));
    const ckpt_tensor *p = at == SIZE_MAX ? NULL : w->map->tensors.at[at];

    if (!p || p == master || p->role != CKPT_ROLE_WEIGHT ||
        (p->dtype != CKPT_F16 && p->dtype != CKPT_BF16) || p->ndim != master->ndim ||
        (p->ndim > 0 && memcmp(p->shape, master->shape, p->ndim * sizeof *p->shape) != 0))
        return NULL;
    return p;
}

/*
 * The parameter whose masters a tensor has, or NULL; *n: bytes of the tensor's name that are the
 * key of the masters.
 */
static const ckpt_tensor *dma_of(const dma_work *w, const ckpt_tensor *t, size_t *n)
{
    const ckpt_tensor *p = NULL;
    const char *end = t->role == CKPT_ROLE_STATE ? "/" : ".";

    if (t->dtype != CKPT_F32 || (t->role != CKPT_ROLE_STATE && t->role != CKPT_ROLE_OTHER))
        return NULL;
    for (const char *at = strpbrk(t->name, end); !p && at; at = strpbrk(at + 1, end)) {
        char key[DMA_KEY] = "";
        *n = (size_t)(at - t->name);
        if (*n >= sizeof key)
            break;
        memcpy(key, t->name, *n);
        bool is = t->role == CKPT_ROLE_STATE
                      ? ckpt_copies_is_master(key)
                      : ckpt_copies_is_master(key) || ckpt_copies_is_float32(key);
        p = is ? dma_param(w, t, at + 1) : NULL;
        if (t->role == CKPT_ROLE_STATE)
            break;
    }
    return p;
}

/* Append the parameter's 16-bit values to the copies of its master. */
static int dma_compare(dma_work *w, ckpt_tensor *master, const ckpt_tensor *param)
{
    const ckpt_tensor like = {.dtype = param->dtype,
                              .ndim = param->ndim,
                              .shape = param->shape,
                              .role = param->role,
                              .flags = param->flags};
    ckpt_tensor *copy, *end = master;
    int rc = ckpt_map_add_hidden(w->map, param->name, strlen(param->name), &like, &copy, w->err);

    if (rc != CKPT_OK)
        return rc;
    ckpt_extent_share(copy, param);
    // `twin` is const for readers of a map, but this map is still being built
    for (; end->twin; memcpy(&end, &end->twin, sizeof end))
        ;
    end->twin = copy;
    return CKPT_OK;
}

static int dma_add(dma_work *w, ckpt_tensor *master, const ckpt_tensor *param, size_t n)
{
    w->map->effects |= CKPT_USED_COPIES;
    if (!w->state->masters)
        w->state->masters = ckpt_arena_string(w->map->arena, master->name, n);
    if (!w->state->masters)
        return ckpt_fail_memory(w->err);
    return w->ignore_copies ? CKPT_OK : dma_compare(w, master, param);
}

/* True if a value has float32 tensors, in itself or in a container inside it. */
static bool dma_has_float32(const ckpt_value *v, unsigned depth)
{
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq seq = ckpt_value_seq(v);
    bool has = v->kind == CKPT_V_TENSOR && v->as.tensor->dtype == CKPT_F32 && v->as.tensor->ndim;

    for (uint64_t i = 0; depth > 0 && !has && i < map.n; i++)
        has = dma_has_float32(map.at[i].value, depth - 1);
    for (uint64_t i = 0; depth > 0 && !has && i < seq.n; i++)
        has = dma_has_float32(seq.at[i], depth - 1);
    return has;
}

/* Find masters among the program's values, which are no tensors of the map in files of ranks. */
static void dma_values(const dma_work *w)
{
    ckpt_dict map = ckpt_value_map(w->map->values);

    for (uint64_t i = 0; !w->state->masters && i < map.n; i++) {
        const ckpt_value *key = map.at[i].key;
        if (key->kind != CKPT_V_STR)
            continue;
        // one tensor of float32 numbers may be a history of losses
        bool is =
            ckpt_copies_is_master(key->as.text.at) ||
            (ckpt_copies_is_float32(key->as.text.at) && map.at[i].value->kind != CKPT_V_TENSOR);
        if (is && dma_has_float32(map.at[i].value, DMA_DEPTH))
            w->state->masters = key->as.text.at;
    }
}

int ckpt_train_masters(ckpt_map *map, ckpt_state *state, bool ignore_copies, ckpt_err *err)
{
    assert(map && state);
    dma_work w = {.map = map, .state = state, .ignore_copies = ignore_copies, .err = err};
    bool halves = false;
    int rc = CKPT_OK;

    for (size_t i = 0; i < state->param.n; i++)
        halves = halves || state->param.at[i]->dtype == CKPT_F16 ||
                 state->param.at[i]->dtype == CKPT_BF16;
    for (size_t i = 0; halves && rc == CKPT_OK && i < map->tensors.n; i++) {
        size_t n = 0;
        const ckpt_tensor *param = dma_of(&w, map->tensors.at[i], &n);
        if (param)
            rc = dma_add(&w, map->tensors.at[i], param, n);
    }
    if (halves)
        dma_values(&w);
    return rc;
}
