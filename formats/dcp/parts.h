/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.h: declares compact forms of the small objects that .metadata has for each chunk.
 *
 * There can be millions of them, so they are converted while the pickle is read, to about 50 bytes
 * each instead of 1800.
 */
#ifndef CKPT_FORMATS_DCP_PARTS_H
#define CKPT_FORMATS_DCP_PARTS_H

#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

typedef enum ckpt_dcp_part_kind {
    CKPT_DCP_BOX, /* ChunkStorageMetadata: offsets, sizes */
    CKPT_DCP_KEY, /* MetadataIndex: fqn, offset */
    CKPT_DCP_INFO /* _StorageInfo: relative_path, offset, length */
} ckpt_dcp_part_kind;

typedef struct ckpt_dcp_part {
    uint8_t kind;  /* ckpt_dcp_part_kind */
    uint8_t n;     /* axes of BOX and KEY; KEY of an object: 0 */
    uint32_t text; /* index in ckpt_dcp_parts.text: the name of KEY, the file of INFO */
    union {
        struct {
            const uint64_t *start, *count; /* elements; KEY has no count */
        } box;
        struct {
            uint64_t at, n;
        } bytes;
    } as;
} ckpt_dcp_part;

CKPT_VEC(ckpt_dcp_part_list, ckpt_dcp_part);
CKPT_VEC(ckpt_dcp_texts, ckpt_text);

/* Numbers of a part that later parts may share; at NULL: none yet. */
typedef struct ckpt_dcp_numbers_of {
    const uint64_t *at;
    uint32_t n;
} ckpt_dcp_numbers_of;

typedef struct ckpt_dcp_parts {
    ckpt_arena *kept;    /* for boxes and texts */
    ckpt_arena *scratch; /* for the offsets of KEYs */
    ckpt_dcp_part_list part;
    ckpt_dcp_texts text; /* unique */
    ckpt_index by_text;
    /* the last name and the last file: names often follow in the same order, files repeat */
    uint32_t last_name, last_file;
    ckpt_dcp_numbers_of last_sizes, last_offset; /* of the last BOX and KEY */
    size_t n_others;                             /* number of unknown members of all parts */
    const char *other;                           /* name of the first; NULL: none, or no memory */
    bool no_memory; /* a part was refused for lack of memory, and so are all later ones */
} ckpt_dcp_parts;

/* An attribute of an object, from the state given to BUILD; NULL if it is absent or None. */
const ckpt_value *ckpt_dcp_attr(const ckpt_object *o, const char *name);

/* Read sizes or offsets, one per axis, into an arena; false: v is not a list of them, or no
 * memory (parts->no_memory). */
bool ckpt_dcp_numbers(ckpt_dcp_parts *parts, ckpt_arena *arena, const ckpt_value *v,
                      const uint64_t **out, uint32_t *n);

/* The number of a text in parts->text, or CKPT_INDEX_NONE. */
uint32_t ckpt_dcp_text(const ckpt_dcp_parts *parts, const ckpt_text *text);

/* ckpt_pickle_opts.take with the parts as ctx: false for objects that are not valid parts. */
bool ckpt_dcp_take(void *ctx, const ckpt_object *o, int64_t *number);

/* The part for a value, converted now if needed; NULL if it is not a valid part of this kind. */
const ckpt_dcp_part *ckpt_dcp_part_of(ckpt_dcp_parts *parts, const ckpt_value *v,
                                      ckpt_dcp_part_kind kind);

/*
 * The number of values that stand in one value of the pickle: several if it is several parts, else
 * one; and each of them, a copy.
 */
uint64_t ckpt_dcp_n_parts(const ckpt_value *v);
ckpt_value ckpt_dcp_nth_part(const ckpt_value *v, uint64_t i);

/* Free the lists, and the scratch arena; the kept one is the caller's. */
void ckpt_dcp_parts_free(ckpt_dcp_parts *parts);

#endif
