/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole.c: decides which member of a saved dict is the model, e.g. of {"model": ..., "optimizer":
 * ...}.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/map/whole.h"

enum {
    WHO_DEPTH = 6,  /* maximum depth of the search for a model or an optimizer */
    WHO_LISTED = 6, /* maximum paths of one kind in a message */
};

/* Keys under which programs save a model; a path of only these leads to a model. */
static const char *const who_usual[] = {
    "model",         "state_dict", "model_state_dict", "module",  "model_state", "model_dict",
    "model_weights", "net",        "network",          "weights", "params",      "net_state_dict",
};

CKPT_VEC(who_values, ckpt_value *);

/* One walk: each container is visited once, under its first path. */
typedef struct who_walk {
    ckpt_whole *out;
    ckpt_arena *arena;
    ckpt_err *err;
    who_values marked;
    bool inside; /* the walk is inside a model's dict, where it looks only for optimizers */
} who_walk;

/* ---- wrappers ---- */

/* Bytes of a wrapper's part at the beginning of a name; 0: none. */
static size_t who_wrapper(const char *name)
{
    // torch.compile, FSDP1, activation checkpointing, Lightning's strategies, fairscale, Opacus
    static const char *const parts[] = {
        "_orig_mod.",       "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.",
        "_forward_module.", "_fpw_module.",          "_module.",
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t n = strlen(parts[i]);
        if (strncmp(name, parts[i], n) == 0)
            return n;
    }
    return 0;
}

void ckpt_wrapper_strip(char *out, const char *name)
{
    bool begins = true;

    while (*name) {
        size_t n = begins ? who_wrapper(name) : 0;
        if (n > 0) {
            name += n;
            continue;
        }
        begins = *name == '.';
        *out++ = *name++;
    }
    *out = 0;
}

void ckpt_wrapper_bare(char *out, const char *name)
{
    static const char ddp[] = "module.";
    size_t n = sizeof ddp - 1, at = 0;

    ckpt_wrapper_strip(out, name);
    while (strncmp(out + at, ddp, n) == 0 && out[at + n])
        at += n;
    memmove(out, out + at, strlen(out + at) + 1);
}

/* ---- kinds of values ---- */

/* True for a dict with `state` and `param_groups`, as torch's optimizers have. */
static bool who_is_optimizer(const ckpt_value *v)
{
    const ckpt_value *groups = ckpt_value_get(v, "param_groups");

    return groups && groups->kind == CKPT_V_LIST && ckpt_value_get(v, "state");
}

/* True for a tensor, a Parameter that was pickled as an object, or one rank's part of a tensor. */
static bool who_is_tensor(const ckpt_value *v)
{
    const ckpt_value *cls = v->kind == CKPT_V_OBJECT ? v->as.object->cls : NULL;

    return v->kind == CKPT_V_TENSOR || (cls && cls->kind == CKPT_V_GLOBAL &&
                                        strncmp(cls->as.global.module.at, "torch", 5) == 0 &&
                                        strchr(".\0", cls->as.global.module.at[5]));
}

/* True for a floating tensor with axes; counters, scores and generators are not. */
static bool who_is_weight(const ckpt_value *v)
{
    return v->kind == CKPT_V_OBJECT ||
           (v->as.tensor->ndim > 0 && ckpt_dtype_get(v->as.tensor->dtype)->kind == CKPT_IS_FLOAT);
}

/* True for a dict whose values are mostly named tensors; *n: their number. */
static bool who_is_model(const ckpt_value *v, uint64_t *n)
{
    ckpt_dict map = ckpt_value_map(v);
    bool weights = false;

    *n = 0;
    for (uint64_t i = 0; i < map.n; i++) {
        if (map.at[i].key->kind != CKPT_V_STR || !who_is_tensor(map.at[i].value))
            continue;
        ++*n;
        weights = weights || who_is_weight(map.at[i].value);
    }
    return weights && *n > map.n / 2;
}

