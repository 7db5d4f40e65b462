/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy.h: the interface between the readers of checkpoints with a torch file per model-parallel
 * rank.
 *
 *     legacy.c        finds the ranks
 *     legacy_join.c   joins their tensors into the model's
 *     legacy_state.c  reads their optimizers' state, by parameter names
 */
#ifndef CKPT_FORMATS_MEGATRON_LEGACY_H
#define CKPT_FORMATS_MEGATRON_LEGACY_H

#include <assert.h>

#include "formats/megatron/megatron.h"

#define CKPT_MEG_FLAT "distrib_optim.pt"

/* A tensor of one rank. */
typedef struct ckpt_meg_slice {
    const char *local; /* name in the rank's map: "model.decoder.layers.0.mlp.linear_fc1.weight" */
    const char *name;  /* name in the whole model: "decoder.layers.8.mlp.linear_fc1.weight" */
    bool expert;       /* the tensor is an expert's: only this expert-parallel rank has it */
    ckpt_tensor *tensor;
} ckpt_meg_slice;

CKPT_VEC(ckpt_meg_slices, ckpt_meg_slice);

/* A model-parallel rank. */
typedef struct ckpt_meg_rank {
    uint32_t tp, pp, ep;
    const char *name, *path; /* name and path of the rank's folder */
    ckpt_map *map;           /* map of the rank's file; owned by the job's map */
    const ckpt_value *root;
    bool flat;             /* the rank has a distrib_optim.pt */
    ckpt_meg_slices slice; /* the model's tensors in the order of named_parameters() */
} ckpt_meg_rank;

CKPT_VEC(ckpt_meg_ranks, ckpt_meg_rank);

/* All ranks, sorted by stage, expert rank, tensor rank. */
typedef struct ckpt_meg_grid {
    ckpt_meg_ranks rank;
    uint32_t tp, pp, ep;
    bool whole; /* no rank is missing */
} ckpt_meg_grid;

/* The rank at the given coordinates of a complete grid. */
static inline ckpt_meg_rank *ckpt_meg_at(const ckpt_meg_grid *g, uint32_t tp, uint32_t pp,
                                         uint32_t ep)
{
    assert(tp < g->tp && pp < g->pp && ep < g->ep);
    return &g->rank.at[((size_t)pp * g->ep + ep) * g->tp + tp];
}

/* ---- marks.c ---- */

/* True for a folder with ranks' folders. */
bool ckpt_meg_is_legacy(const ckpt_listing *list);

/* Parse "mp_rank_00", "mp_rank_00_001" or "mp_rank_00_001_002"; returns the count of numbers, or
 * 0. */
unsigned ckpt_meg_numbers(const char *name, uint32_t out[3]);

/* ---- legacy.c ---- */

/* Read such a folder into the map, with training state if requested and known. */
int ckpt_meg_legacy(ckpt_meg_job *job);

/* ---- legacy_join.c ---- */

/*
 * List every rank's tensors under the model's names.
 *
 * Errors  CKPT_EMISMATCH: ranks of a stage differ in names, or stages omit layers
 */
int ckpt_meg_slices_list(ckpt_meg_job *job, ckpt_meg_grid *grid);

/*
 * Join one kind of tensors.  Slices become whole tensors of the map; if several ranks hold the
 * complete tensor, their copies become twins, which must be equal.
 *
 * kind    NULL: the weights; else "<kind>/<name>"
 * Errors  CKPT_EMISMATCH: shapes do not fit; CKPT_EUNSUPPORTED: no rule for a name
 */
int ckpt_meg_join(ckpt_meg_job *job, ckpt_meg_grid *grid, const char *kind);

/* ---- legacy_state.c ---- */

/* Build the training state of a map with joined weights; no_state gives the reason if there is
 * none. */
int ckpt_meg_legacy_state(ckpt_meg_job *job, ckpt_meg_grid *grid);

/* ---- legacy_steps.c ---- */

/*
 * Check that each optimizer counted the same steps in all ranks and for all parameters: the target
 * has one count for each group.
 *
 * Errors  CKPT_EMISMATCH, recorded as a finding if the map collects them
 */
int ckpt_meg_same_steps(const ckpt_meg_job *job, const ckpt_meg_grid *grid);

/*
 * Check that the optimizers and schedules of all ranks have the settings of the first rank, because
 * the reader uses those.
 *
 * Errors  CKPT_EMISMATCH, recorded as a finding if the map collects them
 */
int ckpt_meg_same_settings(const ckpt_meg_job *job, const ckpt_meg_grid *grid);

#endif
