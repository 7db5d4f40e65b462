/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap.c: stage 3 with NVMe offload: finds groups in swap files next to the shards.
 *
 * The optimizer file then holds an empty tensor with the attribute ds_id, "<first>_<last>" (0.13.0
 * and later).  <tag>/offloaded_tensors/rankNN/<ds_id>.tensor.swp has the elements, raw, in the
 * tensor's dtype, padded to the block of the asynchronous I/O; states are "<state>-<ds_id>".
 * Source: deepspeed/runtime/swap_tensor/optimizer_utils.py and runtime/engine.py, 0.19.8.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/layout/stage3.h"
#include "libckpt/base/dtype.h"

enum {
    /* limit of the padding in bytes; a block of the asynchronous I/O is far smaller */
    DSW_MAX_PAD = 1 << 20,
    DSW_MAX_ID = 64 /* bytes */
};

/* True for "<digits>_<digits>", DeepSpeed's form; other ids must not become a path. */
static bool dsw_is_id(const ckpt_text *t)
{
    uint64_t i = 0, digits = 0, parts = 0;

    for (; i < t->n && t->n <= DSW_MAX_ID; i++) {
        if (t->at[i] >= '0' && t->at[i] <= '9') {
            digits++;
        } else if (t->at[i] == '_' && digits && parts == 0) {
            parts++;
            digits = 0;
        } else {
            return false;
        }
    }
    return i == t->n && parts == 1 && digits > 0;
}

const char *ckpt_ds_swap_id(const ckpt_ds_job *job, const ckpt_value *v)
{
    const ckpt_tensor_value *t = v && v->kind == CKPT_V_TENSOR ? v->as.tensor : NULL;
    const ckpt_value *id =
        t && t->ndim == 1 && t->shape[0] == 0 ? ckpt_value_get(t->state, "ds_id") : NULL;

    if (!id || id->kind != CKPT_V_STR || !dsw_is_id(&id->as.text))
        return NULL;
    return ckpt_arena_string(job->map->arena, id->as.text.at, id->as.text.n);
}

/* Add a swap file; the flat tensor is at its beginning. */
static int dsw_file(const ckpt_ds_job *job, const char *path, ckpt_ds_flat *flat)
{
    ckpt_map_file file = {0};
    ckpt_source source = {.kind = CKPT_SOURCE_FILE};
    ckpt_io *io = NULL;
    uint64_t n_bytes = 0;
    int rc = ckpt_io_open(&io, path, job->err);

    if (rc != CKPT_OK)
        return rc;
    ckpt_io_identify(io, &file);
    uint64_t size = io->size;
    if (!ckpt_dtype_bytes((ckpt_dtype)flat->dtype, flat->n, &n_bytes) || size < n_bytes ||
        size - n_bytes >= DSW_MAX_PAD)
        rc = ckpt_fail(job->err, CKPT_EMISMATCH,
                       "%s: has %" PRIu64 " bytes, expected %" PRIu64
                       " and a little padding for %" PRIu64 " elements",
                       path, size, n_bytes, flat->n);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(job->map, &file, &source.file, job->err);
    ckpt_io_close(io);
    source.n_stored = source.n_bytes = n_bytes;
    flat->at = 0;
    return rc == CKPT_OK ? ckpt_map_add_source(job->map, &source, &flat->source, job->err) : rc;
}

int ckpt_ds_swap_bind(const ckpt_ds_job *job, const ckpt_ds_head *head,
                      const ckpt_ds_layout *layout, ckpt_ds_column *c)
{
    int rc = CKPT_OK;

    // check the state's name, because it becomes part of a path
    if (c->name && !ckpt_path_part_ok(c->name, strlen(c->name)))
        return CKPT_OK;
    for (size_t g = 0; g < layout->group.n; g++) {
        const ckpt_ds_group *group = &layout->group.at[g];
        for (uint32_t r = 0; rc == CKPT_OK && group->swapped && r < head->world; r++) {
            ckpt_ds_flat *flat = &c->at[group->part + r];
            if (flat->dtype == CKPT_DTYPE_NONE || (c->name && flat->n != 0))
                continue;
            flat->n = layout->column.at[0].at[group->part].n;
            const char *path = ckpt_arena_printf(
                job->map->arena, "%s/offloaded_tensors/rank%02" PRIu32 "/%s%s%s.tensor.swp",
                job->map->path, r, c->name ? c->name : "", c->name ? "-" : "", group->swapped);
            rc = path ? dsw_file(job, path, flat) : ckpt_fail_memory(job->err);
        }
    }
    return rc;
}
