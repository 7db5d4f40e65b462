/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_flat.h: where ZeRO stages 1 and 2 put element i: one flat buffer per parameter group, cut
 * evenly over ranks.
 *
 * Pure arithmetic, used by the reader, by the writer and by the engine.
 * Source: deepspeed/runtime/zero/stage_1_and_2.py, releases 0.3.16 to 0.19.8, and checkpoints that
 * they wrote; "w" is the world size, all numbers are elements.
 */
#ifndef CKPT_MAP_ZERO_FLAT_H
#define CKPT_MAP_ZERO_FLAT_H

#include "libckpt/base/err.h"

/* One parameter group laid out. */
typedef struct ckpt_zero_flat {
    uint32_t world;
    uint64_t n_params;
    /*
     * n_params: first element of each parameter in the flat buffer; caller frees with
     * ckpt_zero_flat_free
     */
    uint64_t *start;
    uint64_t *numel;  /* n_params */
    uint64_t *before; /* n_params + 1: elements of the parameters before each, pads not counted */
    uint64_t used;    /* N: elements up to the end of the last parameter, alignment pads included */
    uint64_t total;   /* F: N padded to a multiple of the alignment */
    uint64_t slice;   /* s = F / w: elements per rank */
} ckpt_zero_flat;

/*
 * The alignment of stages 1 and 2: elements that the flat buffer of a group is a multiple of.  2w
 * since release 0.5.2 (nccl_start_alignment_factor), w before.
 */
uint64_t ckpt_zero_flat_align(uint32_t world, bool before_0_5_2);

/*
 * Lay out a group.
 *
 * numel     n sizes in layout order (the order of param_shapes)
 * pad       n paddings after each parameter (param_alignment_paddings), or NULL for none
 * align     F is a multiple of this: ckpt_zero_flat_align, or what another form has
 * Errors    CKPT_EFORMAT on overflow or world 0; CKPT_ELIMIT
 */
int ckpt_zero_flat_new(ckpt_zero_flat *out, const uint64_t *numel, const uint64_t *pad, uint64_t n,
                       uint32_t world, uint64_t align, ckpt_err *err);
void ckpt_zero_flat_free(ckpt_zero_flat *z);

/* A run of a parameter's elements inside one rank's slice. */
typedef struct ckpt_zero_run {
    uint32_t rank;
    uint64_t first; /* element of the flattened parameter */
    uint64_t count; /* elements */
    uint64_t at;    /* element offset in the rank's slice (stages 1, 2) or flat group (stage 3) */
} ckpt_zero_run;

/*
 * The runs of parameter i, ascending.  Call with *cursor = 0 first; false when there are no more.
 *
 *     for (uint64_t cur = 0; ckpt_zero_flat_next(&z, i, &cur, &run);)
 */
bool ckpt_zero_flat_next(const ckpt_zero_flat *z, uint64_t i, uint64_t *cursor, ckpt_zero_run *run);

/* The first parameter with an element at or behind `from` of the flat buffer; of 0, the first that
 * has any. */
uint64_t ckpt_zero_flat_first(const ckpt_zero_flat *z, uint64_t from);

/* Elements of rank r's slice that are padding at its end (what 0.16.4 and later cut off). */
uint64_t ckpt_zero_flat_padding(const ckpt_zero_flat *z, uint32_t rank);

/*
 * Some state is not cut: each rank keeps, one after another and without pads, all elements of every
 * parameter that its slice touches (MuonWithAuxAdam's momentum_buffer: _muon_momentum_buffer of
 * stage_1_and_2.py).  A parameter that lies on several slices is with each of their ranks.
 */

/* Elements of that on one rank. */
uint64_t ckpt_zero_whole_size(const ckpt_zero_flat *z, uint32_t rank);

/*
 * The ranks that keep parameter i, ascending, as runs of all of it; `at` counts from what the rank
 * keeps first.
 */
bool ckpt_zero_whole_next(const ckpt_zero_flat *z, uint64_t i, uint32_t *cursor,
                          ckpt_zero_run *run);

/* The order in which round_robin_gradients lays out n parameters: out[k] = index of the k-th. */
void ckpt_zero_round_robin(uint64_t n, uint32_t world, uint64_t *out);

#endif
