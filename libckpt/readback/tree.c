/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: compares the values of the source's files with those of the written files.
 */
#include <stdio.h>
#include <string.h>

#include "libckpt/map/map.h"
#include "libckpt/readback/readback.h"

enum {
    CLT_DEPTH = 12,     /* nested containers compared entry by entry */
    CLT_NODES = 1 << 20 /* nodes of one value compared as a whole */
};

/*
 * Keys that describe the layout for a stage, world or release. They may differ, because the
 * tensors, parameters, groups and step counts that they describe are compared directly.
 */
static const char *const clt_layout[] = {
    "module",
    "optimizer",
    "optimizer_state_dict",
    "param_shapes",
    "frozen_param_shapes",
    "frozen_param_fragments",
    "shared_params",
    "buffer_names",
    "ds_version",
    "zero_stage",
    "partition_count",
    "ds_zero_partition_groups",
    "group_paddings",
    "groups_padding",
    "param_alignment_paddings",
    "param_slice_mappings",
    "num_comm_intervals_per_group",
    "single_partition_of_fp32_groups",
    "local_sub_partitions_of_fp32_groups",
    "fp32_flat_groups",
    "fp32_groups",
    "fp32_groups_flat",
    "base_optimizer_state",
    "base_optimizer_state_step",
    "state",
    "param_groups",
    NULL,
};

static bool clt_is_layout(const ckpt_value *key)
{
    for (size_t i = 0; clt_layout[i]; i++) {
        if (ckpt_value_is(key, clt_layout[i]))
            return true;
    }
    return false;
}

/* ---- the writer's reports ---- */

/*
 * True if the report `said` concerns the path or a container of it: "ds_config" covers
 * "ds_config.fp16".
 */
static bool clt_is_of(const char *said, const char *path)
{
    for (size_t n = 1; path[n - 1]; n++) {
        bool part = path[n] == 0 || path[n] == '.' || path[n] == '[';
        if (part && strncmp(said, path, n) == 0 &&
            (said[n] == 0 || said[n] == ' ' || said[n] == ':'))
            return true;
    }
    return false;
}

int ckpt_claim_differs(ckpt_claim_work *w, const char *path, const char *what)
{
    static const char rewritten[] = "rewritten: ", left[] = "left out: ";

    for (size_t i = 0; i < w->to->findings.n; i++) {
        const char *text = w->to->findings.at[i].text;
        if (strncmp(text, rewritten, sizeof rewritten - 1) == 0 &&
            clt_is_of(text + sizeof rewritten - 1, path)) {
            w->to->claim.n_rewritten++;
            return CKPT_OK;
        }
        if (strncmp(text, left, sizeof left - 1) == 0 && clt_is_of(text + sizeof left - 1, path)) {
            w->to->claim.n_left_out++;
            return CKPT_OK;
        }
    }
    return ckpt_fail(w->err, CKPT_EMISMATCH,
                     "%s: read back before it was made visible, it does not say what %.300s says: "
                     "%.300s %s; nothing was written",
                     w->to->path, w->from->path, path, what);
}

/* ---- two trees ---- */

/* Find the value of entry i's key in another dict, first at the same index; NULL if it lacks the
 * key. */
static const ckpt_value *clt_partner(const ckpt_dict *a, uint64_t i, const ckpt_dict *b)
{
    const ckpt_value *key = a->at[i].key;

    if (i < b->n && ckpt_value_equal(key, b->at[i].key, CLT_NODES))
        return b->at[i].value;
    for (uint64_t k = 0; k < b->n; k++) {
        if (ckpt_value_equal(key, b->at[k].key, CLT_NODES))
            return b->at[k].value;
    }
    return NULL;
}

/* Build "<path>.<key>" or "<path>[3]". */
static void clt_join(char out[CKPT_CLAIM_PATH], const char *path, const ckpt_value *key, uint64_t i)
{
    if (key && key->kind == CKPT_V_STR)
        (void)snprintf(out, CKPT_CLAIM_PATH, "%.400s%s%.100s", path, *path ? "." : "",
                       key->as.text.at);
    else if (key && key->kind == CKPT_V_INT)
        (void)snprintf(out, CKPT_CLAIM_PATH, "%.400s[%lld]", path, (long long)key->as.i);
    else
        (void)snprintf(out, CKPT_CLAIM_PATH, "%.400s[%llu]", path, (unsigned long long)i);
}

/* True if the user asked to leave out values of unknown classes, and this is one. */
static bool clt_dropped(const ckpt_claim_work *w, const ckpt_value *a)
{
    return w->to->claim.drop_objects && (a->kind == CKPT_V_OBJECT || a->kind == CKPT_V_GLOBAL);
}

static int clt_value(ckpt_claim_work *w, const char *path, const ckpt_value *a, const ckpt_value *b,
                     unsigned depth);

