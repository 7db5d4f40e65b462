/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.h: declares the bytes that GPUs send in one update for each way of parallel training, and
 * the minimum time for that.
 *
 * K parameters, N data parallel ranks.  A reduce-scatter or an all-gather of n bytes sends and
 * receives n (N-1)/N bytes per rank on any path (Patarasuk and Yuan 2009); an all-reduce is both in
 * turn.  Rajbhandari et al. 2020 (ZeRO), section 7: stages 1 and 2 transfer as much as an
 * all-reduce, stage 3 transfers 1.5 times as much.  With G micro batches, stages 2 and 3 reduce
 * gradients G times, as in DeepSpeed and zerotrain, because no rank keeps complete gradients.
 *
 * Rings follow the order of ranks, tensor parallel ones first, then data parallel ones, then
 * pipeline stages, GPU after GPU and node after node, so each ring has one hop out of a node.
 */
#ifndef COSTS_H
#define COSTS_H

#include "ckpt.h"

/* The division of a job; counts are at least 1. */
typedef struct costs_job {
    uint64_t params;              /* K, of the whole model */
    uint64_t gpus, nodes;         /* GPUs of each node */
    uint64_t tensor;              /* ranks that share each layer */
    uint64_t pipeline;            /* stages, with equal numbers of layers */
    uint64_t interleave;          /* parts of the model (virtual stages) per pipeline stage */
    uint64_t accumulation;        /* G: micro batches per update */
    uint64_t weight_bytes;        /* bytes per sent weight or activation: 2 or 4 */
    uint64_t gradient_bytes;      /* bytes per sent gradient */
    uint64_t layers, hidden;      /* 0: unknown, so activations are not counted */
    uint64_t micro_batch, tokens; /* samples, and tokens of each; 0: unknown */
    double link;                  /* GB/s between GPUs of a node, each way; 0: unknown */
    double node_link;             /* GB/s between nodes, each way; 0: unknown */
} costs_job;

typedef enum costs_scheme {
    COSTS_SERVER,   /* a separate machine sums gradients and sends weights (Li et al. 2014) */
    COSTS_ZERO0,    /* ring all-reduce of gradients */
    COSTS_ZERO1,    /* reduce-scatter of gradients, all-gather of weights */
    COSTS_ZERO2,    /* as ZERO1, with a reduction per micro step */
    COSTS_ZERO3,    /* as ZERO2, with two all-gathers of weights per micro step */
    COSTS_TENSOR,   /* sums of activations within layers (Shoeybi et al. 2019) */
    COSTS_PIPELINE, /* activations and their gradients between stages */
    COSTS_SCHEMES
} costs_scheme;

/* Traffic of one update.  Ranks receive as much as they send. */
typedef struct costs_flow {
    uint64_t sent;   /* bytes of the busiest rank, rounded up */
    uint64_t all;    /* bytes of all ranks together, without the server's */
    uint64_t inside; /* part of `sent` that uses links inside a node */
    uint64_t node;   /* bytes that leave the busiest node, rounded up */
    uint64_t server; /* bytes into, and out of, the server; 0: none */
    double seconds;  /* minimum time at the given speeds, without overlap; negative: unknown */
} costs_flow;

/*
 * Check that the job can be divided in this way: parallel ranks fill nodes and the job, and all
 * options have an effect.
 *
 * Errors  CKPT_EUSAGE: the number that does not fit, and one that would; CKPT_ELIMIT: too large
 */
int costs_check(const costs_job *job, ckpt_err *err);

/* Data parallel ranks of a checked job. */
uint64_t costs_data_ranks(const costs_job *job);

/* Names in JSON ("parameter-server", "all-reduce", "zero-1" ...), and names for people. */
const char *costs_name(costs_scheme scheme);
const char *costs_title(costs_scheme scheme);

/* True if the job has this traffic: pipelines exclude stages 2 and 3 (as in DeepSpeed). */
bool costs_applies(const costs_job *job, costs_scheme scheme);

/*
 * Compute the traffic of a scheme, for a checked job.
 *
 * Errors  CKPT_ELIMIT: beyond 64 bits
 */
int costs_flow_of(const costs_job *job, costs_scheme scheme, costs_flow *out, ckpt_err *err);

#endif
