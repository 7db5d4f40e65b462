/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c: decides the role of each item: weight, optimizer state, or setting of a parameter
 * group.
 *
 * An optimizer is a dict with the members "param_groups" and usually "state", under any key
 * ("optim", "optimizer", "app.optim", "optimizer_0"), nested as by torch's get_state_dict:
 *
 *     <optimizer> / state / <parameter> / <moment>
 *     <optimizer> / param_groups / <number> / <setting>
 *
 * or flat as by flatten_optimizer_state_dict, with settings for each parameter:
 *
 *     <optimizer> / state.<parameter>.<moment>
 *     <optimizer> / param_groups.<parameter>.<setting>
 *
 * The model is the dict that contains the optimizer's parameters; without an optimizer, a member
 * with a usual name.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/map/copies.h"
#include "libckpt/map/whole.h"

enum { DLY_KEYS = 32 }; /* longest path that is split; the name of a deeper item is its only key */

CKPT_VEC(dly_names, const char *);

/* A set of names. */
typedef struct dly_set {
    dly_names name;
    ckpt_index index;
} dly_set;

typedef struct dly_reader {
    const ckpt_dcp_metadata *m;
    ckpt_dcp_role *out;
    ckpt_arena *arena;
    dly_set optimizers; /* paths of optimizers: all keys above "state", each with a '.' after it */
    dly_set params;     /* the names of the parameters in all optimizers */
    dly_set bare;       /* the same names without wrappers' prefixes ("module.", "_orig_mod.") */
    dly_names full;     /* parallel to bare.name: the name in `params` */
    dly_set taken;      /* the names in `params` for which a weight was found */
    ckpt_err *err;
} dly_reader;

/* The keys of an item's path as texts. */
typedef struct dly_path {
    const char *key[DLY_KEYS];
    unsigned n;
} dly_path;

/* ---- sets ---- */

static bool dly_same(const void *ctx, uint32_t number, const void *key)
{
    assert(number < ((const dly_set *)ctx)->name.n);
    const dly_set *set = ctx;

    return strcmp(set->name.at[number], key) == 0;
}

static bool dly_has(const dly_set *set, const char *name)
{
    uint32_t hash = ckpt_hash_bytes(name, strlen(name), 0);

    return ckpt_index_find(&set->index, hash, dly_same, set, name) != CKPT_INDEX_NONE;
}

static bool dly_enter(dly_set *set, const char *name)
{
    uint32_t hash = ckpt_hash_bytes(name, strlen(name), 0);
    const char **slot;

    if (dly_has(set, name))
        return true;
    slot = ckpt_vec_push(&set->name);
    if (!slot)
        return false;
    *slot = name;
    return ckpt_index_add(&set->index, hash, (uint32_t)(set->name.n - 1));
}

static void dly_set_free(dly_set *set)
{
    ckpt_vec_free(&set->name);
    ckpt_index_free(&set->index);
}

/* ---- paths ---- */

/*
 * Split an item's path into keys; an item without a path has its name as the only key.  false: no
 * memory.
 */
static bool dly_keys(dly_reader *r, const ckpt_dcp_item *item, dly_path *path)
{
    ckpt_seq s = ckpt_value_seq(item->path);

    path->n = 0;
    if (!item->path || s.n > DLY_KEYS)
        path->key[path->n++] = item->name.at;
    for (uint64_t i = 0; item->path && i < s.n && s.n <= DLY_KEYS; i++) {
        const ckpt_value *k = s.at[i];
        const char *text = k->kind == CKPT_V_STR ? k->as.text.at
                                                 : ckpt_arena_printf(r->arena, "%" PRId64, k->as.i);
        if (!text)
            return false;
        path->key[path->n++] = text;
    }
    return true;
}

/* Join keys from..to-1, with a '.' after each; NULL: no memory. */
static const char *dly_join(dly_reader *r, const dly_path *path, unsigned from, unsigned to)
{
    assert(from <= to && to <= path->n);
    ckpt_bytes text = {0};
    const char *out = NULL;
    bool ok = true;

    for (unsigned i = from; ok && i < to; i++)
        ok = ckpt_bytes_add(&text, path->key[i], strlen(path->key[i])) &&
             ckpt_bytes_add(&text, ".", 1);
    if (ok)
        out = ckpt_arena_string(r->arena, text.n ? (const char *)text.at : "", text.n);
    ckpt_vec_free(&text);
    return out;
}

