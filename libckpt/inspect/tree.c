/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: prints the tree of values: reads the options, and finds the sub-tree of a path.
 */
#include "libckpt/inspect/tree.h"

#include <string.h>

#include "libckpt/base/opts.h"
#include "libckpt/map/map.h"

#define TREE_DEPTH 100u

/* True if the path's first part, up to a '.' or its end, is exactly this text. */
static bool tree_begins(const char *path, const char *text, uint64_t n)
{
    // a key may contain dots itself ("module.fc.weight")
    return n > 0 && strlen(path) >= n && memcmp(path, text, (size_t)n) == 0 &&
           (path[n] == '.' || path[n] == '\0');
}

/* A decimal number at the head of the path; its length, or 0. */
static size_t tree_number(const char *path, int64_t *out)
{
    size_t n = path[0] == '-', digits = n;

    *out = 0;
    while (path[n] >= '0' && path[n] <= '9' && n - digits < 18)
        *out = *out * 10 + (path[n++] - '0');
    *out = digits == 1 ? -*out : *out;
    return n > digits && (path[n] == '.' || path[n] == '\0') ? n : 0;
}

/* The value of the longest key of a dict that the path begins with. */
static const ckpt_value *tree_in_dict(ckpt_dict map, const char *path, size_t *n)
{
    const ckpt_value *found = NULL;
    int64_t number;
    size_t n_number = tree_number(path, &number);

    *n = 0;
    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *key = map.at[i].key;

        if (key->kind == CKPT_V_STR && key->as.text.n > *n &&
            tree_begins(path, key->as.text.at, key->as.text.n)) {
            found = map.at[i].value;
            *n = (size_t)key->as.text.n;
        } else if (key->kind == CKPT_V_INT && n_number > *n && key->as.i == number) {
            found = map.at[i].value;
            *n = n_number;
        }
    }
    return found;
}

/* The child of v that the path begins with, and the length of that part of the path. */
static const ckpt_value *tree_child(const ckpt_value *v, const char *path, size_t *n)
{
    const ckpt_value *state = v->kind == CKPT_V_OBJECT   ? v->as.object->state
                              : v->kind == CKPT_V_TENSOR ? v->as.tensor->state
                                                         : v->state;
    ckpt_seq seq = v->kind == CKPT_V_OBJECT ? v->as.object->items : ckpt_value_seq(v);
    ckpt_dict map = v->kind == CKPT_V_OBJECT ? v->as.object->pairs : ckpt_value_map(v);
    const ckpt_value *found = tree_in_dict(map, path, n);
    int64_t number;

    if (!found && seq.n > 0) {
        *n = tree_number(path, &number);
        found = *n > 0 && number >= 0 && (uint64_t)number < seq.n ? seq.at[number] : NULL;
    }
    if (!found && state) {
        found = tree_in_dict(ckpt_value_map(state), path, n); // attributes
    }
    if (!found && v->kind == CKPT_V_OBJECT && v->as.object->args && tree_begins(path, "args", 4)) {
        found = v->as.object->args;
        *n = 4;
    }
    return found;
}

/* Follow a path. */
static int tree_select(const ckpt_value **v, const char *path, ckpt_err *err)
{
    const char *at = path;

    while (at && *at != '\0') {
        size_t n = 0;
        const ckpt_value *child = tree_child(*v, at, &n);

        if (!child && at == path)
            return ckpt_fail(err, CKPT_EMISSING,
                             "found no entry '%s'; ckpt tree without a subpath lists all", at);
        if (!child)
            return ckpt_fail(err, CKPT_EMISSING,
                             "found no entry '%s' below '%.*s'; ckpt tree with that subpath lists "
                             "the entries",
                             at, (int)(at - path - 1), path);
        *v = child;
        at += n + (at[n] == '.');
    }
    return CKPT_OK;
}

int ckpt_tree_print(const ckpt_map *map, const ckpt_tree_opts *opts, ckpt_write_fn fn, void *ctx,
                    ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_tree_opts own;
    const ckpt_value *root = map ? map->values : NULL;
    ckpt_tree *t;
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_tree_opts", err);

    if (rc != CKPT_OK)
        return rc;
    if (!map || !fn)
        return ckpt_fail(err, CKPT_EUSAGE, "no map to print, or no function that receives it");
    opts = &own;
    if (!root)
        return ckpt_fail(err, CKPT_EMISSING, "%s holds tensors only, no tree of values",
                         map->path ? map->path : "the checkpoint");
    rc = tree_select(&root, opts->path, err);
    if (rc != CKPT_OK)
        return rc;
    t = ckpt_alloc(sizeof *t); // its buffer is too large for a stack
    if (!t)
        return ckpt_fail_memory(err);
    t->fn = fn;
    t->ctx = ctx;
    t->err = err;
    t->max_depth = opts->max_depth != 0 ? opts->max_depth : TREE_DEPTH;
    t->max_items = opts->max_items;
    ckpt_tree_survey(t, root);
    if (opts->format == CKPT_TREE_JSON)
        ckpt_tree_json(t, root);
    else
        ckpt_tree_text(t, root);
    ckpt_tree_flush(t);
    rc = t->rc;
    ckpt_vec_free(&t->nodes);
    ckpt_vec_free(&t->frames);
    ckpt_index_free(&t->index);
    ckpt_free(t);
    return rc;
}
