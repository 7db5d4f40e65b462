/* SPDX-License-Identifier: Apache-2.0 */
/*
 * single_values.c: splits the names of tensors into a kind and a parameter of a group.
 */
#include "formats/training/single_values.h"

#include <assert.h>
#include <string.h>

#include "libckpt/map/map.h"

/* A parameter of a group. */
typedef struct tsv_param {
    const char *name;
    size_t group;
    uint32_t other; /* the same parameter in another group, or CKPT_INDEX_NONE */
} tsv_param;

CKPT_VEC(tsv_params, tsv_param);

typedef struct tsv_text {
    const char *at;
    size_t n;
} tsv_text;

static bool tsv_same_param(const void *ctx, uint32_t number, const void *key)
{
    const tsv_params *all = ctx;
    const tsv_text *text = key;
    const char *name = all->at[number].name;

    return strlen(name) == text->n && memcmp(name, text->at, text->n) == 0;
}

static bool tsv_same_kind(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_train_kinds *all = ctx;
    const ckpt_train_kind *a = &all->at[number], *b = key;

    return a->group == b->group && a->n == b->n && memcmp(a->text, b->text, a->n) == 0;
}

static uint32_t tsv_hash_kind(const ckpt_train_kind *k)
{
    return ckpt_hash_bytes(k->text, k->n, ckpt_hash_u64(k->group));
}

/* Number of the last entry of a parameter, or CKPT_INDEX_NONE. */
static uint32_t tsv_find(const tsv_params *all, const ckpt_index *index, const char *name, size_t n)
{
    const tsv_text key = {name, n};

    return ckpt_index_find(index, ckpt_hash_bytes(name, n, 0), tsv_same_param, all, &key);
}

/* Add a parameter of a group; groups ascend. */
static bool tsv_enter(tsv_params *all, ckpt_index *index, const char *name, size_t group)
{
    size_t n = strlen(name);
    uint32_t head = tsv_find(all, index, name, n), self = (uint32_t)all->n;
    tsv_param *p = all->n < INT32_MAX ? ckpt_vec_push(all) : NULL;

    if (!p)
        return false;
    *p = (tsv_param){name, group, CKPT_INDEX_NONE};
    if (head == CKPT_INDEX_NONE)
        return ckpt_index_add(index, ckpt_hash_bytes(name, n, 0), self);
    p->other = all->at[head].other;
    all->at[head].other = self;
    return true;
}

/* List the parameters of all groups. */
static bool tsv_list(tsv_params *all, ckpt_index *index, const ckpt_state *state)
{
    bool ok = true;

    for (size_t g = 0; ok && g < state->group.n; g++) {
        const ckpt_group *group = &state->group.at[g];

        for (size_t i = group->first; ok && i < group->first + group->n; i++)
            ok = tsv_enter(all, index, ckpt_state_name(state, state->param.at[i]), g);
    }
    return ok;
}

static bool tsv_add(ckpt_train_moments *m, const ckpt_train_kind *kind)
{
    uint32_t hash = tsv_hash_kind(kind);
    ckpt_train_kind *slot;

    if (ckpt_index_find(&m->index, hash, tsv_same_kind, &m->kind, kind) != CKPT_INDEX_NONE)
        return true;
    slot = m->kind.n < INT32_MAX ? ckpt_vec_push(&m->kind) : NULL;
    if (!slot)
        return false;
    *slot = *kind;
    return ckpt_index_add(&m->index, hash, (uint32_t)(m->kind.n - 1));
}

/* Both a kind and a parameter may have slashes in their names, so each slash may divide them. */
static bool tsv_split(ckpt_train_moments *m, const tsv_params *all, const ckpt_index *index,
                      const char *name)
{
    size_t n = strlen(name);

    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        const char *param = slash + 1;
        uint32_t i = tsv_find(all, index, param, n - (size_t)(param - name));

        for (; i != CKPT_INDEX_NONE; i = all->at[i].other) {
            const ckpt_train_kind kind = {name, (size_t)(slash - name), all->at[i].group};

            if (!tsv_add(m, &kind))
                return false;
        }
    }
    return true;
}

int ckpt_train_moments_find(ckpt_train_moments *m, const ckpt_map *from, const ckpt_state *state,
                            ckpt_err *err)
{
    assert(m && from);
    size_t n = state ? strlen(state->prefix) : 0;
    tsv_params all = {0};
    ckpt_index index = {0};
    bool ok = !state || tsv_list(&all, &index, state);

    for (size_t i = 0; state && ok && i < from->tensors.n; i++) {
        const char *name = from->tensors.at[i]->name;

        if (strncmp(name, state->prefix, n) == 0)
            ok = tsv_split(m, &all, &index, name + n);
    }
    ckpt_index_free(&index);
    ckpt_vec_free(&all);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

void ckpt_train_moments_free(ckpt_train_moments *m)
{
    ckpt_vec_free(&m->kind);
    ckpt_index_free(&m->index);
}

bool ckpt_train_is_single(const ckpt_train_moments *m, size_t group, const ckpt_pair *p)
{
    assert(m && p);
    const ckpt_tensor_value *v = p->value->kind == CKPT_V_TENSOR ? p->value->as.tensor : NULL;
    ckpt_train_kind kind = {.group = group};

    for (uint32_t k = 0; v && k < v->ndim; k++) {
        if (v->shape[k] != 1)
            return false; // a flat moment
    }
    if (p->key->kind != CKPT_V_STR)
        return false;
    kind.text = p->key->as.text.at;
    kind.n = strlen(kind.text);
    return ckpt_index_find(&m->index, tsv_hash_kind(&kind), tsv_same_kind, &m->kind, &kind) ==
           CKPT_INDEX_NONE;
}