/* Compare the state of a known object (a loss scaler) as a tree. */
static int clt_object(ckpt_claim_work *w, const char *path, const ckpt_value *a,
                      const ckpt_value *b, unsigned depth)
{
    const ckpt_object *x = a->as.object, *y = b->as.object;
    bool equal = false;
    int rc = ckpt_value_compare(&equal, x->cls, y->cls, CLT_NODES, w->err);

    if (rc == CKPT_OK && equal && x->state && y->state && ckpt_value_map(x->state).n > 0)
        return clt_value(w, path, x->state, y->state, depth + 1);
    if (rc == CKPT_OK)
        rc = ckpt_value_compare(&equal, a, b, CLT_NODES, w->err);
    if (rc != CKPT_OK || !equal)
        return rc == CKPT_OK ? ckpt_claim_differs(w, path, "is another object") : rc;
    w->to->claim.n_carried++;
    return CKPT_OK;
}

static int clt_dict(ckpt_claim_work *w, const char *path, const ckpt_value *a, const ckpt_value *b,
                    unsigned depth)
{
    ckpt_dict x = ckpt_value_map(a), y = ckpt_value_map(b);
    char below[CKPT_CLAIM_PATH];
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < x.n; i++) {
        clt_join(below, path, x.at[i].key, i);
        rc = clt_value(w, below, x.at[i].value, clt_partner(&x, i, &y), depth + 1);
    }
    return rc;
}

static int clt_seq(ckpt_claim_work *w, const char *path, const ckpt_value *a, const ckpt_value *b,
                   unsigned depth)
{
    ckpt_seq x = ckpt_value_seq(a), y = ckpt_value_seq(b);
    char below[CKPT_CLAIM_PATH];
    int rc = CKPT_OK;

    if (x.n != y.n && !w->to->claim.drop_objects)
        return ckpt_claim_differs(w, path, "has another length");
    for (uint64_t i = 0; rc == CKPT_OK && i < x.n; i++) {
        clt_join(below, path, NULL, i);
        rc = clt_value(w, below, x.at[i], i < y.n ? y.at[i] : NULL, depth + 1);
    }
    return rc;
}

static bool clt_is_dict(const ckpt_value *v)
{
    return v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT;
}

/* True for a list or tuple, but not for a set, because sets have no order. */
static bool clt_is_seq(const ckpt_value *v)
{
    return v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE;
}

static int clt_value(ckpt_claim_work *w, const char *path, const ckpt_value *a, const ckpt_value *b,
                     unsigned depth)
{
    bool close = depth < CLT_DEPTH && w->budget > 0, equal = false;

    if (!a)
        return CKPT_OK;
    if (!b || b->kind == CKPT_V_NONE) {
        if (ckpt_claim_leaves(a) == 0)
            return CKPT_OK;
        if (clt_dropped(w, a)) {
            w->to->claim.n_left_out++;
            return ckpt_map_note(w->to, CKPT_INFO, w->err,
                                 "left out: %s: an object of an unknown class", path);
        }
        return ckpt_claim_differs(w, path, "is not there");
    }
    w->budget -= close;
    if (close && clt_is_dict(a) && clt_is_dict(b))
        return clt_dict(w, path, a, b, depth);
    if (close && clt_is_seq(a) && clt_is_seq(b))
        return clt_seq(w, path, a, b, depth);
    if (close && a->kind == CKPT_V_OBJECT && b->kind == CKPT_V_OBJECT)
        return clt_object(w, path, a, b, depth);
    int rc = ckpt_value_compare(&equal, a, b, CLT_NODES, w->err);
    if (rc != CKPT_OK || !equal)
        return rc == CKPT_OK ? ckpt_claim_differs(w, path, "has another value") : rc;
    w->to->claim.n_carried += ckpt_claim_leaves(a);
    return CKPT_OK;
}

int ckpt_claim_tree(ckpt_claim_work *w, const char *path, const ckpt_value *a, const ckpt_value *b)
{
    return clt_value(w, path, a, b, 0);
}

/* ---- counting ---- */

/*
 * Count the leaves below v as clt_value() would compare them. The budget ends the walk of a tree
 * with shared branches, because it could take exponential time.
 */
static uint64_t clt_count(const ckpt_value *v, unsigned depth, uint64_t *budget)
{
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq seq = ckpt_value_seq(v);
    uint64_t n = 0;

    if (!v || *budget == 0)
        return 0;
    (*budget)--;
    if (v->kind == CKPT_V_OBJECT && v->as.object->state && depth < CLT_DEPTH)
        return clt_count(v->as.object->state, depth + 1, budget);
    if (v->kind == CKPT_V_SET || v->kind == CKPT_V_FROZENSET)
        return seq.n;
    if (depth >= CLT_DEPTH || (!clt_is_dict(v) && !clt_is_seq(v)))
        return v->kind != CKPT_V_NONE;
    for (uint64_t i = 0; i < map.n; i++)
        n += clt_count(map.at[i].value, depth + 1, budget);
    for (uint64_t i = 0; i < seq.n; i++)
        n += clt_count(seq.at[i], depth + 1, budget);
    return n;
}

