/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim.h: what was written is read back as a claim: a training folder is opened again from its own
 * headers, and has to say what the state says that it was made of.
 *
 *     claim.c  parameters, ties, groups, moments, step counts
 *     tree.c   hyper-parameters, scheduler, loss scale, counters, client state: trees of
 *              values
 *
 * No entry of the source's state is without an owner: it is carried (the same in both), rewritten
 * or left out.  The last two the writer must have said ("rewritten: PATH 3 -> 2", "left out: PATH:
 * why" among the target's findings); what differs and was not said is an error.
 */
#ifndef CKPT_CLAIM_H
#define CKPT_CLAIM_H

#include "libckpt/copy/reader.h"
#include "libckpt/map/state.h"

/*
 * Compare what was written, read back, with the map it was laid out from.
 *
 * to      the target map: claim says what was meant, findings what was rewritten; gets the counts
 * back    what the written folder of training state says, opened with its optimizer, slices kept
 * Errors  CKPT_EMISMATCH: it says something else
 */
int ckpt_claim_compare(const ckpt_map *from, ckpt_map *to, const ckpt_map *back, ckpt_err *err);

/*
 * What a map of training state (opened with its optimizer) holds, into to->claim: entries that were
 * understood count as carried; what was not is left out, and named in the findings of `to`.
 */
int ckpt_claim_count(const ckpt_map *map, ckpt_map *to, ckpt_err *err);

/*
 * The same for a file or folder of tensors, which takes along no state but moments and step counts.
 */
int ckpt_claim_tensors(const ckpt_map *from, ckpt_map *to, ckpt_err *err);

/* ---- between the two files ---- */

typedef struct ckpt_claim_work {
    const ckpt_map *from;
    ckpt_map *to;
    const ckpt_map *back;
    ckpt_reader *read_from, *read_back;
    uint64_t budget; /* nodes of trees that are still looked at one by one */
    bool unnamed;    /* read back, it does not say whose its optimizer state is */
    ckpt_err *err;
} ckpt_claim_work;

/* Path of a value, for messages and reports: "lr_scheduler.last_lr[0]". */
enum { CKPT_CLAIM_PATH = 512 };

/*
 * An entry that is not the same in both: counted if the writer has said so, else an error that says
 * what is different.
 */
int ckpt_claim_differs(ckpt_claim_work *w, const char *path, const char *what);

/* Compare what two trees have below a path ("": a root's keys): every value of a is in b. */
int ckpt_claim_tree(ckpt_claim_work *w, const char *path, const ckpt_value *a, const ckpt_value *b);

/* The trees of the files of two states, but for what describes their layout. */
int ckpt_claim_files(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b);

/*
 * How many values are below a node; in the files of a state, but for what describes their layout.
 */
uint64_t ckpt_claim_leaves(const ckpt_value *v);
uint64_t ckpt_claim_file_leaves(const ckpt_state *s);

#endif
