/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_flat.h: computes the location of each element in ZeRO stages 1 and 2: one flat buffer per
 * parameter group, partitioned evenly over ranks.
 *
 * Pure arithmetic, used by the reader, by the writer and by the engine. Source:
 * deepspeed/runtime/zero/stage_1_and_2.py, releases 0.3.16 to 0.19.8, and checkpoints that they
 * wrote; "w" is the world size, all numbers are elements.
 */
#ifndef CKPT_MAP_ZERO_FLAT_H
#define CKPT_MAP_ZERO_FLAT_H

#include "libckpt/base/err.h"

/* The layout of one parameter group. */
typedef struct ckpt_zero_flat {
    uint32_t world;
    uint64_t n_params;
    /*
     * n_params: first element of each parameter in the flat buffer; caller frees with
     * ckpt_zero_flat_free
     */
    uint64_t *start;
    uint64_t *numel;  /* n_params */
    uint64_t *before; /* n_params + 1: elements of all parameters before each, without padding */
    uint64_t used;    /* N: elements up to the end of the last parameter, alignment pads included */
    uint64_t total;   /* F: N padded to a multiple of the alignment */
    uint64_t slice;   /* s = F / w: elements per rank */
} ckpt_zero_flat;

/*
 * The alignment of stages 1 and 2: the flat buffer of a group is a multiple of so many elements. 2w
 * since release 0.5.2 (nccl_start_alignment_factor), w before.
 */
uint64_t ckpt_zero_flat_align(uint32_t world, bool before_0_5_2);

/* The parameters of a group. */
typedef struct ckpt_zero_sizes {
    const uint64_t *numel; /* n sizes in layout order (the order of param_shapes) */
    const uint64_t *pad;   /* n paddings after each parameter (param_alignment_paddings), or NULL */
    uint64_t n;
} ckpt_zero_sizes;

/*
 * Lay out a group.
 *
 * align    F is a multiple of this: ckpt_zero_flat_align, or the alignment of another form
 * Errors   CKPT_EFORMAT on overflow or world 0; CKPT_ELIMIT
 */
int ckpt_zero_flat_new(ckpt_zero_flat *out, const ckpt_zero_sizes *of, uint32_t world,
                       uint64_t align, ckpt_err *err);
void ckpt_zero_flat_free(ckpt_zero_flat *z);

/* A run of a parameter's elements inside one rank's slice. */
typedef struct ckpt_zero_run {
    uint32_t rank;
    uint64_t first; /* element of the flattened parameter */
    uint64_t count; /* elements */
    uint64_t at;    /* element offset in the rank's slice (stages 1, 2) or flat group (stage 3) */
} ckpt_zero_run;

/*
 * Iterate over the runs of parameter i, ascending. *cursor is 0 at first; false when there are no
 * more.
 *
 *     for (uint64_t cur = 0; ckpt_zero_flat_next(&z, i, &cur, &run);)
 */
bool ckpt_zero_flat_next(const ckpt_zero_flat *z, uint64_t i, uint64_t *cursor, ckpt_zero_run *run);

/*
 * The first parameter with an element at or after `from` in the flat buffer; for 0, the first that
 * is not empty.
 */
uint64_t ckpt_zero_flat_first(const ckpt_zero_flat *z, uint64_t from);

/* Elements of padding at the end of rank r's slice (0.16.4 and later do not save them). */
uint64_t ckpt_zero_flat_padding(const ckpt_zero_flat *z, uint32_t rank);

/*
 * Some state is not partitioned: each rank keeps, one after another and without padding, all
 * elements of every parameter that its slice touches (MuonWithAuxAdam's momentum_buffer:
 * _muon_momentum_buffer of stage_1_and_2.py).
 */

/* Elements of such state on one rank. */
uint64_t ckpt_zero_whole_size(const ckpt_zero_flat *z, uint32_t rank);

/*
 * Iterate over the ranks that keep parameter i, ascending, as runs of the whole parameter; `at`
 * counts from the start of the rank's state.
 */
bool ckpt_zero_whole_next(const ckpt_zero_flat *z, uint64_t i, uint32_t *cursor,
                          ckpt_zero_run *run);

/*
 * The order in which round_robin_gradients lays out n parameters: out[k] is the index of the k-th.
 */
void ckpt_zero_round_robin(uint64_t n, uint32_t world, uint64_t *out);

#endif
