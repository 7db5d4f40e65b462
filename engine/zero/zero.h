/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero.h: declares the ZeRO runtime, which decides which rank holds which part of weights,
 * gradients and optimizer state, and when parts are sent.
 *
 *     zero.c      creation, the steps that all stages share in an update: norm, overflow, clipping,
 *                 counters
 *     groups.c    parameter groups, their order and settings
 *     flat.c      stages 0, 1, 2: full weights in one buffer per group, gradients reduced in
 *                 buckets
 *     sharded.c   stage 3: partitions per parameter, gathered per layer, ahead of use; sub-groups
 *     pool.c      offsets for gathered parameters in one block of memory
 *     average.c   the mean of gradients over ranks, with its roundings
 *     update.c    the optimizer's step over this rank's partitions
 *     muon.c      complete matrices for Muon
 *     pass.c      forward and backward over the chain of layers, with or without keeping
 *                 activations
 *     values.c    initial values, masters after a resume, owned runs, complete parameters
 *     offload.c   optimizer state and partitions in files, with bounded buffers
 *     home.c      optimizer state in host memory while weights are on a GPU, updates by the CPU
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
    zt_hyper hyper; /* settings of the next update */
    double lr;      /* rate in the configuration */
    double weight_decay;
    bool muon;        /* Muon updates it (matrices); false: Adam's half, or another optimizer */
    const char *name; /* DeepSpeed's name of a Muon half; NULL: another optimizer */
} zt_group;

/*
 * A flat piece of fp32 masters and state that this rank owns: a group's partition (stages 1, 2), a
 * whole group (stage 0), a sub-group's partition (stage 3).  In stage 0 with fp32, `master` points
 * to the weights.
 */
typedef struct zt_partition {
    uint32_t group;
    uint32_t first, n; /* its parameters: zero->order[first .. first + n) */
    uint64_t n_elems;  /* padding included */
    /* on the device; host memory when offloaded from a GPU; NULL while in files */
    float *master, *state[2];
    /* accumulated gradient, in config.accum_dtype (stage 3, 2: of this partition) */
    void *grad;
    void *low; /* stage 3: this partition's 16-bit (or fp32) weights; else NULL */
} zt_partition;

/* A run of a parameter's elements, and its location in this rank's partitions. */
typedef struct zt_owned {
    uint32_t param; /* index in the model */
    uint32_t partition;
    uint64_t first, count; /* elements of the flattened parameter */
    uint64_t at;           /* element in the partition */
} zt_owned;

/* The result of an optimizer step, at a gradient accumulation boundary. */
typedef struct zt_step {
    double grad_norm;  /* as DeepSpeed reports it; infinity if the update was skipped */
    double lr;         /* the first group's rate in this update */
    double loss_scale; /* loss scale used in this update */
    bool skipped;
} zt_step;

typedef struct zt_zero zt_zero;
struct zt_zero {
    zt_model *model;
    const zt_config *config;
    zt_comm *comm; /* for control data, in host memory */
    /* for tensors; equal to comm if the device's memory is the host's */
    zt_comm *wire;
    zt_device *device;

    /*
     * trained parameters, group after group, in the order of the flat buffers (after round robin)
     */
    uint32_t *order;
    uint32_t *given; /* the parameters in the optimizer's order, before round robin */
    uint32_t n_order;
    /* stage 3: saves list Muon's matrices in the model's order, not by size (zero.Init) */
    bool plain_matrices;
    zt_group *group;
    uint32_t n_groups;
    zt_partition *part;
    uint32_t n_parts;

    zt_schedule schedule;
    zt_scaler scaler;
    int64_t updates; /* applied updates: the optimizer's step count */
    int64_t micro_steps, global_steps, global_samples, skipped;
    void *own; /* zr_own */
};

/*
 * Create the runtime: groups, partitions, buffers.  Weights are undefined until zt_zero_fill or a
 * load.
 *
 * grouping  "single", or "decay": parameters with at most one axis get a group without weight decay
 * Errors    CKPT_EUNSUPPORTED: a combination that is not supported (the text names it); CKPT_ELIMIT
 */
