/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero.h: the ZeRO runtime: who holds which part of weights, gradients and optimizer state, and
 * when it travels.
 *
 *     zero.c      making it, the common steps of a boundary: norm, overflow, clipping, counters
 *     groups.c    parameter groups, their order and settings
 *     flat.c      stages 0, 1, 2: full weights in one buffer per group, gradients reduced in
 *                 buckets
 *     sharded.c   stage 3: partitions per parameter, gathered per layer, ahead of use; sub-groups
 *     pool.c      places for what is gathered, in one block of memory
 *     average.c   the mean of gradients over ranks, with its roundings
 *     update.c    the optimizer's step over this rank's partitions
 *     muon.c      whole matrices for Muon
 *     pass.c      forward and backward over the chain of layers, with or without keeping
 *                 activations
 *     values.c    first values, masters after a resume, owned runs, whole parameters
 *     offload.c   optimizer state and partitions in files, with bounded buffers
 *     home.c      optimizer state in the host's memory beside a GPU, updates by the CPU
 *
 * Source: Rajbhandari et al. 2020 (ZeRO), Rajbhandari et al. 2021 (ZeRO-Infinity); the order of
 * operations and of rounding is that of DeepSpeed 0.19.8.
 */
#ifndef ZT_ZERO_ZERO_H
#define ZT_ZERO_ZERO_H

#include "engine/comm/comm.h"
#include "engine/config/config.h"
#include "engine/model/model.h"

/* A parameter group: consecutive entries of zero->order. */
typedef struct zt_group {
    uint32_t first, n;
    zt_hyper hyper; /* what the next update uses */
    double lr;      /* as configured */
    double weight_decay;
    bool muon;        /* matrices that Muon updates; else Adam's half of it, or any other type */
    const char *name; /* as DeepSpeed calls the halves; NULL: another type */
} zt_group;

/*
 * A flat fp32 piece that this rank owns: a group's partition (stages 1, 2), all of a group (stage
 * 0), a sub-group's partition (stage 3).  In stage 0 and fp32 `master` is the weights themselves.
 */
typedef struct zt_partition {
    uint32_t group;
    uint32_t first, n; /* parameters in it: zero->order[first .. first + n) */
    uint64_t n_elems;  /* padding included */
    /* on the device; host memory when offloaded from a GPU; NULL while in files */
    float *master, *state[2];
    /* accumulated gradient, in config.accum_dtype (stage 3, 2: of this partition) */
    void *grad;
    void *low; /* stage 3: this partition's 16-bit (or fp32) weights; else NULL */
} zt_partition;

/* Where a run of a parameter's elements is in this rank's partitions. */
typedef struct zt_owned {
    uint32_t param; /* of the model */
    uint32_t partition;
    uint64_t first, count; /* elements of the flattened parameter */
    uint64_t at;           /* element in the partition */
} zt_owned;

/* What a boundary did. */
typedef struct zt_step {
    double grad_norm;  /* as DeepSpeed reports it; infinity when skipped */
    double lr;         /* of the first group, in this update */
    double loss_scale; /* in force in this update */
    bool skipped;
} zt_step;

typedef struct zt_zero zt_zero;
struct zt_zero {
    zt_model *model;
    const zt_config *config;
    zt_comm *comm; /* what ranks tell each other, in host memory */
    /* how tensors travel; comm itself where the device's memory is the host's */
    zt_comm *wire;
    zt_device *device;

    /* trained parameters, group after group, in the order of the flat buffers (round robin's) */
    uint32_t *order;
    uint32_t *given; /* the same in the order that the optimizer is given: before round robin */
    uint32_t n_order;
    /* stage 3: saves list Muon's matrices as the model does, not by size (zero.Init) */
    bool plain_matrices;
    zt_group *group;
    uint32_t n_groups;
    zt_partition *part;
    uint32_t n_parts;

