/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.h: defines sources whose bytes are the values of tensors (CKPT_SOURCE_TENSOR), or are
 * computed from them (CKPT_SOURCE_MADE).
 *
 * Extents over such a source are like any others: offsets are bytes of its dense row-major
 * elements. The code that gathers them reads the inner tensors like any tensor, so that CRCs of
 * their records are checked and their copies compared (copy/values.h).
 */
#ifndef CKPT_MAP_NEST_H
#define CKPT_MAP_NEST_H

#include "libckpt/map/map.h"

/* The deepest nesting of sources; the limit also ends cycles. */
#define CKPT_NEST_MAX 8u

/* True for sources whose bytes come from tensors. */
static inline bool ckpt_source_nested(const ckpt_source *s)
{
    return s->kind == CKPT_SOURCE_TENSOR || s->kind == CKPT_SOURCE_MADE;
}

/* The i-th tensor that a nested source reads; NULL after the last, and for other sources. */
const ckpt_tensor *ckpt_source_input(const ckpt_source *s, uint32_t i);

/* The dtype of a nested source's elements. */
ckpt_dtype ckpt_source_dtype(const ckpt_source *s);

/* Add a source with the elements of tensor t, of this map or hidden (ckpt_map_add_hidden). */
int ckpt_map_add_nested(ckpt_map *map, const ckpt_tensor *t, uint32_t *index, ckpt_err *err);

/*
 * Add a source of n_elems computed elements of make->dtype.
 *
 * make     must live as long as the map; the operation's own state follows it
 */
int ckpt_map_add_made(ckpt_map *map, ckpt_make *make, uint64_t n_elems, uint32_t *index,
                      ckpt_err *err);

/*
 * Check that nested sources have the size of their tensors and that none contains itself.
 *
 * Errors  CKPT_EMISMATCH: a source's size is not its tensor's; CKPT_EUSAGE: more than CKPT_NEST_MAX
 *         deep, or a cycle
 */
int ckpt_nest_check(const ckpt_map *map, ckpt_err *err);

/*
 * Mark the sources of a tensor, of its addends and of all copies, and the sources inside them.
 *
 * used  per source of the map: set to 1; sources that are marked already are not entered
 */
void ckpt_nest_mark(const ckpt_map *map, const ckpt_tensor *t, uint8_t *used);

/* Path of the file with the first values of a tensor, for messages; "memory" if in none. */
const char *ckpt_nest_file(const ckpt_map *map, const ckpt_tensor *t);

/*
 * Make a hidden tensor with the elements of t, or of its owner, and their copies and addends, so
 * that a computed tensor can take t's place in the list. NULL: CKPT_ELIMIT.
 */
ckpt_tensor *ckpt_nest_hide(ckpt_map *map, const ckpt_tensor *t, ckpt_err *err);

#endif
