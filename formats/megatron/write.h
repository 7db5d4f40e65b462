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
 * Write common.pt: the arguments of the run, its iteration, and the values that are not tensors.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_meg_write_common(const ckpt_train_job *job);

#endif