/* Join the keys from `from` on, separated by '.'. */
static const char *dly_name(dly_reader *r, const dly_path *path, unsigned from)
{
    const char *text = dly_join(r, path, from, path->n);
    size_t n = text ? strlen(text) : 0;

    return n > 0 ? ckpt_arena_string(r->arena, text, n - 1) : text;
}

static bool dly_begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

/* A name without the prefixes of wrappers; NULL: no memory. */
static const char *dly_bare(dly_reader *r, const char *name)
{
    char *bare = ckpt_arena_alloc(r->arena, strlen(name) + 1);

    if (bare)
        ckpt_wrapper_bare(bare, name);
    return bare;
}

/*
 * Enter the name of an optimizer's parameter into the sets.  If two names differ only in wrappers'
 * prefixes, the first one belongs to the bare name; the second is found only by its full name.
 */
static bool dly_enter_param(dly_reader *r, const char *name)
{
    const char *bare;

    if (dly_has(&r->params, name))
        return true;
    bare = dly_bare(r, name);
    if (!bare || !dly_enter(&r->params, name))
        return false;
    if (dly_has(&r->bare, bare))
        return true;
    const char **slot = ckpt_vec_push(&r->full);
    if (slot)
        *slot = name;
    return slot && dly_enter(&r->bare, bare);
}

/*
 * Find the name under which the optimizer knows a weight.  The two may differ in prefixes:
 * get_optimizer_state_dict removes those of torch's wrappers from names, a module's state_dict()
 * keeps them, and a program may wrap only the model or only the module whose parameters it gives
 * to the optimizer.  NULL: the optimizer has no such parameter, or (*ok is false) no memory.
 */
static const char *dly_known(dly_reader *r, const char *name, bool *ok)
{
    if (dly_has(&r->params, name))
        return name;
    const char *bare = dly_bare(r, name);

    *ok = *ok && bare;
    if (!bare)
        return NULL;
    uint32_t at = ckpt_index_find(&r->bare.index, ckpt_hash_bytes(bare, strlen(bare), 0), dly_same,
                                  &r->bare, bare);
    return at == CKPT_INDEX_NONE ? NULL : r->full.at[at];
}

/* ---- optimizers ---- */

/*
 * Find the next key of a path, from key *n on, that is "state" or "param_groups", or that begins
 * with one of them in the flat form.  The keys before it are then an optimizer's path.
 *
 * n       in: the first key to look at; out: the key found
 * groups  out: it is "param_groups"
 */
static bool dly_enters(const dly_path *path, unsigned *n, bool *flat, bool *groups)
{
    for (; *n < path->n; (*n)++) {
        const char *key = path->key[*n];
        bool nested = *n + 1 < path->n;
        *groups = dly_begins(key, "param_groups");
        *flat = !nested && (dly_begins(key, "state.") || dly_begins(key, "param_groups."));
        // before torch 2.4 the whole list of groups is one object
        if (*flat || strcmp(key, "param_groups") == 0 || (nested && strcmp(key, "state") == 0))
            return true;
    }
    return false;
}

/* Collect the paths of all dicts that have param_groups: the optimizers. */
static int dly_find_optimizers(dly_reader *r)
{
    for (size_t i = 0; i < r->m->item.n; i++) {
        dly_path path;
        unsigned n = 0;
        bool flat, groups, enters;
        if (!dly_keys(r, &r->m->item.at[i], &path))
            return ckpt_fail_memory(r->err);
        // a program may have a dict "state" above the optimizer
        while ((enters = dly_enters(&path, &n, &flat, &groups)) && !groups)
            n++;
        if (!r->m->item.at[i].path || !enters)
            continue;
        const char *prefix = dly_join(r, &path, 0, n);
        if (!prefix || !dly_enter(&r->optimizers, prefix))
            return ckpt_fail_memory(r->err);
    }
    return CKPT_OK;
}

/* Split "state.<parameter>.<moment>" or "param_groups.<parameter>.<setting>" at the last dot. */
static bool dly_cut(dly_reader *r, const char *text, ckpt_dcp_role *out)
{
    const char *from = strchr(text, '.') + 1, *dot = strrchr(from, '.');

    if (!dot)
        return true;
    out->name = ckpt_arena_string(r->arena, from, (size_t)(dot - from));
    out->key = dot + 1;
    return out->name != NULL;
}