uint64_t ckpt_claim_leaves(const ckpt_value *v)
{
    uint64_t budget = CLT_NODES;

    return clt_count(v, 0, &budget);
}

static uint64_t clt_root_leaves(const ckpt_value *root)
{
    ckpt_dict map = ckpt_value_map(root);
    uint64_t n = 0;

    for (uint64_t i = 0; i < map.n; i++)
        n += clt_is_layout(map.at[i].key) ? 0 : ckpt_claim_leaves(map.at[i].value);
    return n;
}

uint64_t ckpt_claim_file_leaves(const ckpt_state *s)
{
    const ckpt_value *full = ckpt_value_get(s->model, "optimizer");
    ckpt_dict module = ckpt_value_map(ckpt_value_get(s->model, "module"));
    uint64_t n = clt_root_leaves(s->model) + clt_root_leaves(s->optim) + clt_root_leaves(full);

    for (uint64_t i = 0; i < module.n; i++) {
        if (module.at[i].value->kind != CKPT_V_TENSOR)
            n += ckpt_claim_leaves(module.at[i].value);
    }
    return n + clt_root_leaves(ckpt_value_get(s->optim, "optimizer_state_dict"));
}

/* ---- the files ---- */

/* Compare all keys of a root except those of the layout. */
static int clt_root(ckpt_claim_work *w, const ckpt_value *a, const ckpt_value *b)
{
    ckpt_dict x = ckpt_value_map(a), y = ckpt_value_map(b);
    char path[CKPT_CLAIM_PATH];
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < x.n; i++) {
        if (clt_is_layout(x.at[i].key))
            continue;
        clt_join(path, "", x.at[i].key, i);
        rc = clt_value(w, path, x.at[i].value, clt_partner(&x, i, &y), 0);
    }
    return rc;
}

/*
 * Compare the module's entries that are no tensors of the map: values, and unlisted names, which
 * the written module must have too.
 */
static int clt_module(ckpt_claim_work *w, const ckpt_state *of, const ckpt_value *a,
                      const ckpt_value *b)
{
    ckpt_dict x = ckpt_value_map(a), y = ckpt_value_map(b);
    char path[CKPT_CLAIM_PATH];
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < x.n; i++) {
        const ckpt_value *key = x.at[i].key, *v = x.at[i].value;
        clt_join(path, "module", key, i);
        if (v->kind != CKPT_V_TENSOR)
            rc = clt_value(w, path, v, clt_partner(&x, i, &y), 0);
        else if (ckpt_state_index(w->from, of, key) == SIZE_MAX && !clt_partner(&x, i, &y))
            rc = ckpt_claim_differs(w, path, "is not there");
    }
    return rc;
}

/*
 * Without ZeRO the optimizer and the loss scale are one dict of the model file. The written ZeRO
 * optimizer may have its values in its own dict or in its loss scaler.
 */
static int clt_full(ckpt_claim_work *w, const ckpt_value *a, const ckpt_value *b)
{
    const ckpt_value *scaler = ckpt_value_get(b, "loss_scaler");
    const ckpt_value *inner =
        scaler && scaler->kind == CKPT_V_OBJECT ? scaler->as.object->state : NULL;
    ckpt_dict x = ckpt_value_map(a);
    char path[CKPT_CLAIM_PATH];
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < x.n; i++) {
        const ckpt_value *key = x.at[i].key, *there = NULL;
        if (key->kind != CKPT_V_STR || clt_is_layout(key))
            continue;
        there = ckpt_value_get(b, key->as.text.at);
        there = there ? there : ckpt_value_get(inner, key->as.text.at);
        clt_join(path, "optimizer", key, i);
        rc = clt_value(w, path, x.at[i].value, there, 0);
    }
    return rc;
}

int ckpt_claim_files(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b)
{
    const ckpt_value *optim = ckpt_value_get(b->optim, "optimizer_state_dict");
    const ckpt_value *full = ckpt_value_get(a->model, "optimizer");
    int rc = clt_root(w, a->model, b->model);

    if (rc == CKPT_OK)
        rc = clt_root(w, a->optim, b->optim);
    if (rc == CKPT_OK)
        rc = clt_root(w, ckpt_value_get(a->optim, "optimizer_state_dict"), optim);
    if (rc == CKPT_OK)
        rc = clt_module(w, a, ckpt_value_get(a->model, "module"),
                        ckpt_value_get(b->model, "module"));
    if (rc == CKPT_OK && full)
        rc = clt_full(w, full, optim ? optim : ckpt_value_get(b->model, "optimizer"));
    return rc;
}
