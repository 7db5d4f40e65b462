/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage3.c: stage 3: from the ranks' partitions of every parameter to its extents.
 *
 * A rank's flat tensor of a sub-group is the concatenation of its partitions of the sub-group's
 * parameters.  The padding behind the last rank's partition is uninitialised memory: no extent ever
 * touches it.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/deepspeed.h"

/*
 * Give rank 0's empty tensors of the groups in swap files their length, which only param_shapes
 * tell: it has one dict per sub-group, and so the parameters still know theirs.
 */
static int dsz_swapped_lengths(ckpt_ds *ds)
{
    ckpt_seq shapes = ckpt_value_seq(ckpt_value_get(ds->model.root, "param_shapes"));
    bool known = ds->group.n > 0 && shapes.n == ds->group.n;
    ckpt_ds_flat *flat = ds->column.at[0].at;

    for (size_t g = 0; g < ds->group.n; g++) {
        // Releases before 0.13.0 name swap files by addresses in a process that is gone.
        if (!ds->group.at[g].swapped && ds->dir.offloaded && flat[ds->group.at[g].part].n == 0)
            return ckpt_fail(ds->err, CKPT_EUNSUPPORTED,
                             "%s: sub-group %zu was offloaded to NVMe, and nothing says which file "
                             "in offloaded_tensors holds it",
                             ds->optim.path, g);
        if (ds->group.at[g].swapped && !known)
            return ckpt_fail(ds->err, CKPT_EUNSUPPORTED,
                             "%s: sub-group %zu was offloaded to NVMe, and param_shapes do not say "
                             "which parameters it "
                             "holds",
                             ds->optim.path, g);
    }
    for (size_t i = 0; known && i < ds->params.n; i++) {
        const ckpt_ds_param *p = &ds->params.at[i];
        // the parameters may come from another file's param_shapes
        if (p->group >= ds->group.n)
            return ckpt_fail(ds->err, CKPT_EMISMATCH,
                             "%s: %.200s is said to be in sub-group %" PRIu32 " of %zu",
                             ds->optim.path, p->name, p->group, ds->group.n);
        const ckpt_ds_group *g = &ds->group.at[p->group];
        uint64_t *n = &flat[g->part].n;
        if (g->swapped && !ckpt_add(*n, ckpt_zero_partition(p->numel, ds->world), n))
            return ckpt_fail(ds->err, CKPT_EFORMAT,
                             "%s: the size of sub-group %" PRIu32 " overflows", ds->optim.path,
                             p->group);
    }
    return CKPT_OK;
}

/*
 * Walk the parameters over rank 0's flat tensors: a partition never straddles two of them, and
 * together they fill them.
 */
int ckpt_ds_part_begin(ckpt_ds *ds)
{
    const ckpt_ds_flat *flat = ds->column.at[0].at;
    uint64_t at = 0;
    size_t g = 0;
    int rc = dsz_swapped_lengths(ds);

    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; i < ds->params.n; i++) {
        ckpt_ds_param *p = &ds->params.at[i];
        uint64_t n = ckpt_zero_partition(p->numel, ds->world);
        while (n > 0 && g < ds->group.n && at == flat[ds->group.at[g].part].n) {
            g++;
            at = 0;
        }
        if (n > 0 && (g == ds->group.n || n > flat[ds->group.at[g].part].n - at))
            return ckpt_ds_problem(ds, CKPT_EMISMATCH,
                                   "%s: param_shapes ask for a partition of %" PRIu64
                                   " elements for %.200s, but the "
                                   "flat groups of rank 0 end before: model and optimizer files "
                                   "are from different runs",
                                   ds->optim.path, n, p->name);
        p->group = (uint32_t)(g < ds->group.n ? g : 0);
        p->at = n ? at : 0;
        at += n;
    }
    for (; g < ds->group.n; g++, at = 0) {
        if (flat[ds->group.at[g].part].n != at)
            return ckpt_ds_problem(ds, CKPT_EMISMATCH,
                                   "%s: sub-group %zu has %" PRIu64
                                   " elements on rank 0, param_shapes account for "
                                   "%" PRIu64 ": model and optimizer files are from different runs",
                                   ds->optim.path, g, flat[ds->group.at[g].part].n, at);
    }
    return CKPT_OK;
}

int ckpt_ds_part_check(ckpt_ds *ds)
{
    for (size_t g = 0; g < ds->group.n; g++) {
        const ckpt_ds_flat *flat = &ds->column.at[0].at[ds->group.at[g].part];
        for (uint32_t r = 1; r < ds->world; r++) {
            // Without a dtype: the file could not be read, which has been said.
            if (flat[r].n == flat[0].n || flat[r].dtype == CKPT_DTYPE_NONE)
                continue;
            int rc = ckpt_ds_problem(ds, CKPT_EMISMATCH,
                                     "%s: sub-group %zu has %" PRIu64 " elements on rank %" PRIu32
                                     ", %" PRIu64 " on "
                                     "rank 0: the shard is from another run",
                                     ds->dir.optims.at[r].path, g, flat[r].n, r, flat[0].n);
            if (rc != CKPT_OK)
                return rc;
        }
    }
    return CKPT_OK;
}

