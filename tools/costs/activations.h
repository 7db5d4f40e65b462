/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activations.h: declares the bytes that a rank stores in a forward pass for the backward pass, and
 * how pipelines change them.
 *
 * Transformer layers as in GPT: s tokens, b samples, h hidden, a heads, an MLP of 4 h, dropout
 * masks of a byte.  Korthikanti et al. 2022 (Reducing Activation Recomputation in Large Transformer
 * Models), table 2: a layer stores s b h (34 + 5 a s / h) bytes in 16 bits.  t tensor parallel
 * ranks store s b h (10 + 24 / t + 5 a s / (h t)) each; with sequence parallelism all terms are
 * divided by t.  Selective recomputation omits attention's 5 a s / h; full recomputation stores
 * only the layer's input, 2 s b h.  FlashAttention (Dao et al. 2022) stores 4 a s b for attention:
 * fp32 sums of its rows.
 *
 * Pipelines: Huang et al. 2019 (GPipe), Narayanan et al. 2021 (1F1B, interleaved).
 */
#ifndef ACTIVATIONS_H
#define ACTIVATIONS_H

#include "tools/costs/costs.h"

typedef enum acts_mode {
    ACTS_WHOLE,     /* all activations are stored */
    ACTS_SELECTIVE, /* the inside of attention is recomputed */
    ACTS_FULL,      /* all except the layer's input is recomputed */
    ACTS_MODES
} acts_mode;

typedef enum acts_schedule {
    ACTS_ONE,         /* no pipeline: one micro batch after the other */
    ACTS_1F1B,        /* at most as many micro batches under way as stages */
    ACTS_GPIPE,       /* all micro batches under way */
    ACTS_INTERLEAVED, /* 1F1B with several parts of the model per stage */
    ACTS_SCHEDULES
} acts_schedule;

/*
 * The job.  costs_job must have layers, hidden, micro_batch, tokens, tensor, pipeline, interleave,
 * accumulation.
 */
typedef struct acts_job {
    costs_job cut;
    uint64_t heads;
    bool sequence; /* sequence parallelism among tensor parallel ranks */
    bool flash;
} acts_job;

/*
 * Check that such a job is possible.
 *
 * Errors  CKPT_EUSAGE: heads or tokens that cannot be divided among ranks, micro batches that
 *         stages cannot share
 */
int acts_check(const acts_job *job, ckpt_err *err);

/* Bytes that one layer stores on each rank for one micro batch.  Errors: CKPT_ELIMIT. */
int acts_layer(const acts_job *job, acts_mode mode, uint64_t *out, ckpt_err *err);

/* True if the job can run with this schedule. */
bool acts_applies(const acts_job *job, acts_schedule schedule);

/* Layers under way at once, counted per micro batch, on the first stage, which has the most. */
uint64_t acts_under_way(const acts_job *job, acts_schedule schedule);

/*
 * Bytes of all layers under way; with full recomputation, plus one layer that is being recomputed.
 *
 * Errors  CKPT_ELIMIT
 */
int acts_bytes(const acts_job *job, acts_schedule schedule, acts_mode mode, uint64_t *out,
               ckpt_err *err);

/* The fraction of a step in which a rank waits for others: (p-1) / (v m + p-1). */
double acts_idle(const costs_job *job);

/* Names in JSON: "full" ..., "1f1b" ... */
const char *acts_mode_name(acts_mode mode);
const char *acts_schedule_name(acts_schedule schedule);

#endif
