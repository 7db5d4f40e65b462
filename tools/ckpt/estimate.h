/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate.h: declares DeepSpeed's estimators of the memory for a model's states under ZeRO.
 *
 * States are 16-bit weights and gradients, and fp32 weights and Adam's moments; activations are not
 * included.  Source: estimate_zero{2,3}_model_states_mem_needs of DeepSpeed 0.19.8
 * (runtime/zero/stage_1_and_2.py, stage3.py).  Results and tables equal DeepSpeed's exactly.
 */
#ifndef ESTIMATE_H
#define ESTIMATE_H

#include <stdio.h>

#include "ckpt.h"

#define ESTIMATE_FACTOR 1.5 /* the estimators' additional_buffer_factor */

/*
 * The inputs of an estimate.
 *
 * params   elements of the model; shared ones count once
 * largest  parameters of the largest layer: a module's own, without its children (stage 3 only)
 * factor   for host memory, which allows for buffers
 */
typedef struct estimate {
    int stage; /* ZeRO stage: 2 or 3 */
    uint64_t params, largest;
    uint64_t gpus, nodes; /* GPUs of each node */
    bool offload_optimizer;
    bool offload_param, zero_init; /* stage 3 only */
    double factor;
} estimate;

/*
 * Compute bytes of host memory per node, and of each GPU.
 *
 * Errors  CKPT_EUSAGE: a stage, or a count of 0; CKPT_ELIMIT: beyond 64 bits
 */
int estimate_bytes(const estimate *e, uint64_t *cpu, uint64_t *gpu, ckpt_err *err);

/* Print the estimator's table of all ways to offload; ignores the booleans of e. */
int estimate_print(const estimate *e, FILE *out, ckpt_err *err);

#endif
