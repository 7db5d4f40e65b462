/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.c: finds copies of a model's weights among the names of its tensors, and tells averages
 * and float32 masters by the words of their keys.
 */
#include "libckpt/map/copies.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "libckpt/base/index.h"
#include "libckpt/base/mem.h"

/* ---- words of a path ---- */

static const char *const cpy_averages[] = {"ema", "avg",    "average", "averaged", "averaging",
                                           "swa", "shadow", "teacher", "polyak",   NULL};
static const char *const cpy_masters[] = {"master", "masters", NULL};
static const char *const cpy_float32[] = {"fp32", "float32", NULL};
static const char *const cpy_weights[] = {"param",   "params", "parameter", "parameters", "weight",
                                          "weights", "copy",   "model",     NULL};

/* True if a path has one of the words; digits after a word do not count ("ema2"). */
static bool cpy_has_word(const char *path, const char *const *words)
{
    while (*path) {
        size_t n = 0, bare;
        while (isalnum((unsigned char)path[n]))
            n++;
        for (bare = n; bare > 0 && isdigit((unsigned char)path[bare - 1]);)
            bare--;
        for (const char *const *word = words; *word; word++) {
            size_t m = strlen(*word), i = 0;
            while (i < m && i < n && tolower((unsigned char)path[i]) == (*word)[i])
                i++;
            if (i == m && (m == n || m == bare))
                return true;
        }
        path += n + (path[n] != 0);
    }
    return false;
}

bool ckpt_copies_is_average(const char *path)
{
    return cpy_has_word(path, cpy_averages);
}

bool ckpt_copies_is_float32(const char *path)
{
    return !ckpt_copies_is_average(path) && cpy_has_word(path, cpy_float32);
}

bool ckpt_copies_is_master(const char *path)
{
    return !ckpt_copies_is_average(path) &&
           (cpy_has_word(path, cpy_masters) ||
            (cpy_has_word(path, cpy_float32) && cpy_has_word(path, cpy_weights)));
}

/* ---- copies below a key ---- */

enum { CPY_NONE = -1 };

/* Keys under which programs save averaged weights. */
static const char *const cpy_keys[] = {
    "ema",        "ema_model", "model_ema",     "ema_state_dict", "ema_params",    "ema_weights",
    "ema_shadow", "shadow",    "shadow_params", "averaged_model", "average_model", "avg_model",
    "averaged",   "swa",       "swa_model",     "ema_module",     "module_ema",    "model_average",
    "model_avg",  "ema_net",
};

enum { CPY_KEYS = sizeof cpy_keys / sizeof *cpy_keys };

/* Keys that such a copy may have between its own key and the model's names. */
static const char *const cpy_inner[] = {
    "module.", "model.",          "shadow.",    "shadow_params.", "params.",
    "ema.",    "averaged_model.", "_orig_mod.", "ema_model.",     "state_dict.",
};

/* Facts about the names below one key. */
typedef struct cpy_key {
    size_t n_weights, n_equal;
    bool trained;
} cpy_key;

typedef struct cpy_search {
    ckpt_copies_name *at;
    ckpt_index outside; /* names that are below none of the keys */
} cpy_search;

/* The number of the key that a name begins with, or CPY_NONE. */
static int cpy_key_of(const char *name)
{
    size_t n = strcspn(name, ".");

    for (int k = 0; name[n] && k < CPY_KEYS; k++) {
        if (strlen(cpy_keys[k]) == n && strncmp(cpy_keys[k], name, n) == 0)
            return k;
    }
    return CPY_NONE;
}

/* Bytes of a key inside the copy that the name begins with; 0: none. */
static size_t cpy_inner_of(const char *name)
{
    for (size_t i = 0; i < sizeof cpy_inner / sizeof *cpy_inner; i++) {
        size_t n = strlen(cpy_inner[i]);
        if (strncmp(name, cpy_inner[i], n) == 0)
            return n;
    }
    return 0;
}

const char *ckpt_copies_bare(const char *name)
{
    for (size_t n; (n = cpy_inner_of(name)) > 0;)
        name += n;
    return name;
}

static bool cpy_same(const void *ctx, uint32_t number, const void *key)
{
    const cpy_search *s = ctx;

    return strcmp(ckpt_copies_bare(s->at[number].name), key) == 0;
}

/* True if a tensor outside has the name and the shape of a copy's tensor. */
static bool cpy_is_equal(const cpy_search *s, const ckpt_copies_name *t)
{
    const char *name = ckpt_copies_bare(t->name);
    uint32_t hash = ckpt_hash_bytes(name, strlen(name), 0);
    uint32_t at = ckpt_index_find(&s->outside, hash, cpy_same, s, name);
    const ckpt_copies_name *of = at == CKPT_INDEX_NONE ? NULL : &s->at[at];

    return of && of->ndim == t->ndim &&
           (t->ndim == 0 || memcmp(of->shape, t->shape, t->ndim * sizeof *t->shape) == 0);
}

/* Index the names outside of all keys. */
static bool cpy_index(cpy_search *s, size_t n)
{
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++) {
        const char *bare = ckpt_copies_bare(s->at[i].name);
        uint32_t hash = ckpt_hash_bytes(bare, strlen(bare), 0);
        if (cpy_key_of(s->at[i].name) != CPY_NONE || !s->at[i].weight ||
            ckpt_index_find(&s->outside, hash, cpy_same, s, bare) != CKPT_INDEX_NONE)
            continue;
        ok = ckpt_index_add(&s->outside, hash, (uint32_t)i);
    }
    return ok;
}

int ckpt_copies_mark(ckpt_copies_name *at, size_t n, ckpt_err *err)
{
    assert((at || n == 0) && n < INT32_MAX);
    cpy_search s = {.at = at};
    cpy_key key[CPY_KEYS] = {{0}};
    bool any = false, ok;

    for (size_t i = 0; i < n; i++)
        any = any || cpy_key_of(at[i].name) != CPY_NONE;
    ok = !any || cpy_index(&s, n);
    for (size_t i = 0; any && ok && i < n; i++) {
        int k = cpy_key_of(at[i].name);
        if (k == CPY_NONE)
            continue;
        key[k].n_weights += at[i].weight;
        key[k].n_equal += at[i].weight && cpy_is_equal(&s, &at[i]);
        key[k].trained = key[k].trained || at[i].trained;
    }
    for (size_t i = 0; any && ok && i < n; i++) {
        int k = cpy_key_of(at[i].name);
        at[i].copy = k != CPY_NONE && !key[k].trained && 2 * key[k].n_equal > key[k].n_weights;
    }
    ckpt_index_free(&s.outside);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}