/* The number of parameters in an optimizer's groups. */
static uint64_t who_params(const ckpt_value *optimizer)
{
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(optimizer, "param_groups"));
    uint64_t n = 0;

    for (uint64_t i = 0; i < groups.n; i++)
        n += ckpt_value_seq(ckpt_value_get(groups.at[i], "params")).n;
    return n;
}

/* ---- the walk ---- */

static int who_add(who_walk *w, ckpt_whole_kind kind, const char *path, ckpt_value *v, uint64_t n)
{
    ckpt_whole_part *part = ckpt_vec_push(&w->out->part);

    if (!part)
        return ckpt_fail_memory(w->err);
    *part = (ckpt_whole_part){.kind = kind, .path = path, .value = v, .n = n};
    return CKPT_OK;
}

static int who_visit(who_walk *w, ckpt_value *v, const char *path, unsigned depth);

/* The path of a member; a key that is not text does not lead to a model. NULL: out of memory. */
static const char *who_below(who_walk *w, const char *path, const ckpt_value *key, uint64_t i)
{
    const char *dot = *path ? "." : "";

    if (key && key->kind == CKPT_V_STR)
        return ckpt_arena_printf(w->arena, "%s%s%s", path, dot, key->as.text.at);
    return ckpt_arena_printf(w->arena, "%s%s%" PRId64, path, dot,
                             key && key->kind == CKPT_V_INT ? key->as.i : (int64_t)i);
}

/* Visit the members of a dict, list or tuple that are containers. */
static int who_members(who_walk *w, ckpt_value *v, const char *path, unsigned depth)
{
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq seq = ckpt_value_seq(v);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < map.n + seq.n; i++) {
        ckpt_value *member = i < map.n ? map.at[i].value : seq.at[i - map.n];
        if (ckpt_value_map(member).n + ckpt_value_seq(member).n == 0)
            continue;
        const char *below =
            who_below(w, path, i < map.n ? map.at[i].key : NULL, i < map.n ? i : i - map.n);
        rc = below ? who_visit(w, member, below, depth - 1) : ckpt_fail_memory(w->err);
    }
    return rc;
}

static int who_by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Part `at` is a model whose dict also holds an optimizer: reduce it to the model's own tensors. */
static int who_direct(who_walk *w, size_t at)
{
    ckpt_whole_part *part = &w->out->part.at[at];
    ckpt_dict map = ckpt_value_map(part->value);
    ckpt_value *own = ckpt_value_new(w->arena, CKPT_V_DICT);
    size_t n = 0;

    part->direct = ckpt_arena_array(w->arena, part->n, sizeof *part->direct);
    if (!own || !part->direct)
        return ckpt_fail_memory(w->err);
    for (uint64_t i = 0; i < map.n; i++) {
        if (map.at[i].key->kind != CKPT_V_STR || !who_is_tensor(map.at[i].value))
            continue;
        part->direct[n++] = map.at[i].key->as.text.at;
        if (!ckpt_dict_add(w->arena, &own->as.map, map.at[i].key, map.at[i].value))
            return ckpt_fail_memory(w->err);
    }
    qsort(part->direct, n, sizeof *part->direct, who_by_key);
    part->value = own;
    return CKPT_OK;
}

/*
 * Add a model, and the optimizers inside its dict: some programs save {**weights, "optimizer":
 * ...}.
 */
static int who_model(who_walk *w, ckpt_value *v, const char *path, unsigned depth, uint64_t n)
{
    size_t at = w->out->part.n;
    int rc = who_add(w, CKPT_WHOLE_MODEL, path, v, n);

    w->inside = true;
    if (rc == CKPT_OK)
        rc = who_members(w, v, path, depth);
    w->inside = false;
    return rc == CKPT_OK && w->out->part.n > at + 1 ? who_direct(w, at) : rc;
}

size_t ckpt_whole_below(const ckpt_whole_part *p, const char *name)
{
    size_t n = strlen(p->path), at = n > 0 ? n + 1 : 0;

    if (n > 0 && (strncmp(name, p->path, n) != 0 || name[n] != '.'))
        return SIZE_MAX;
    name += at;
    if (p->direct)
        return bsearch(&name, p->direct, p->n, sizeof *p->direct, who_by_key) ? at : SIZE_MAX;
    return n > 0 ? at : SIZE_MAX;
}

