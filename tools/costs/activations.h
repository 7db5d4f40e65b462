/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activations.h: what a rank keeps of a forward pass for the backward pass, and what pipelines make
 * of it.
 *
 * Transformer layers as GPT has them: s tokens, b samples, h hidden, a heads, an MLP of 4 h,
 * dropout masks of a byte.  Korthikanti et al. 2022 (Reducing Activation Recomputation in Large
 * Transformer Models), table 2: a layer keeps s b h (34 + 5 a s / h) bytes in 16 bits; t tensor
 * parallel ranks leave s b h (10 + 24 / t + 5 a s / (h t)), with sequence parallelism all of it
 * divided by t; selective recomputation leaves out the 5 a s / h of attention, full recomputation
 * leaves the layer's input, 2 s b h.  FlashAttention (Dao et al. 2022) keeps 4 a s b of attention:
 * fp32 sums of its rows.
 *
 * Pipelines: Huang et al. 2019 (GPipe), Narayanan et al. 2021 (1F1B, interleaved).
 */
#ifndef ACTIVATIONS_H
#define ACTIVATIONS_H

#include "tools/costs/costs.h"

typedef enum acts_mode {
    ACTS_WHOLE,     /* all is kept */
    ACTS_SELECTIVE, /* attention's inside is computed again */
    ACTS_FULL,      /* all but the layer's input is */
    ACTS_MODES
} acts_mode;

typedef enum acts_schedule {
    ACTS_ONE,         /* no pipeline: one micro batch after the other */
    ACTS_1F1B,        /* as many micro batches under way as there are stages, at most */
    ACTS_GPIPE,       /* all of them */
    ACTS_INTERLEAVED, /* 1F1B with several parts of the model in each stage */
    ACTS_SCHEDULES
} acts_schedule;

/* costs_job has layers, hidden, micro_batch, tokens, tensor, pipeline, interleave, accumulation. */
typedef struct acts_job {
    costs_job cut;
    uint64_t heads;
    bool sequence; /* sequence parallelism among the tensor parallel ranks */
    bool flash;
} acts_job;

/*
 * Whether such a job can be.
 *
 * Errors  CKPT_EUSAGE: heads or tokens that ranks cannot share, micro batches that stages cannot
 */
int acts_check(const acts_job *job, ckpt_err *err);

/* Bytes that one layer keeps of one micro batch on each rank.  Errors: CKPT_ELIMIT. */
int acts_layer(const acts_job *job, acts_mode mode, uint64_t *out, ckpt_err *err);

/* Whether the job can run so. */
bool acts_applies(const acts_job *job, acts_schedule schedule);

/* Layers under way at once, counted for each micro batch, on the first stage, which has most. */
uint64_t acts_under_way(const acts_job *job, acts_schedule schedule);

/*
 * Bytes of all layers that are under way; with full recomputation and one layer that is computed
 * again.
 *
 * Errors  CKPT_ELIMIT
 */
int acts_bytes(const acts_job *job, acts_schedule schedule, acts_mode mode, uint64_t *out,
               ckpt_err *err);

/* The share of a step in which a rank waits for others: (p-1) / (v m + p-1). */
double acts_idle(const costs_job *job);

/* "full" ..., "1f1b" ...: as JSON has them. */
const char *acts_mode_name(acts_mode mode);
const char *acts_schedule_name(acts_schedule schedule);

#endif
