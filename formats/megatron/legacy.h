/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy.h: what reads checkpoints with a torch file for each model-parallel rank.
 *
 *     legacy.c        which ranks there are
 *     legacy_join.c   their tensors as the model's
 *     legacy_state.c  their optimizers' state, by the names of parameters
 */
#ifndef CKPT_FORMATS_MEGATRON_LEGACY_H
#define CKPT_FORMATS_MEGATRON_LEGACY_H

#include "formats/megatron/megatron.h"

#define CKPT_MEG_FLAT "distrib_optim.pt"

/* A tensor of one rank. */
typedef struct ckpt_meg_slice {
    const char *local; /* in the rank's map: "model.decoder.layers.0.mlp.linear_fc1.weight" */
    const char *name;  /* the model's: "decoder.layers.8.mlp.linear_fc1.weight" */
    bool expert;       /* of this expert-parallel rank alone */
    ckpt_tensor *tensor;
} ckpt_meg_slice;

CKPT_VEC(ckpt_meg_slices, ckpt_meg_slice);

/* A model-parallel rank. */
typedef struct ckpt_meg_rank {
    uint32_t tp, pp, ep;
    const char *name, *path; /* of its folder */
    ckpt_map *map;           /* of its file; the map owns it */
    const ckpt_value *root;
    bool flat;             /* it has a distrib_optim.pt */
    ckpt_meg_slices slice; /* of the model, in the order of named_parameters() */
} ckpt_meg_rank;

CKPT_VEC(ckpt_meg_ranks, ckpt_meg_rank);

/* All ranks: by stage, expert rank, tensor rank. */
typedef struct ckpt_meg_grid {
    ckpt_meg_ranks rank;
    uint32_t tp, pp, ep;
    bool whole; /* no rank is missing */
} ckpt_meg_grid;

/* The rank at a place of a whole grid. */
static inline ckpt_meg_rank *ckpt_meg_at(const ckpt_meg_grid *g, uint32_t tp, uint32_t pp,
                                         uint32_t ep)
{
    return &g->rank.at[((size_t)pp * g->ep + ep) * g->tp + tp];
}

/* ---- marks.c ---- */

/* The listing is of a folder with folders of ranks. */
bool ckpt_meg_is_legacy(const ckpt_listing *list);

/* "mp_rank_00", "mp_rank_00_001", "mp_rank_00_001_002": how many numbers; 0: another name. */
unsigned ckpt_meg_numbers(const char *name, uint32_t out[3]);

/* ---- legacy.c ---- */

/* Read such a folder into the map, with training state where it is wanted and known. */
int ckpt_meg_legacy(ckpt_meg_job *job);

/* ---- legacy_join.c ---- */

/*
 * List every rank's tensors by the names of the model.
 *
 * Errors  CKPT_EMISMATCH: ranks of a stage differ in names, or stages leave out layers
 */
int ckpt_meg_slices_list(ckpt_meg_job *job, ckpt_meg_grid *grid);

/*
 * Join one kind of tensors: slices of ranks become tensors of the map; those that ranks hold whole
 * become copies, which must be equal.
 *
 * kind     NULL: the weights; else "<kind>/<name>"
 * Errors   CKPT_EMISMATCH: shapes do not fit; CKPT_EUNSUPPORTED: a name that no rule is known for
 */
int ckpt_meg_join(ckpt_meg_job *job, ckpt_meg_grid *grid, const char *kind);

/* ---- legacy_state.c ---- */

/* Make the training state of a map whose weights are joined; no_state says why there is none. */
int ckpt_meg_legacy_state(ckpt_meg_job *job, ckpt_meg_grid *grid);

#endif
