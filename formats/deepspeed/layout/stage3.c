/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage3.c: computes the extents of parameters from the ranks' partitions (stage 3).
 *
 * A rank's flat tensor of a sub-group is the concatenation of its partitions of the sub-group's
 * parameters.  The padding after the last rank's partition is uninitialised memory, so no extent
 * may include it.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/layout/stage3.h"
#include "libckpt/base/dtype.h"

/*
 * Set the length of rank 0's empty tensors of groups in swap files.  Only param_shapes with one
 * dict per sub-group gives it.
 */
static int dsz_swapped_lengths(const ckpt_ds_job *job, const ckpt_ds_folder *dir,
                               const ckpt_ds_head *head, ckpt_ds_layout *layout)
{
    ckpt_seq shapes = ckpt_value_seq(ckpt_value_get(head->model.root, "param_shapes"));
    bool known = layout->group.n > 0 && shapes.n == layout->group.n;
    ckpt_ds_flat *flat = layout->column.at[0].at;

    for (size_t g = 0; g < layout->group.n; g++) {
        // Releases before 0.13.0 name swap files by memory addresses of the process.
        if (!layout->group.at[g].swapped && dir->offloaded && flat[layout->group.at[g].part].n == 0)
            return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                             "%s: sub-group %zu was offloaded to NVMe, and nothing says which file "
                             "in offloaded_tensors holds it",
                             head->optim.path, g);
        if (layout->group.at[g].swapped && !known)
            return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                             "%s: sub-group %zu was offloaded to NVMe, and param_shapes do not say "
                             "which parameters it "
                             "holds",
                             head->optim.path, g);
    }
    for (size_t i = 0; known && i < layout->params.n; i++) {
        const ckpt_ds_param *p = &layout->params.at[i];
        // param_shapes may belong to another file
        if (p->group >= layout->group.n)
            return ckpt_fail(job->err, CKPT_EMISMATCH,
                             "%s: %.200s is listed in sub-group %" PRIu32
                             ", but there are only %zu",
                             head->optim.path, p->name, p->group, layout->group.n);
        const ckpt_ds_group *g = &layout->group.at[p->group];
        uint64_t *n = &flat[g->part].n;
        if (g->swapped && !ckpt_add(*n, ckpt_zero_partition(p->numel, head->world), n))
            return ckpt_fail(job->err, CKPT_EFORMAT,
                             "%s: the size of sub-group %" PRIu32 " overflows", head->optim.path,
                             p->group);
    }
    return CKPT_OK;
}

/*
 * Assign the parameters to rank 0's flat tensors in order: a partition never crosses the end of
 * one, and together they fill them.
 */
int ckpt_ds_stage3_begin(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                         ckpt_ds_layout *layout)
{
    const ckpt_ds_flat *flat = layout->column.at[0].at;
    uint64_t at = 0;
    size_t g = 0;
    int rc = dsz_swapped_lengths(job, dir, head, layout);

    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; i < layout->params.n; i++) {
        ckpt_ds_param *p = &layout->params.at[i];
        uint64_t n = ckpt_zero_partition(p->numel, head->world);
        while (n > 0 && g < layout->group.n && at == flat[layout->group.at[g].part].n) {
            g++;
            at = 0;
        }
        if (n > 0 && (g == layout->group.n || n > flat[layout->group.at[g].part].n - at))
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: param_shapes ask for a partition of %" PRIu64
                                   " elements for %.200s, but the "
                                   "flat groups of rank 0 end before: model and optimizer files "
                                   "are from different runs",
                                   head->optim.path, n, p->name);
        p->group = (uint32_t)(g < layout->group.n ? g : 0);
        p->at = n ? at : 0;
        at += n;
    }
    for (; g < layout->group.n; g++, at = 0) {
        if (flat[layout->group.at[g].part].n != at)
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: sub-group %zu has %" PRIu64
                                   " elements on rank 0, param_shapes account for "
                                   "%" PRIu64 ": model and optimizer files are from different runs",
                                   head->optim.path, g, flat[layout->group.at[g].part].n, at);
    }
    return CKPT_OK;
}

/* The rank with the flat tensor at index `at` of a group; tensors are sorted by lane. */
static uint32_t dsz_rank(const ckpt_ds_group *g, uint32_t at)
{
    return g->lanes > 1 ? at / g->n_parts + at % g->n_parts * g->lanes : at;
}