int ckpt_ds_part_holds(ckpt_ds *ds, const ckpt_ds_column *c, size_t group, bool *holds)
{
    const ckpt_ds_group *g = &ds->group.at[group];
    uint32_t absent = 0, wrong = 0;

    for (uint32_t r = 0; r < ds->world; r++) {
        const ckpt_ds_flat *f = &c->at[g->part + r];
        if (f->dtype == CKPT_DTYPE_NONE)
            absent++;
        else if (f->n != ds->column.at[0].at[g->part + r].n)
            wrong++;
    }
    *holds = absent + wrong == 0;
    if (*holds || absent == ds->world || (absent == 0 && wrong == ds->world))
        return CKPT_OK;
    return ckpt_ds_problem(ds, CKPT_EMISMATCH,
                           "%s: optimizer state %s of sub-group %zu: %" PRIu32 " of %" PRIu32
                           " ranks lack it or have it "
                           "in another length",
                           ds->dir.path, c->name, group, absent + wrong, ds->world);
}

/* The runs of numel elements over the ranks' flats, from element `at` of each. */
static int dsz_extents(ckpt_ds *ds, const ckpt_ds_flat *flat, uint64_t at, uint64_t numel)
{
    uint64_t cursor = 0;
    ckpt_zero_run run;
    int rc = CKPT_OK;

    ds->extent.n = ds->axis.n = 0;
    while (rc == CKPT_OK && ckpt_zero_param_next(numel, ds->world, &cursor, &run))
        rc = ckpt_ds_extent_add(ds, &flat[run.rank], at + run.at, run.first, run.count);
    return rc;
}

int ckpt_ds_part_extents(ckpt_ds *ds, const ckpt_ds_column *c, const ckpt_ds_param *p)
{
    return dsz_extents(ds, &c->at[ds->group.at[p->group].part], p->at, p->numel);
}

int ckpt_ds_part_frozen_extents(ckpt_ds *ds, size_t frozen)
{
    return dsz_extents(ds, &ds->fragment[frozen * ds->world], 0, ds->frozen.at[frozen].numel);
}

/* One fragment of one rank. */
static int dsz_fragment(ckpt_ds *ds, ckpt_ds_shard *s, size_t i, const ckpt_value *v)
{
    const ckpt_ds_param *p = &ds->frozen.at[i];
    ckpt_ds_flat *f = &ds->fragment[i * ds->world + s->rank];
    uint64_t want = ckpt_zero_partition(p->numel, ds->world);

    // A parameter without elements is kept in its own shape.
    if (p->numel == 0) {
        f->dtype = v && v->kind == CKPT_V_TENSOR ? (uint32_t)v->as.tensor->dtype : CKPT_F32;
        return CKPT_OK;
    }
    int rc = ckpt_ds_shard_flat(ds, s, v, p->name, f);
    if (rc == CKPT_OK && f->n != want)
        rc = ckpt_ds_problem(ds, CKPT_EMISMATCH,
                             "%s: the fragment of frozen parameter %.200s has %" PRIu64
                             " elements, expected %" PRIu64 " on each of %" PRIu32 " ranks",
                             s->path, p->name, f->n, want, ds->world);
    if (rc == CKPT_OK && f->dtype != ds->fragment[i * ds->world].dtype)
        rc = ckpt_ds_problem(ds, CKPT_EMISMATCH,
                             "%s: frozen parameter %.200s has another dtype than on rank 0",
                             s->path, p->name);
    return rc;
}

int ckpt_ds_part_frozen(ckpt_ds *ds, ckpt_ds_shard *s)
{
    ckpt_dict dict = ckpt_value_map(ckpt_value_get(s->root, "frozen_param_fragments"));
    int rc = CKPT_OK;

    if (ds->frozen.n && !ds->fragment) {
        ds->fragment = ckpt_alloc(ds->frozen.n * ds->world * sizeof *ds->fragment);
        if (!ds->fragment)
            return ckpt_fail_memory(ds->err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < ds->frozen.n; i++) {
        const ckpt_ds_param *p = &ds->frozen.at[i];
        // Every rank writes them in the order of frozen_param_shapes.
        const ckpt_pair *e = i < dict.n ? &dict.at[i] : NULL;
        if (e && e->key->kind == CKPT_V_STR && e->key->as.text.n == p->n_name &&
            memcmp(e->key->as.text.at, p->name, p->n_name) == 0)
            rc = dsz_fragment(ds, s, i, e->value);
        else
            rc = ckpt_ds_problem(ds, CKPT_EMISSING,
                                 "%s: no fragment of frozen parameter %.200s, which rank 0 lists",
                                 s->path, p->name);
    }
    return rc;
}
