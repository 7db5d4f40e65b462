/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunks.c: the chunks of a .metadata, which are kept as rows, one by one.
 */
#include <assert.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/index.h"

/* The numbers of a list; NULL: an object has none. */
static const uint64_t *dck_numbers(const ckpt_dcp_metadata *m, uint32_t list)
{
    return list != CKPT_INDEX_NONE ? m->list.at[list].at : NULL;
}

ckpt_dcp_place ckpt_dcp_place_of(const ckpt_dcp_metadata *m, size_t i)
{
    assert(m && i < m->chunk.n);
    const ckpt_dcp_entry *e = &m->entry.at[m->chunk.at[i].entry];

    return (ckpt_dcp_place){e->file, e->at, e->n};
}

ckpt_dcp_chunk ckpt_dcp_chunk_at(const ckpt_dcp_metadata *m, size_t i)
{
    assert(m && i < m->chunk.n);
    const ckpt_dcp_row *row = &m->chunk.at[i];

    return (ckpt_dcp_chunk){dck_numbers(m, row->start), dck_numbers(m, row->count),
                            ckpt_dcp_place_of(m, i)};
}

/* Append a list without a copy; CKPT_INDEX_NONE: no memory. */
static uint32_t dck_add_list(ckpt_dcp_metadata *m, const uint64_t *at, uint32_t n)
{
    ckpt_dcp_list *to = m->list.n < CKPT_INDEX_NONE / 2 ? ckpt_vec_push(&m->list) : NULL;

    if (!to)
        return CKPT_INDEX_NONE;
    *to = (ckpt_dcp_list){at, n};
    return (uint32_t)m->list.n - 1;
}

bool ckpt_dcp_add_chunk(ckpt_dcp_metadata *m, const ckpt_dcp_chunk *chunk, uint32_t ndim)
{
    assert(m && chunk && !chunk->start == !chunk->count);
    ckpt_dcp_row row = {CKPT_INDEX_NONE, CKPT_INDEX_NONE, (uint32_t)m->entry.n}, *to;
    ckpt_dcp_entry *entry = m->entry.n < CKPT_INDEX_NONE / 2 ? ckpt_vec_push(&m->entry) : NULL;

    if (!entry)
        return false;
    entry->at = chunk->place.at;
    entry->n = chunk->place.n;
    entry->file = chunk->place.file;
    if (chunk->start) {
        row.start = dck_add_list(m, chunk->start, ndim);
        row.count = dck_add_list(m, chunk->count, ndim);
        if (row.start == CKPT_INDEX_NONE || row.count == CKPT_INDEX_NONE)
            return false;
    }
    to = ckpt_vec_push(&m->chunk);
    if (to)
        *to = row;
    return to != NULL;
}

void ckpt_dcp_packed_rows(ckpt_extent *e, ckpt_axis *axis, const uint64_t *shape, uint32_t ndim,
                          uint64_t first, uint64_t n)
{
    uint64_t row = 1;

    for (uint32_t k = 1; k < ndim; k++)
        row *= shape[k]; // no overflow: at most the tensor's elements
    axis[0] = (ckpt_axis){first * row, n * row, 0};
    e->ndim = 1;
    e->axis = axis;
}

bool ckpt_dcp_is_empty(const ckpt_dcp_item *item, const ckpt_dcp_chunk *c)
{
    bool empty = false;

    for (uint32_t k = 0; k < item->ndim; k++)
        empty = empty || c->count[k] == 0;
    return empty;
}

void ckpt_dcp_metadata_free(ckpt_dcp_metadata *m)
{
    ckpt_vec_free(&m->item);
    ckpt_vec_free(&m->chunk);
    ckpt_vec_free(&m->list);
    ckpt_vec_free(&m->entry);
    ckpt_vec_free(&m->file);
    *m = (ckpt_dcp_metadata){0};
}
