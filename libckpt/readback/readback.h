/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readback.h: verifies a written training folder: opens it again and compares its state with the
 * source's.
 *
 *     readback.c  parameters, ties, groups, moments, step counts
 *     tree.c   trees of values: hyper-parameters, scheduler, loss scale, counters, client state
 *
 * Every entry of the source's state must be carried (equal in both), rewritten or left out. The
 * writer must have reported the last two in the target's findings ("rewritten: PATH 3 -> 2", "left
 * out: PATH: why"); an unreported difference is an error.
 */
#ifndef CKPT_CLAIM_H
#define CKPT_CLAIM_H

#include "ckpt_extra.h"
#include "libckpt/map/state.h"

/*
 * Compare a written folder with the map that its layout was made from.
 *
 * to      the target map: `claim` has the intended settings, findings report changes; gets counts
 * back    the written folder, opened with its optimizer and separate slices
 * Errors  CKPT_EMISMATCH: an unreported difference
 */
int ckpt_claim_compare(const ckpt_map *from, ckpt_map *to, const ckpt_map *back, ckpt_err *err);

/*
 * Count the entries of a training state (a map opened with its optimizer) in to->claim: entries
 * that the reader understands are carried; others are left out, with a finding in `to`.
 */
int ckpt_claim_count(const ckpt_map *map, ckpt_map *to, ckpt_err *err);

/*
 * Count for a file or folder of tensors, which keeps no state except moments and step counts.
 */
int ckpt_claim_tensors(const ckpt_map *from, ckpt_map *to, ckpt_err *err);

/* ---- shared by readback.c, count.c and tree.c ---- */

/*
 * True if the map has a moment with this name for some parameter of the group: the comparison of
 * tensors covers it. The first parameter may be empty and have no moment.
 */
bool ckpt_claim_is_moment(const ckpt_map *map, const ckpt_state *s, const ckpt_group *g,
                          const char *key);

typedef struct ckpt_claim_work {
    const ckpt_map *from;
    ckpt_map *to;
    const ckpt_map *back;
    ckpt_reader *read_from, *read_back;
    uint64_t budget; /* remaining tree nodes to compare one by one */
    bool unnamed;    /* the written optimizer state has no parameter names */
    ckpt_err *err;
} ckpt_claim_work;

/* Path of a value in messages and reports: "lr_scheduler.last_lr[0]". */
enum { CKPT_CLAIM_PATH = 512 };

/*
 * Handle a difference: count it if the writer has reported it, otherwise fail with `what`.
 */
int ckpt_claim_differs(ckpt_claim_work *w, const char *path, const char *what);

/* Compare two trees below a path ("": the root's keys): b must have every value of a. */
int ckpt_claim_tree(ckpt_claim_work *w, const char *path, const ckpt_value *a, const ckpt_value *b);

/* Compare the trees of the files of two states, except the description of their layout. */
int ckpt_claim_files(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b);

/*
 * Number of values below a node, or in the files of a state, except the description of their
 * layout.
 */
uint64_t ckpt_claim_leaves(const ckpt_value *v);
uint64_t ckpt_claim_file_leaves(const ckpt_state *s);

#endif
