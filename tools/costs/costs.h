/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.h: what a way of training sends from GPU to GPU in one update, and how long that takes at
 * least.
 *
 * K parameters, N data parallel ranks.  A reduce-scatter or an all-gather of n bytes takes
 * n (N-1)/N out of each rank and into it, whatever the path (Patarasuk and Yuan 2009); an
 * all-reduce is one after the other.  Rajbhandari et al. 2020 (ZeRO), section 7: stages 1 and 2
 * move as much as an all-reduce, stage 3 half as much again.  With G micro batches, what reduces
 * gradients in each micro step (stages 2 and 3, of which no rank keeps whole ones) does so G times,
 * as DeepSpeed and zerotrain do.
 *
 * Rings follow the ranks, tensor parallel ones first, then data parallel ones, then pipeline
 * stages, GPU after GPU and node after node: of each ring one hop leaves a node.
 */
#ifndef COSTS_H
#define COSTS_H

#include "ckpt.h"

/* How a job is cut; counts are at least 1. */
typedef struct costs_job {
    uint64_t params;              /* K, of the whole model */
    uint64_t gpus, nodes;         /* GPUs of each node */
    uint64_t tensor;              /* ranks that share each layer */
    uint64_t pipeline;            /* stages; their layers are equal parts */
    uint64_t interleave;          /* parts of the model that each stage has */
    uint64_t accumulation;        /* G: micro batches of an update */
    uint64_t weight_bytes;        /* an element of weights or activations on the way: 2 or 4 */
    uint64_t gradient_bytes;      /* one of gradients */
    uint64_t layers, hidden;      /* 0: not known, and activations are not counted */
    uint64_t micro_batch, tokens; /* samples, and tokens of each; 0: not known */
    double link;                  /* GB/s of a GPU to those of its node, each way; 0: not known */
    double node_link;             /* GB/s of a node to others, each way; 0: not known */
} costs_job;

typedef enum costs_scheme {
    COSTS_SERVER,   /* a machine of its own sums gradients and hands weights out (Li et al. 2014) */
    COSTS_ZERO0,    /* ring all-reduce of gradients */
    COSTS_ZERO1,    /* their reduce-scatter, and an all-gather of weights */
    COSTS_ZERO2,    /* a reduction in each micro step */
    COSTS_ZERO3,    /* and two all-gathers of weights in each */
    COSTS_TENSOR,   /* sums of activations within layers (Shoeybi et al. 2019) */
    COSTS_PIPELINE, /* activations from stage to stage, and their gradients back */
    COSTS_SCHEMES
} costs_scheme;

/* Of one update.  Ranks receive what they send. */
typedef struct costs_flow {
    uint64_t sent;   /* bytes of a rank (the busiest), rounded up */
    uint64_t all;    /* of all ranks together; the server's own are not among them */
    uint64_t inside; /* those of `sent` for which the speed between a node's GPUs counts */
    uint64_t node;   /* bytes that leave a node (the busiest), rounded up */
    uint64_t server; /* bytes into, and out of, the machine that others wait for; 0: none */
    double seconds;  /* at the given speeds, one thing after the other; negative: not known */
} costs_flow;

/*
 * Whether the job can be cut so: parallel ranks fill nodes and the job, options have an effect.
 *
 * Errors  CKPT_EUSAGE: what does not fit, and what would; CKPT_ELIMIT: too large
 */
int costs_check(const costs_job *job, ckpt_err *err);

/* Data parallel ranks of a job that was checked. */
uint64_t costs_data_ranks(const costs_job *job);

/* "parameter-server", "all-reduce", "zero-1" ... as JSON has it; and a name for people. */
const char *costs_name(costs_scheme scheme);
const char *costs_title(costs_scheme scheme);

/* True if the job has such traffic: pipelines exclude stages 2 and 3 (as in DeepSpeed). */
bool costs_applies(const costs_job *job, costs_scheme scheme);

/*
 * What a scheme moves, for a job that was checked.
 *
 * Errors  CKPT_ELIMIT: beyond 64 bits
 */
int costs_flow_of(const costs_job *job, costs_scheme scheme, costs_flow *out, ckpt_err *err);

#endif