static int who_visit(who_walk *w, ckpt_value *v, const char *path, unsigned depth)
{
    ckpt_value **slot;
    uint64_t n;

    if (v->mark != 0 || depth == 0)
        return CKPT_OK;
    slot = ckpt_vec_push(&w->marked);
    if (!slot)
        return ckpt_fail_memory(w->err);
    *slot = v;
    v->mark = 1;
    if (who_is_optimizer(v))
        return who_add(w, CKPT_WHOLE_OPTIMIZER, path, v, who_params(v));
    if (!w->inside && who_is_model(v, &n))
        return who_model(w, v, path, depth, n);
    return who_members(w, v, path, depth);
}

/* ---- copies ---- */

/* A model's tensor, and its name without wrapper prefixes ("module."). */
typedef struct who_name {
    char *name;
    const char *tail; /* the name without the common prefix */
    const ckpt_tensor_value *tensor;
} who_name;

typedef struct who_names {
    who_name *at;
    size_t n;
} who_names;

static int who_by_tail(const void *pa, const void *pb)
{
    return strcmp(((const who_name *)pa)->tail, ((const who_name *)pb)->tail);
}

/* Length of the prefix that all names share, in whole words: "module." of averaged models. */
static size_t who_shared(const who_names *names)
{
    size_t n = 0;

    if (names->n == 0)
        return 0;
    const char *first = names->at[0].name;
    for (const char *dot = strchr(first, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t to = (size_t)(dot - first) + 1;
        for (size_t i = 1; i < names->n; i++) {
            if (strncmp(names->at[i].name, first, to) != 0)
                return n;
        }
        n = to;
    }
    return n;
}

static void who_names_free(who_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        ckpt_free(names->at[i].name);
    ckpt_free(names->at);
}

/* List a model's weights, sorted by name, without counters, which copies may lack. */
static bool who_names_of(who_names *out, const ckpt_value *model)
{
    ckpt_dict map = ckpt_value_map(model);

    *out = (who_names){.at = ckpt_alloc((size_t)(map.n + 1) * sizeof *out->at)};
    for (uint64_t i = 0; out->at && i < map.n; i++) {
        const ckpt_value *v = map.at[i].value;
        if (map.at[i].key->kind != CKPT_V_STR || v->kind != CKPT_V_TENSOR || !who_is_weight(v))
            continue;
        who_name *one = &out->at[out->n];
        one->name = ckpt_alloc((size_t)map.at[i].key->as.text.n + 1);
        if (!one->name)
            return false;
        ckpt_wrapper_strip(one->name, map.at[i].key->as.text.at);
        one->tensor = v->as.tensor;
        out->n++;
    }
    size_t shared = out->at ? who_shared(out) : 0;
    for (size_t i = 0; i < out->n; i++)
        out->at[i].tail = out->at[i].name + shared;
    if (out->n > 0)
        qsort(out->at, out->n, sizeof *out->at, who_by_tail);
    return out->at != NULL;
}

static bool who_same_shape(const ckpt_tensor_value *a, const ckpt_tensor_value *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* True if both have the same weights by name and shape; false in *ok: out of memory. */
static bool who_is_copy(const ckpt_value *a, const ckpt_value *b, bool *ok)
{
    who_names x, y = {0};
    bool same = who_names_of(&x, a) && who_names_of(&y, b);

    *ok = *ok && same;
    same = same && x.n == y.n && x.n > 0;
    for (size_t i = 0; same && i < x.n; i++)
        same = strcmp(x.at[i].tail, y.at[i].tail) == 0 &&
               who_same_shape(x.at[i].tensor, y.at[i].tensor);
    who_names_free(&x);
    who_names_free(&y);
    return same;
}

/*
 * A digest that is equal for parts with the same weights; `part` orders parts with equal digests.
 */
typedef struct who_digest {
    uint32_t hash[2]; /* hashes of names and shapes */
    size_t part;
    bool any; /* has weights */
} who_digest;

static int who_by_digest(const void *pa, const void *pb)
{
    const who_digest *a = pa, *b = pb;
    int order = memcmp(a->hash, b->hash, sizeof a->hash);

    return order != 0 ? order : (a->part > b->part) - (a->part < b->part);
}

/* Compute the digest of a model; false: out of memory. */
static bool who_digest_of(who_digest *out, const ckpt_value *model)
{
    who_names names;
    bool ok = who_names_of(&names, model);

    for (uint32_t h = 0; ok && h < 2; h++) {
        uint32_t hash = h;
        for (size_t i = 0; i < names.n; i++) {
            const ckpt_tensor_value *t = names.at[i].tensor;
            hash = ckpt_hash_bytes(names.at[i].tail, strlen(names.at[i].tail) + 1, hash);
            hash = ckpt_hash_bytes(t->shape, t->ndim * sizeof *t->shape, hash);
        }
        out->hash[h] = hash;
    }
    out->any = names.n > 0;
    who_names_free(&names);
    return ok;
}

/*
 * Compute the digests of all models, sorted; NULL: no memory. They make the search for copies fast,
 * because a file may hold very many models.
 */
static who_digest *who_digests(const ckpt_whole *w, size_t *n)
{
    who_digest *all = ckpt_alloc((w->part.n + 1) * sizeof *all);
    bool ok = all != NULL;

    *n = 0;
    for (size_t i = 0; ok && i < w->part.n; i++) {
        if (w->part.at[i].kind == CKPT_WHOLE_OPTIMIZER)
            continue;
        all[*n] = (who_digest){.part = i};
        ok = who_digest_of(&all[*n], w->part.at[i].value);
        *n += all[*n].any;
    }
    if (ok && *n > 0)
        qsort(all, *n, sizeof *all, who_by_digest);
    if (!ok)
        ckpt_free(all);
    return ok ? all : NULL;
}

/*
 * Of n parts with one digest, mark those that are copies of the model; while no model is certain,
 * those that are copies of the first of these parts.
 */
static bool who_mark_copies(ckpt_whole *w, const who_digest *run, size_t n)
{
    size_t of = w->model == SIZE_MAX ? run[0].part : SIZE_MAX;
    bool ok = true;

    for (size_t i = 0; i < n; i++)
        of = run[i].part == w->model ? w->model : of;
    for (size_t i = 0; of != SIZE_MAX && i < n; i++) {
        ckpt_whole_part *p = &w->part.at[run[i].part];
        if (run[i].part != of && who_is_copy(w->part.at[of].value, p->value, &ok))
            p->kind = CKPT_WHOLE_COPY;
    }
    return ok;
}

/* ---- choosing ---- */

/* True if every key of a path is a usual one for a model. */
static bool who_is_usual(const char *path)
{
    while (*path) {
        size_t n = strcspn(path, "."), i = 0;
        while (i < sizeof who_usual / sizeof *who_usual &&
               (strlen(who_usual[i]) != n || strncmp(who_usual[i], path, n) != 0))
            i++;
        if (i == sizeof who_usual / sizeof *who_usual)
            return false;
        path += n;
        path += *path == '.';
    }
    return true;
}

/*
 * Choose the only model, else the only one under a usual key, else the only one with as many
 * parameters as the optimizers.
 */
static size_t who_one(const ckpt_whole *w)
{
    size_t last = SIZE_MAX, usual = SIZE_MAX, large = SIZE_MAX;
    unsigned n = 0, n_usual = 0, n_large = 0;
    uint64_t params = 0;

    for (size_t i = 0; i < w->part.n; i++)
        params += w->part.at[i].kind == CKPT_WHOLE_OPTIMIZER ? w->part.at[i].n : 0;
    for (size_t i = 0; i < w->part.n; i++) {
        const ckpt_whole_part *p = &w->part.at[i];
        if (p->kind == CKPT_WHOLE_OPTIMIZER)
            continue;
        last = i;
        n++;
        usual = who_is_usual(p->path) ? i : usual;
        n_usual += who_is_usual(p->path);
        large = p->n >= params ? i : large;
        n_large += p->n >= params;
    }
    return n == 1                                                               ? last
           : n_usual == 1                                                       ? usual
           : params > 0 && n_usual == 0 && n_large == 1 && w->n_optimizers == 1 ? large
                                                                                : SIZE_MAX;
}

int ckpt_whole_choose(ckpt_whole *w, ckpt_err *err)
{
    who_digest *digest;
    size_t n;
    bool ok = true;

    w->n_models = w->n_copies = w->n_optimizers = 0;
    for (size_t i = 0; i < w->part.n; i++)
        w->n_optimizers += w->part.at[i].kind == CKPT_WHOLE_OPTIMIZER;
    w->model = who_one(w);
    w->named = w->model != SIZE_MAX && who_is_usual(w->part.at[w->model].path);
    for (size_t i = 0; i < w->part.n; i++) {
        if (w->part.at[i].kind == CKPT_WHOLE_COPY)
            w->part.at[i].kind = CKPT_WHOLE_MODEL;
    }
    digest = who_digests(w, &n);
    for (size_t i = 0, end; digest && i < n; i = end) {
        for (end = i + 1;
             end < n && memcmp(digest[end].hash, digest[i].hash, sizeof digest->hash) == 0;)
            end++;
        ok = who_mark_copies(w, digest + i, end - i) && ok;
    }
    for (size_t i = 0; i < w->part.n; i++) {
        w->n_copies += w->part.at[i].kind == CKPT_WHOLE_COPY;
        w->n_models += w->part.at[i].kind == CKPT_WHOLE_MODEL;
    }
    ok = ok && digest;
    ckpt_free(digest);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

int ckpt_whole_of(ckpt_whole *out, ckpt_value *root, ckpt_arena *arena, ckpt_err *err)
{
    who_walk w = {.out = out, .arena = arena, .err = err};
    int rc = root ? who_visit(&w, root, "", WHO_DEPTH) : CKPT_OK;

    for (size_t i = 0; i < w.marked.n; i++)
        w.marked.at[i]->mark = 0;
    ckpt_vec_free(&w.marked);
    return rc == CKPT_OK ? ckpt_whole_choose(out, err) : rc;
}

void ckpt_whole_free(ckpt_whole *whole)
{
    ckpt_vec_free(&whole->part);
}

/* ---- texts ---- */

const char *ckpt_whole_kind_text(ckpt_whole_kind kind)
{
    static const char *const texts[] = {"a model", "a copy of the model", "an optimizer"};

    return texts[kind];
}

const char *ckpt_whole_text(const ckpt_whole *whole, ckpt_arena *arena)
{
    static const char *const many[] = {"models", "copies of a model", "optimizers"};
    const char *text = "";

    for (unsigned kind = 0; text && kind < 3; kind++) {
        const char *paths = "";
        unsigned n = 0;
        for (size_t i = 0; paths && i < whole->part.n; i++) {
            if (whole->part.at[i].kind != (ckpt_whole_kind)kind || n++ > WHO_LISTED)
                continue;
            paths = ckpt_arena_printf(arena, "%s%s%.80s", paths, n > 1 ? ", " : "",
                                      n > WHO_LISTED            ? "..."
                                      : *whole->part.at[i].path ? whole->part.at[i].path
                                                                : "the whole file");
        }
        const char *dot = *text ? ", " : "";
        if (!paths || n == 0)
            text = paths ? text : NULL;
        else if (n == 1)
            text = ckpt_arena_printf(arena, "%s%s%s (%s)", text, dot,
                                     ckpt_whole_kind_text((ckpt_whole_kind)kind), paths);
        else
            text = ckpt_arena_printf(arena, "%s%s%u %s (%s)", text, dot, n, many[kind], paths);
    }
    return text;
}
