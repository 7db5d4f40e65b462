/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.h: the interface between the files of the writer of torch_dist checkpoints.
 *
 *     write.c   the folder, the tracker, and the tensors
 *     common.c  common.pt
 *     regroup.c divides parameters into Megatron's groups
 */
#ifndef CKPT_FORMATS_MEGATRON_WRITE_H
#define CKPT_FORMATS_MEGATRON_WRITE_H

#include "formats/megatron/megatron.h"
#include "formats/torch/tree.h"
#include "formats/training/write_job.h"

/* ckpt_directory.scatter (write.c). */
int ckpt_meg_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

/* The iteration of a run: its own count of steps; without a count, that of the tag, or 0. */
int64_t ckpt_meg_iteration(const ckpt_train_job *job);

/* A parameter group of the output. */
typedef struct ckpt_meg_regrouped {
    size_t from;          /* a group of the source that it has parameters of */
    bool decays;          /* its parameters have weight decay */
    ckpt_value *settings; /* a DICT */
    double step;          /* its step count; -1: none */
    const char *first;    /* name of a parameter; NULL: none */
} ckpt_meg_regrouped;

CKPT_VEC(ckpt_meg_regroups, ckpt_meg_regrouped);

/*
 * Divide the parameters of a state into Megatron's groups: with and without weight decay.  Groups
 * of a run of Megatron stay as they are.
 *
 * Errors  CKPT_EUNSUPPORTED: parameters of one of Megatron's groups have different settings, or
 *         step counts differ
 */
int ckpt_meg_regroup(ckpt_meg_regroups *out, const ckpt_train_job *job);

/*
 * Name the target's folder and the tracker's text (write.c).
 *
 * Errors  CKPT_EUSAGE: the tag is not the name of an iteration's folder; CKPT_EUNSUPPORTED: a run
 *         that Megatron would not resume
 */
int ckpt_meg_name_folder(const ckpt_train_job *job);

/* Warn of norms behind attention and MLP, which only modules of other programs have (write.c). */
int ckpt_meg_foreign(const ckpt_train_job *job);

/*
 * True for output_layer.weight if it is tied to the word embedding and the arguments allow a tied
 * head (write.c). Either of the two may be the owner. Megatron-Core saves tied embeddings once.
 */
bool ckpt_meg_is_tied_head(const ckpt_train_job *job, const ckpt_tensor *t);

/*
 * Check that a model with untie_embeddings_and_output_weights has output_layer.weight (write.c).
 *
 * Errors  CKPT_EMISSING
 */
int ckpt_meg_check_head(const ckpt_train_job *job);

/*
 * Check that a model with layers has as many as num_layers, embeddings, and the norm behind the
 * last layer, unless the caller has selected tensors (write.c).
 *
 * Errors  CKPT_EMISSING, CKPT_EMISMATCH
 */
int ckpt_meg_check_whole(const ckpt_train_job *job);

/*
 * Check that the word embedding has a row for each token of vocab_size (write.c).
 *
 * Errors  CKPT_EMISMATCH
 */
int ckpt_meg_check_vocab(const ckpt_train_job *job);

/* The number of ranks of each kind, by which files are cut. */
typedef struct ckpt_meg_sizes {
    uint32_t tp, pp, ep;
    bool local;   /* the names are those of Megatron-Core's own layers */
    bool grouped; /* the experts of a layer are one module (--moe-grouped-gemm) */
    bool untied;  /* the model has a head of its own */
} ckpt_meg_sizes;

/*
 * Make the arguments, as Megatron-LM saves them: a Namespace.
 *
 * size    the ranks by which files are cut; NULL: torch_dist, which is not cut
 * NULL    a failure, which t keeps
 */
ckpt_value *ckpt_meg_args(ckpt_torch_tree *t, const ckpt_train_job *job,
                          const ckpt_meg_sizes *size);

/* An integer argument of the output, from the source or its layout map; 0: unknown. */
int64_t ckpt_meg_argument(const ckpt_train_job *job, const char *name);

/* True if an argument of the output is this text. */
bool ckpt_meg_argument_is(const ckpt_train_job *job, const char *name, const char *text);

/* False if every attention head of the output has keys and values of its own. */
bool ckpt_meg_is_grouped(const ckpt_train_job *job);

/* Warn about arguments that neither the source nor the caller gave; file: that lacks them. */
int ckpt_meg_missing(const ckpt_train_job *job, const char *file);

/* ckpt_directory.scatter of files for ranks (write_ranks.c). */
int ckpt_meg_scatter_ranks(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                           ckpt_err *err);

/*
 * Write common.pt: the arguments of the run, its iteration, and the values that are not tensors.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_meg_write_common(const ckpt_train_job *job);

#endif