    zt_schedule schedule;
    zt_scaler scaler;
    int64_t updates; /* applied: the optimizer's step count */
    int64_t micro_steps, global_steps, global_samples, skipped;
    void *own; /* the stage's */
};

/*
 * Set up: groups, partitions, buffers.  Weights are undefined until zt_zero_fill or a load.
 *
 * grouping  "single", "decay" (more than one axis; the rest without weight decay)
 * Errors    CKPT_EUNSUPPORTED: a combination that cannot be (named); CKPT_ELIMIT
 */
typedef struct zt_zero_opts {
    const char *grouping;
    bool keep_activations_not;   /* activation checkpointing */
    uint64_t max_batch, max_seq; /* largest micro batch; 0: buffers grow with the first ones */
    uint64_t seed;               /* of dropout */
    /* of the device's memory; NULL: comm, which then must reach it (or one rank) */
    zt_comm *wire;
    /* of updates on the host, where a GPU's state is offloaded; 0: all processors */
    unsigned host_threads;
} zt_zero_opts;
int zt_zero_new(zt_zero **out, zt_model *model, const zt_config *config, zt_comm *comm,
                const zt_zero_opts *opts, ckpt_err *err);
void zt_zero_free(zt_zero *z);

/*
 * Give the parameters their first values, fp32, rounded once to the model's dtype (masters are the
 * rounded values, as DeepSpeed has it).  `value` is asked for runs of elements that this rank needs
 * (each rank asks for its own).
 */
typedef int (*zt_value_fn)(void *ctx, uint32_t param, uint64_t first, uint64_t count, float *out,
                           ckpt_err *err);
int zt_zero_fill(zt_zero *z, zt_value_fn value, void *ctx, ckpt_err *err);

/* The same for frozen parameters alone (a resume: they have no masters). */
int zt_zero_fill_frozen(zt_zero *z, zt_value_fn value, void *ctx, ckpt_err *err);

/*
 * After masters and state were written from outside (a resume): make the working weights from the
 * masters and gather.
 */
int zt_zero_refresh(zt_zero *z, ckpt_err *err);

/*
 * One micro step: forward and backward; the batch is host memory; *loss of this rank.  The boundary
 * is zt_zero_step's to notice.
 */
int zt_zero_micro(zt_zero *z, const zt_batch *batch, double *loss, ckpt_err *err);

/* After each micro step; at a boundary the update.  *step is set at boundaries. */
int zt_zero_step(zt_zero *z, zt_step *step, ckpt_err *err);

/* Forward only.  logits (device, model's dtype) as in zt_pass, or NULL. */
int zt_zero_evaluate(zt_zero *z, const zt_batch *batch, void *logits, double *loss, ckpt_err *err);

/* This rank's runs of every trained parameter (for saving and loading): *n of them, owned by z. */
const zt_owned *zt_zero_owned(const zt_zero *z, size_t *n);

/*
 * The device in whose memory masters and state are: z->device, or beside a GPU, with offload, the
 * processor's.  Where that is not the host's (host), they are read by get and written by put.
 */
zt_device *zt_zero_home(const zt_zero *z);

/*
 * Bring a partition's masters and state into memory (from files), and back after changing them.
 * Between the two calls part->master and state are pointers of zt_zero_home(z).
 */
int zt_zero_hold(zt_zero *z, uint32_t partition, ckpt_err *err);
int zt_zero_let_go(zt_zero *z, uint32_t partition, bool changed, ckpt_err *err);

/*
 * A parameter's working weights, whole, model's dtype, host memory of shape[..]; all ranks call it
 * (stage 3 gathers).
 */
int zt_zero_gather(zt_zero *z, uint32_t param, void *host, ckpt_err *err);

/* Bytes held by kind, for reports. */
typedef struct zt_memory {
    uint64_t weights, masters, state, gradients, buffers, activations;
} zt_memory;
void zt_zero_memory(const zt_zero *z, zt_memory *out);

#endif
