/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boxes.c: assembles the extents of one tensor from pieces of flat tensors.
 */
#include "formats/deepspeed/layout/boxes.h"

#include <assert.h>
#include <inttypes.h>

#include "libckpt/base/dtype.h"

int ckpt_ds_extent_add(const ckpt_ds_job *job, ckpt_ds_boxes *boxes, const ckpt_ds_flat *from,
                       uint64_t at, uint64_t first, uint64_t count)
{
    assert(boxes && from && boxes->extent.n == boxes->axis.n);
    uint64_t item = ckpt_dtype_get((ckpt_dtype)from->dtype)->bits / 8;
    uint64_t byte = from->at + at * item;
    size_t n = boxes->extent.n;

    if (item == 0 || !ckpt_within(at, count, from->n))
        return ckpt_fail(job->err, CKPT_EMISMATCH,
                         "%s: a flat tensor of %" PRIu64 " elements lacks elements %" PRIu64
                         " to %" PRIu64,
                         job->map->path, from->n, at, at + count);
    if (n > 0) {
        ckpt_extent *e = &boxes->extent.at[n - 1];
        ckpt_axis *a = &boxes->axis.at[n - 1];
        if (e->source == from->source && a->start + a->count == first &&
            e->at + a->count * item == byte) {
            a->count += count;
            return CKPT_OK;
        }
    }
    ckpt_extent *e = ckpt_vec_push(&boxes->extent);
    ckpt_axis *a = e ? ckpt_vec_push(&boxes->axis) : NULL;
    if (!a)
        return ckpt_fail_memory(job->err);
    *e = (ckpt_extent){.source = from->source, .ndim = 1, .at = byte};
    *a = (ckpt_axis){.start = first, .count = count, .stride = (int64_t)item};
    return CKPT_OK;
}

int ckpt_ds_extent_back(const ckpt_ds_job *job, ckpt_ds_boxes *boxes, ckpt_tensor *t)
{
    assert(t && boxes->extent.n == boxes->axis.n);
    // the list of axes is complete, so its address no longer changes
    for (size_t i = 0; i < boxes->extent.n; i++)
        boxes->extent.at[i].axis = &boxes->axis.at[i];
    if (boxes->extent.n > UINT32_MAX)
        return ckpt_fail_memory(job->err);
    return ckpt_map_back(job->map, t, boxes->extent.at, (uint32_t)boxes->extent.n, job->err);
}

void ckpt_ds_boxes_free(ckpt_ds_boxes *boxes)
{
    ckpt_vec_free(&boxes->extent);
    ckpt_vec_free(&boxes->axis);
}

int ckpt_ds_flat_back(const ckpt_ds_job *job, const ckpt_ds_flat *from, uint64_t at, ckpt_tensor *t)
{
    ckpt_ds_boxes boxes = {0};
    int rc = t->n_elems ? ckpt_ds_extent_add(job, &boxes, from, at, 0, t->n_elems) : CKPT_OK;

    if (rc == CKPT_OK)
        rc = ckpt_ds_extent_back(job, &boxes, t);
    ckpt_ds_boxes_free(&boxes);
    return rc;
}
