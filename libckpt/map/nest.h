/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.h: sources whose bytes are the values of tensors (CKPT_SOURCE_TENSOR), or are computed from
 * them (CKPT_SOURCE_MADE).
 *
 * Extents over such a source are like any others: offsets are bytes of its dense row-major
 * elements.  Whatever gathers them reads the tensors inside as it reads any tensor, so CRCs of
 * their records are checked and their copies compared (copy/values.h).
 */
#ifndef CKPT_MAP_NEST_H
#define CKPT_MAP_NEST_H

#include "libckpt/map/map.h"

/* How deep sources may lie in one another; what a cycle runs into. */
#define CKPT_NEST_MAX 8u

/* True for sources whose bytes come from tensors. */
static inline bool ckpt_source_nested(const ckpt_source *s)
{
    return s->kind == CKPT_SOURCE_TENSOR || s->kind == CKPT_SOURCE_MADE;
}

/* The i-th tensor that a source's bytes come from; NULL after the last, and for other sources. */
const ckpt_tensor *ckpt_source_input(const ckpt_source *s, uint32_t i);

/* The dtype of a nested source's elements. */
ckpt_dtype ckpt_source_dtype(const ckpt_source *s);

/* Add the elements of tensor t, of this map or hidden (ckpt_map_add_hidden), as a source. */
int ckpt_map_add_nested(ckpt_map *map, const ckpt_tensor *t, uint32_t *index, ckpt_err *err);

/*
 * Add n_elems elements of make->dtype that an operation computes.
 *
 * make  kept as long as the map; the operation's own state lies behind it
 */
int ckpt_map_add_made(ckpt_map *map, ckpt_make *make, uint64_t n_elems, uint32_t *index,
                      ckpt_err *err);

/*
 * Nested sources hold what they say, and none lies in itself.
 *
 * Errors  CKPT_EMISMATCH: a source's size is not its tensor's; CKPT_EUSAGE: more than CKPT_NEST_MAX
 *         deep, or a cycle
 */
int ckpt_nest_check(const ckpt_map *map, ckpt_err *err);

/* Path of the file that a tensor's values begin in, for messages; "memory" if in none. */
const char *ckpt_nest_file(const ckpt_map *map, const ckpt_tensor *t);

/*
 * A hidden tensor that has the elements of t, or of its owner, with their copies and addends: what
 * is computed from t can then stand in t's place.  NULL: CKPT_ELIMIT.
 */
ckpt_tensor *ckpt_nest_hide(ckpt_map *map, const ckpt_tensor *t, ckpt_err *err);

#endif