/* Decide the role of an item in an optimizer; it stays OTHER if its path has neither form. */
static int dly_of_optimizer(dly_reader *r, const dly_path *path, unsigned n, bool flat, bool groups,
                            ckpt_dcp_role *out)
{
    if (flat && !dly_cut(r, path->key[n], out))
        return ckpt_fail_memory(r->err);
    if (!flat && path->n >= n + 3) {
        out->name = path->key[n + 1];
        out->key = path->key[n + 2];
    }
    if (!out->key || (!groups && path->n != n + (flat ? 1 : 3)))
        return CKPT_OK;
    out->what = groups ? CKPT_DCP_SETTING : CKPT_DCP_MOMENT;
    // nested groups list parameters in `params`; flat groups have them in their keys
    if ((!groups || flat) && !dly_enter_param(r, out->name))
        return ckpt_fail_memory(r->err);
    return CKPT_OK;
}

static int dly_optimizers(dly_reader *r)
{
    int rc = dly_find_optimizers(r);

    for (size_t i = 0; rc == CKPT_OK && i < r->m->item.n; i++) {
        dly_path path;
        bool flat, groups, found = false;
        if (!dly_keys(r, &r->m->item.at[i], &path))
            return ckpt_fail_memory(r->err);
        for (unsigned n = 0; !found && dly_enters(&path, &n, &flat, &groups); n++) {
            const char *prefix = dly_join(r, &path, 0, n);
            if (!prefix)
                return ckpt_fail_memory(r->err);
            found = dly_has(&r->optimizers, prefix);
            rc = found ? dly_of_optimizer(r, &path, n, flat, groups, &r->out[i]) : CKPT_OK;
        }
    }
    return rc;
}

/* ---- the model ---- */

/*
 * Find where the model is in the tree.  The first tensor decides for which the end of its path is
 * the name of an optimizer's parameter: the keys before that name are the model's path.  Without an
 * optimizer, look for the usual names of a model's dict at the top.
 *
 * prefix  out: the model's path, a '.' after each key; NULL: not found
 * depth   out: its number of keys
 * flat    out: each parameter's name is a single key, so nested dicts are not part of the model
 */
static int dly_find_model(dly_reader *r, const char **prefix, unsigned *depth, bool *flat)
{
    static const char *const usual[] = {"model", "state_dict", "module"};
    dly_path path;

    *prefix = NULL;
    *depth = 0;
    *flat = false;
    for (size_t i = 0; i < r->m->item.n; i++) {
        if (!r->m->item.at[i].is_tensor || r->out[i].what != CKPT_DCP_OTHER)
            continue;
        if (!dly_keys(r, &r->m->item.at[i], &path))
            return ckpt_fail_memory(r->err);
        for (unsigned k = 0; r->params.name.n > 0 && k < path.n; k++) {
            const char *name = dly_name(r, &path, k);
            if (!name)
                return ckpt_fail_memory(r->err);
            bool ok = true;
            if (!dly_known(r, name, &ok) && ok)
                continue;
            if (!ok)
                return ckpt_fail_memory(r->err);
            *depth = k;
            *flat = path.n == k + 1;
            *prefix = dly_join(r, &path, 0, k);
            return *prefix ? CKPT_OK : ckpt_fail_memory(r->err);
        }
        for (size_t u = 0;
             path.n > 1 && r->params.name.n == 0 && !*prefix && u < sizeof usual / sizeof *usual;
             u++) {
            if (strcmp(path.key[0], usual[u]) == 0)
                *prefix = usual[u];
        }
    }
    if (*prefix) {
        *depth = 1;
        *prefix = ckpt_arena_printf(r->arena, "%s.", *prefix);
        return *prefix ? CKPT_OK : ckpt_fail_memory(r->err);
    }
    return CKPT_OK;
}

/* The place of the model in the tree: see dly_find_model. */
typedef struct dly_place {
    const char *prefix; /* NULL: unknown, so every tensor may be a weight */
    unsigned depth;
    bool flat;
} dly_place;