int ckpt_ds_stage3_check(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                         const ckpt_ds_layout *layout)
{
    for (size_t g = 0; g < layout->group.n; g++) {
        const ckpt_ds_flat *flat = &layout->column.at[0].at[layout->group.at[g].part];
        for (uint32_t r = 1; r < head->world; r++) {
            // dtype is unset if the file was unreadable, which is already reported
            if (flat[r].n == flat[0].n || flat[r].dtype == CKPT_DTYPE_NONE)
                continue;
            int rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                                     "%s: sub-group %zu has %" PRIu64 " elements on rank %" PRIu32
                                     ", %" PRIu64 " on "
                                     "rank 0: the shard is from another run",
                                     dir->optims.at[dsz_rank(&layout->group.at[g], r)].path, g,
                                     flat[r].n, dsz_rank(&layout->group.at[g], r), flat[0].n);
            if (rc != CKPT_OK)
                return rc;
        }
    }
    return CKPT_OK;
}

int ckpt_ds_stage3_holds(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                         const ckpt_ds_column *c, size_t group, bool *holds)
{
    assert(c && holds && group < layout->group.n);
    const ckpt_ds_group *g = &layout->group.at[group];
    uint32_t absent = 0, wrong = 0;

    for (uint32_t r = 0; r < head->world; r++) {
        const ckpt_ds_flat *f = &c->at[g->part + r];
        if (f->dtype == CKPT_DTYPE_NONE)
            absent++;
        else if (f->n != layout->column.at[0].at[g->part + r].n)
            wrong++;
    }
    *holds = absent + wrong == 0;
    if (*holds || absent == head->world || (absent == 0 && wrong == head->world))
        return CKPT_OK;
    return ckpt_ds_problem(job, CKPT_EMISMATCH,
                           "%s: optimizer state %s of sub-group %zu: %" PRIu32 " of %" PRIu32
                           " ranks lack it or have it "
                           "in another length",
                           job->map->path, c->name, group, absent + wrong, head->world);
}

int ckpt_ds_stage3_parts(const ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_flat *flat,
                         const ckpt_parts **out)
{
    assert(flat && out && head->world > 0);
    ckpt_part *part = ckpt_alloc(head->world * sizeof *part);

    if (!part)
        return ckpt_fail_memory(job->err);
    for (uint32_t r = 0; r < head->world; r++)
        part[r] = (ckpt_part){.source = flat[r].n ? flat[r].source : 0, .at = flat[r].at};
    int rc = ckpt_map_parts(job->map, part, head->world, out, job->err);
    ckpt_free(part);
    return rc;
}

int ckpt_ds_stage3_back(const ckpt_ds_job *job, const ckpt_ds_flat *flat, const ckpt_parts *parts,
                        uint64_t at, ckpt_tensor *t)
{
    assert(flat && parts && t);
    const uint64_t item = ckpt_dtype_get((ckpt_dtype)flat->dtype)->bits / 8;
    const ckpt_cut cut = {.parts = parts,
                          .at = at * item,
                          .count = ckpt_zero_partition(t->n_elems, parts->n),
                          .stride = (int64_t)item};
    uint64_t cursor = 0;
    ckpt_zero_run run;

    while (ckpt_zero_param_next(t->n_elems, parts->n, &cursor, &run)) {
        const ckpt_ds_flat *f = &flat[run.rank];
        if (item == 0 || f->dtype != flat->dtype || !ckpt_within(at, run.count, f->n))
            return ckpt_fail(job->err, CKPT_EMISMATCH,
                             "%s: a flat tensor of %" PRIu64 " elements lacks elements %" PRIu64
                             " to %" PRIu64,
                             job->map->path, f->n, at, at + run.count);
    }
    return t->n_elems ? ckpt_map_cut(job->map, t, &cut, job->err) : CKPT_OK;
}

int ckpt_ds_stage3_extents(const ckpt_ds_job *job, const ckpt_ds_layout *layout,
                           ckpt_ds_boxes *boxes, const ckpt_ds_column *c, const ckpt_ds_param *p)
{
    assert(boxes && c && p && p->group < layout->group.n);
    const ckpt_ds_group *g = &layout->group.at[p->group];
    const size_t lane = (size_t)(p - &layout->params.at[g->first]) / g->n;
    const ckpt_ds_flat *flat = &c->at[g->part + lane * g->n_parts];
    // The range of this expert in the fused parameter; no overflow: the product was checked.
    const uint64_t from = p->numel * p->in, to = from + p->numel, all = p->numel * p->fused;
    uint64_t cursor = 0;
    ckpt_zero_run run;
    int rc = CKPT_OK;

    boxes->extent.n = boxes->axis.n = 0;
    while (rc == CKPT_OK && ckpt_zero_param_next(all, g->n_parts, &cursor, &run)) {
        uint64_t first = run.first > from ? run.first : from;
        uint64_t end = run.first + run.count < to ? run.first + run.count : to;
        if (first < end)
            rc = ckpt_ds_extent_add(job, boxes, &flat[run.rank], p->at + run.at + first - run.first,
                                    first - from, end - first);
    }
    return rc;
}
