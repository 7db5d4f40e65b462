/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_ranks.h: the interface between the files of the writer of weights with a torch file for
 * each model-parallel rank.
 *
 *     write_ranks.c  the files, and the slices in them
 *     rank_names.c   the place and the name of each tensor in them
 */
#ifndef CKPT_FORMATS_MEGATRON_WRITE_RANKS_H
#define CKPT_FORMATS_MEGATRON_WRITE_RANKS_H

#include "formats/megatron/write.h"

/* A tensor of the model, and its place in the ranks' files. */
typedef struct ckpt_meg_entry {
    const ckpt_tensor *tensor; /* whole, in the source's map */
    const char *local;         /* name in the file, from "model" on */
    const char *part;          /* name in its layer, an expert's without number; NULL: in none */
    uint64_t layer;            /* number in the whole model, if it is in a layer */
    uint32_t stage;
    bool expert;           /* an expert's: only expert-parallel rank `ep` has it */
    uint32_t ep;           /* 0 if all have it */
    ckpt_slice_rule rule;  /* how tensor-parallel ranks divide it: SAME, CAT or SUB */
    const uint64_t *shape; /* of one rank's slice; tensor->ndim sizes */
    uint32_t *source;      /* by ep * tp + rank: the source of its bytes; owned by the target map */
} ckpt_meg_entry;

CKPT_VEC(ckpt_meg_entries, ckpt_meg_entry);

/* The model of the source, and how it is divided. */
typedef struct ckpt_meg_division {
    const ckpt_train_job *job;
    ckpt_meg_sizes size;
    bool latent; /* multi-latent attention */
    uint64_t layers, experts;
    ckpt_meg_entries entry;
} ckpt_meg_division;

/*
 * List the tensors of the model with their places.
 *
 * d       in: job, size; out: the rest, and size.untied; d->entry is freed by the caller
 * Errors  CKPT_EUNSUPPORTED: a tensor that no rank's model has, or that cannot be divided evenly;
 *         CKPT_EMISSING: a tensor is absent from a layer, or from the model; CKPT_EMISMATCH: two
 *         would have one name, or the arguments do not fit; CKPT_ELIMIT
 */
int ckpt_meg_divide(ckpt_meg_division *d);

#endif