/* Set *name to the name of item i in the model, or to NULL if it is not a tensor of the model. */
static int dly_name_of(dly_reader *r, const dly_place *at, size_t i, const char **name)
{
    dly_path path;

    *name = NULL;
    if (!r->m->item.at[i].is_tensor || r->out[i].what != CKPT_DCP_OTHER)
        return CKPT_OK;
    if (!dly_keys(r, &r->m->item.at[i], &path))
        return ckpt_fail_memory(r->err);
    const char *before = dly_join(r, &path, 0, at->depth < path.n ? at->depth : 0);
    if (!before)
        return ckpt_fail_memory(r->err);
    if (at->prefix && (path.n <= at->depth || strcmp(before, at->prefix) != 0 ||
                       (at->flat && path.n > at->depth + 1)))
        return CKPT_OK;
    *name = dly_name(r, &path, at->depth);
    return *name ? CKPT_OK : ckpt_fail_memory(r->err);
}

/*
 * Make an item a weight, named as in the optimizer if that has this parameter.
 *
 * exact  do so only if the optimizer has the very same name.  The first pass over the items sets
 *        this, so that a weight whose name differs in prefixes cannot take another weight's name
 */
static int dly_weight(dly_reader *r, ckpt_dcp_role *out, const char *name, bool exact)
{
    bool ok = true;
    const char *known = exact ? dly_has(&r->params, name) ? name : NULL : dly_known(r, name, &ok);

    if (!ok)
        return ckpt_fail_memory(r->err);
    if (known && dly_has(&r->taken, known))
        known = NULL;
    if (exact && !known)
        return CKPT_OK;
    if (known && !dly_enter(&r->taken, known))
        return ckpt_fail_memory(r->err);
    *out = (ckpt_dcp_role){
        .what = CKPT_DCP_WEIGHT, .trained = known != NULL, .name = known ? known : name};
    return CKPT_OK;
}

static int dly_model(dly_reader *r)
{
    dly_place at;
    const char *name;
    int rc = dly_find_model(r, &at.prefix, &at.depth, &at.flat);

    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t i = 0; rc == CKPT_OK && i < r->m->item.n; i++) {
            rc = dly_name_of(r, &at, i, &name);
            if (rc == CKPT_OK && name)
                rc = dly_weight(r, &r->out[i], name, pass == 0);
        }
    }
    return rc;
}

/*
 * Remove averaged copies of weights from the model: a program may have saved both in one dict, as
 * "w" and "ema.w".
 */
static int dly_copies(dly_reader *r)
{
    ckpt_copies_name *at = ckpt_alloc((r->m->item.n + 1) * sizeof *at);
    size_t n = 0;

    if (!at)
        return ckpt_fail_memory(r->err);
    for (size_t i = 0; i < r->m->item.n; i++) {
        const ckpt_dcp_item *item = &r->m->item.at[i];
        bool floats = ckpt_dtype_get(item->dtype)->kind == CKPT_IS_FLOAT;
        if (r->out[i].what == CKPT_DCP_WEIGHT)
            at[n++] = (ckpt_copies_name){.name = r->out[i].name,
                                         .shape = item->shape,
                                         .ndim = item->ndim,
                                         .weight = floats && item->ndim > 0,
                                         .trained = r->out[i].trained};
    }
    int rc = ckpt_copies_mark(at, n, r->err);
    n = 0;
    for (size_t i = 0; rc == CKPT_OK && i < r->m->item.n; i++) {
        if (r->out[i].what == CKPT_DCP_WEIGHT && at[n++].copy)
            r->out[i] = (ckpt_dcp_role){.what = CKPT_DCP_OTHER, .name = r->m->item.at[i].name.at};
    }
    ckpt_free(at);
    return rc;
}

int ckpt_dcp_roles(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena, ckpt_err *err)
{
    assert(m && arena && (out || m->item.n == 0));
    dly_reader r = {.m = m, .out = out, .arena = arena, .err = err};
    int rc;

    for (size_t i = 0; i < m->item.n; i++)
        out[i] = (ckpt_dcp_role){.what = CKPT_DCP_OTHER, .name = m->item.at[i].name.at};
    rc = dly_optimizers(&r);
    if (rc == CKPT_OK)
        rc = dly_model(&r);
    if (rc == CKPT_OK)
        rc = dly_copies(&r);
    dly_set_free(&r.optimizers);
    dly_set_free(&r.params);
    dly_set_free(&r.bare);
    dly_set_free(&r.taken);
    ckpt_vec_free(&r.full);
    return rc;
}