typedef struct zt_zero_opts {
    const char *grouping;
    bool keep_activations_not;   /* true: activation checkpointing */
    uint64_t max_batch, max_seq; /* largest micro batch; 0: buffers grow on demand */
    uint64_t max_decoder_seq;    /* tokens of its targets (T5), else 0 */
    uint64_t seed;               /* seed of dropout */
    /* for tensors; NULL: comm, which then must reach the device's memory (or has one rank) */
    zt_comm *wire;
    /* for updates on the host, if a GPU's state is offloaded; 0: one per CPU */
    unsigned host_threads;
} zt_zero_opts;
int zt_zero_new(zt_zero **out, zt_model *model, const zt_config *config, zt_comm *comm,
                const zt_zero_opts *opts, ckpt_err *err);
void zt_zero_free(zt_zero *z);

/*
 * Set the initial values of all parameters: fp32, rounded once to the model's dtype.  Masters are
 * the rounded values, as in DeepSpeed.  The runtime calls `value` for the runs of elements that
 * this rank needs, so calls differ between ranks.
 */
typedef int (*zt_value_fn)(void *ctx, uint32_t param, uint64_t first, uint64_t count, float *out,
                           ckpt_err *err);
int zt_zero_fill(zt_zero *z, zt_value_fn value, void *ctx, ckpt_err *err);

/* The same for frozen parameters alone; a resume needs it, because they have no masters. */
int zt_zero_fill_frozen(zt_zero *z, zt_value_fn value, void *ctx, ckpt_err *err);

/*
 * Compute the working weights from the masters and gather them.  Call it after a resume has written
 * masters and state.
 */
int zt_zero_refresh(zt_zero *z, ckpt_err *err);

/*
 * One micro step: forward and backward.  The batch is host memory; *loss is this rank's.  Call
 * zt_zero_step after it, which detects boundaries.
 */
int zt_zero_micro(zt_zero *z, const zt_batch *batch, double *loss, ckpt_err *err);

/* Finish a micro step; at a boundary, update the weights and set *step. */
int zt_zero_step(zt_zero *z, zt_step *step, ckpt_err *err);

/* Forward only.  logits (device, model's dtype) as in zt_pass, or NULL. */
int zt_zero_evaluate(zt_zero *z, const zt_batch *batch, void *logits, double *loss, ckpt_err *err);

/* This rank's runs of every trained parameter (for saving and loading): *n of them, owned by z. */
const zt_owned *zt_zero_owned(const zt_zero *z, size_t *n);

/*
 * The device whose memory holds masters and state: z->device, or the CPU device if they are
 * offloaded from a GPU.  If that memory is not the host's (host), access it by get and put.
 */
zt_device *zt_zero_home(const zt_zero *z);

/*
 * Bring a partition's masters and state into memory (from files), and put them back after changes.
 * Between the two calls part->master and state are pointers of zt_zero_home(z).
 */
int zt_zero_hold(zt_zero *z, uint32_t partition, ckpt_err *err);
int zt_zero_let_go(zt_zero *z, uint32_t partition, bool changed, ckpt_err *err);

/*
 * Get a parameter's working weights, complete, in the model's dtype, into host memory of shape[..].
 * All ranks must call it, because stage 3 gathers.
 */
int zt_zero_gather(zt_zero *z, uint32_t param, void *host, ckpt_err *err);

/* Bytes by purpose, for reports. */
typedef struct zt_memory {
    uint64_t weights, masters, state, gradients, buffers, activations;
} zt_memory;
void zt_zero_memory(const zt_zero *z, zt_memory *out);

/*
 * Seconds of all updates so far with state offloaded from a GPU; both run at the same time.
 *
 * update  of the host's computation
 * copies  of gradients to the host and weights back; without a wait for the GPU before an update,
 *         the first copy contains it
 */
typedef struct zt_home_times {
    double update, copies;
} zt_home_times;

/* The times; zeros without such state.  Not during an update. */
void zt_zero_home_times(const zt_zero *z, zt_home_times *out);

#endif
