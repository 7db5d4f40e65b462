/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locality.c: adds up a job's bytes by the nodes that see their files.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/dist/run/locality.h"
#include "libckpt/map/join.h"
#include "libckpt/map/nest.h"

/* Context of one call of ckpt_join. */
typedef struct nr_walk {
    ckpt_near *near;
    uint64_t item; /* bytes of one element of the visited tensor */
    double weight; /* part of each visited byte that counts; below 1 inside nested sources */
    unsigned depth;
} nr_walk;

static int nr_interval(const nr_walk *w, const ckpt_tensor *t, uint64_t first, uint64_t count,
                       ckpt_err *err);

/* ---- preparation ---- */

/* List the nodes that see one file; returns their number if that is not every node. */
static uint32_t nr_list(ckpt_near *n, size_t file, const uint8_t *sees, uint32_t *node)
{
    uint32_t count = 0;

    for (unsigned i = 0; i < n->n_nodes; i++)
        count += sees[file * n->n_nodes + i] != 0;
    n->all[file] = count == n->n_nodes;
    if (n->all[file])
        return 0;
    for (unsigned i = 0; node && i < n->n_nodes; i++) {
        if (sees[file * n->n_nodes + i])
            *node++ = i;
    }
    return count;
}

int ckpt_near_init(ckpt_near *out, const ckpt_plan *plan, const uint8_t *sees, unsigned n_nodes,
                   ckpt_err *err)
{
    assert(out && plan && sees && n_nodes > 0);
    size_t n_files = plan->from->files.n;
    uint64_t total = 0;

    *out = (ckpt_near){.plan = plan, .n_nodes = n_nodes};
    out->all = ckpt_alloc(n_files + 1);
    out->first = ckpt_alloc((n_files + 1) * sizeof *out->first);
    out->bytes = ckpt_alloc(n_nodes * sizeof *out->bytes);
    out->touched = ckpt_alloc(n_nodes * sizeof *out->touched);
    if (!out->all || !out->first || !out->bytes || !out->touched)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < n_files; i++) {
        total += nr_list(out, i, sees, NULL);
        if (total > UINT32_MAX)
            return ckpt_fail(err, CKPT_ELIMIT,
                             "the list of files that each machine sees is too long");
        out->first[i + 1] = (uint32_t)total;
    }
    out->node = ckpt_alloc((total + 1) * sizeof *out->node);
    if (!out->node)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < n_files; i++)
        (void)nr_list(out, i, sees, out->node + out->first[i]);
    return CKPT_OK;
}

void ckpt_near_free(ckpt_near *n)
{
    ckpt_free(n->all);
    ckpt_free(n->first);
    ckpt_free(n->node);
    ckpt_free(n->bytes);
    ckpt_free(n->touched);
    *n = (ckpt_near){0};
}

/* ---- one job ---- */

/* Count bytes that are read from a file. */
static int nr_file(ckpt_near *n, uint32_t file, uint64_t bytes, ckpt_err *err)
{
    if (file >= n->plan->from->files.n || n->all[file])
        return CKPT_OK;
    if (n->first[file] == n->first[file + 1])
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: the output needs values from this file, but no machine sees it",
                         n->plan->from->files.at[file].path);
    n->n_bytes += bytes;
    for (uint32_t i = n->first[file]; i < n->first[file + 1] && bytes > 0; i++) {
        uint32_t node = n->node[i];

        if (n->bytes[node] == 0)
            n->touched[n->n_touched++] = node;
        n->bytes[node] += bytes;
    }
    return CKPT_OK;
}

/*
 * Count the bytes of the tensors inside bytes from..end-1 of a nested source, with `weight`: the
 * same part of each tensor.
 */
static int nr_nested(const nr_walk *w, const ckpt_source *s, uint64_t from, uint64_t end,
                     double weight, ckpt_err *err)
{
    const nr_walk inner = {.near = w->near, .weight = weight, .depth = w->depth + 1};
    const ckpt_tensor *in;
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && (in = ckpt_source_input(s, i)) != NULL; i++) {
        double per = (double)in->n_elems / (double)s->n_bytes;
        uint64_t first = (uint64_t)((double)from * per), stop = in->n_elems;

        if (end < s->n_bytes)
            stop = (uint64_t)((double)end * per + 0.5);
        if (first < stop)
            rc = nr_interval(&inner, in, first, stop - first, err);
    }
    return rc;
}

/* ckpt_piece_fn: count one piece of the join. */
static int nr_piece(void *ctx, const ckpt_piece *p, ckpt_err *err)
{
    const nr_walk *w = ctx;
    const ckpt_sources *all = &w->near->plan->from->sources;
    const ckpt_source *s = p->source < all->n ? &all->at[p->source] : NULL;
    uint64_t bytes = p->n_elems * w->item, span = w->item;

    if (s && s->kind == CKPT_SOURCE_FILE)
        return nr_file(w->near, s->file,
                       w->weight < 1 ? (uint64_t)((double)bytes * w->weight) : bytes, err);
    // Other faults of a source are reported when it is read.
    if (!s || !ckpt_source_nested(s) || w->depth >= CKPT_NEST_MAX || bytes == 0)
        return CKPT_OK;
    // Visit a box from its first to its last byte.
    for (uint32_t i = 0; i < p->ndim; i++)
        span += (p->axis[i].count - 1) * (uint64_t)p->axis[i].from_by;
    if (!ckpt_within(p->at, span, s->n_bytes))
        return CKPT_OK;
    return nr_nested(w, s, p->at, p->at + span, w->weight * (double)bytes / (double)span, err);
}

/* Count the bytes of a region of one slice or copy. */
static int nr_join(const nr_walk *w, const ckpt_tensor *t, const ckpt_axis *region, unsigned n_axes,
                   ckpt_err *err)
{
    nr_walk own = *w;

    own.item = ckpt_dtype_get(t->dtype)->bytes;
    return ckpt_join(t, region, n_axes, nr_piece, &own, err);
}

/*
 * Count the bytes of a tensor's elements inside a source, in whole blocks, with copies and addends.
 */
static int nr_interval(const nr_walk *w, const ckpt_tensor *t, uint64_t first, uint64_t count,
                       ckpt_err *err)
{
    int rc = CKPT_OK;

    t = t->owner ? t->owner : t;
    for (const ckpt_tensor *slice = t; rc == CKPT_OK && slice; slice = slice->addend) {
        for (const ckpt_tensor *twin = slice; rc == CKPT_OK && twin; twin = twin->twin) {
            uint64_t per = ckpt_dtype_get(twin->dtype)->per, from = first - first % per;
            uint64_t end = first + count + (per - (first + count) % per) % per;
            ckpt_axis region = {from, (end < twin->n_elems ? end : twin->n_elems) - from, 0};

            rc = nr_join(w, twin, &region, 1, err);
        }
    }
    return rc;
}

int ckpt_near_job(ckpt_near *n, const ckpt_job *job, ckpt_err *err)
{
    assert(n && n->plan && job);
    const nr_walk w = {.near = n, .weight = 1};
    ckpt_job_view v;
    int rc = CKPT_OK;

    for (uint32_t i = 0; i < n->n_touched; i++)
        n->bytes[n->touched[i]] = 0;
    n->n_touched = 0;
    n->n_bytes = 0;
    ckpt_job_look(&v, n->plan, job);
    for (const ckpt_tensor *slice = v.origin; rc == CKPT_OK && slice; slice = slice->addend) {
        for (const ckpt_tensor *twin = slice; rc == CKPT_OK && twin; twin = twin->twin)
            rc = nr_join(&w, twin, v.region, v.n_axes, err);
    }
    return rc;
}
