/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.h: declares compact forms of the small objects that .metadata has for each chunk.
 *
 * There can be millions of them, so they are converted while the pickle is read: the three objects
 * of a chunk take 40 bytes, and less than one list of numbers, instead of 5000 bytes.
 */
#ifndef CKPT_FORMATS_DCP_PARTS_H
#define CKPT_FORMATS_DCP_PARTS_H

#include "formats/dcp/dcp.h"
#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

typedef enum ckpt_dcp_part_kind {
    CKPT_DCP_BOX, /* ChunkStorageMetadata: offsets, sizes; a row of ckpt_dcp_parts.box */
    CKPT_DCP_KEY, /* MetadataIndex: fqn, offset; a row of ckpt_dcp_metadata.entry */
    CKPT_DCP_INFO /* _StorageInfo: relative_path, offset, length; such a row, too */
} ckpt_dcp_part_kind;

/* Sizes and offsets of a chunk: indexes in ckpt_dcp_metadata.list. */
typedef struct ckpt_dcp_box_row {
    uint32_t start, count;
} ckpt_dcp_box_row;

CKPT_VEC(ckpt_dcp_box_rows, ckpt_dcp_box_row);
CKPT_VEC(ckpt_dcp_texts, ckpt_text);

typedef struct ckpt_dcp_parts {
    ckpt_arena *kept;       /* for lists and texts */
    ckpt_dcp_metadata *out; /* gets lists and entries */
    ckpt_dcp_box_rows box;
    ckpt_dcp_texts text; /* unique */
    ckpt_index by_text, by_list;
    /* the last name and the last file: names often follow in the same order, files repeat */
    uint32_t last_name, last_file;
    uint32_t first_list; /* index of the first list of this .metadata */
    /* the last lists: sizes repeat, and tensors of one shape have the same offsets */
    uint32_t last_size, last_start, last_offset;
    bool open;         /* the last entry is a KEY whose INFO was not read yet */
    size_t n_others;   /* number of unknown members of all parts */
    const char *other; /* name of the first; NULL: none, or no memory */
    bool no_memory;    /* a part was refused for lack of memory, and so are all later ones */
} ckpt_dcp_parts;

/* An attribute of an object, from the state given to BUILD; NULL if it is absent or None. */
const ckpt_value *ckpt_dcp_attr(const ckpt_object *o, const char *name);

/* Read sizes or offsets, one per axis, into an array; false: v is not a list of them. */
bool ckpt_dcp_numbers(uint64_t out[CKPT_MAX_DIM], uint32_t *n, const ckpt_value *v);

/*
 * The index of a list of numbers in parts->out->list, entered if new; CKPT_INDEX_NONE: no memory.
 * guess: index of a list that is probably the same, or precedes it
 */
uint32_t ckpt_dcp_enter_list(ckpt_dcp_parts *parts, const uint64_t *at, uint32_t n, uint32_t guess);

/* The number of a text in parts->text, or CKPT_INDEX_NONE. */
uint32_t ckpt_dcp_text(const ckpt_dcp_parts *parts, const ckpt_text *text);

/* ckpt_pickle_opts.take with the parts as ctx: false for objects that are not valid parts. */
bool ckpt_dcp_take(void *ctx, const ckpt_object *o, int64_t *number);

/*
 * The row of the part for a value, converted now if needed; CKPT_INDEX_NONE: it is not a valid part
 * of this kind.
 */
uint32_t ckpt_dcp_part_of(ckpt_dcp_parts *parts, const ckpt_value *v, ckpt_dcp_part_kind kind);

/*
 * The number of values that stand in one value of the pickle: several if it is several parts, else
 * one; and each of them, a copy.
 */
static inline uint64_t ckpt_dcp_n_parts(const ckpt_value *v)
{
    return v->kind == CKPT_V_INT && v->state && v->as.taken.n > 0 ? v->as.taken.n : 1;
}

static inline ckpt_value ckpt_dcp_nth_part(const ckpt_value *v, uint64_t i)
{
    ckpt_value one = *v;

    if (i < ckpt_dcp_n_parts(v) && ckpt_dcp_n_parts(v) > 1) {
        one.as.taken.first += (int64_t)i;
        one.as.taken.n = 0;
    }
    return one;
}

/* Free all but what `out` and the arena hold. */
void ckpt_dcp_parts_free(ckpt_dcp_parts *parts);

#endif
