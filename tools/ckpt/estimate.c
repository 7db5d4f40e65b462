/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate.c: implements DeepSpeed's estimators of memory for model states.
 *
 * Sums of bytes per parameter: 2 (16-bit weights), 2 (their gradients), 4 + 4 (fp32 weights and
 * gradients), 8 (Adam).  Where DeepSpeed multiplies floats, this code computes the same doubles in
 * the same order, so the truncated results agree to the byte.
 */
#include "tools/ckpt/estimate.h"

#include <inttypes.h>

#include "tools/cli/out.h"

/* An estimate: bytes of host memory (before Python truncates it to an integer), and of a GPU. */
typedef struct es_need {
    double cpu;
    uint64_t gpu;
} es_need;

static double es_max(double a, double b)
{
    return a > b ? a : b;
}

/* int(per_param * params / n_gpus) as in Python: the rounded quotient, truncated. */
static bool es_share(uint64_t per_param, uint64_t params, uint64_t n_gpus, uint64_t *out)
{
    uint64_t product;

    if (__builtin_mul_overflow(per_param, params, &product))
        return false;
    *out = (uint64_t)((double)product / (double)n_gpus);
    return true;
}

/* Host memory: all fp32 states of the node's share, or a 4-byte copy of the model per process. */
static bool es_zero2(const estimate *e, uint64_t n_gpus, es_need *need)
{
    uint64_t weights, share = 0, per_param, host;

    per_param = e->offload_optimizer ? 4 * (n_gpus > 4 ? n_gpus : 4) : 4 * e->gpus;
    if (__builtin_mul_overflow(e->params, 2, &weights) ||
        __builtin_mul_overflow(e->params, per_param, &host) ||
        (!e->offload_optimizer && !es_share(18, e->params, n_gpus, &share)))
        return false;
    need->cpu = (double)host * e->factor;
    return !__builtin_add_overflow(weights, share, &need->gpu);
}

/*
 * GPU memory: the largest layer in 16 bits with its gradient, and a share of the states that stay
 * on the GPU.
 */
static bool es_zero3(const estimate *e, uint64_t n_gpus, es_need *need)
{
    double part = 1 / (double)e->nodes, params = (double)e->params;
    double each = 4 * (double)e->gpus; // fp32 copies at creation of the model, one per process
    uint64_t layer, share = 0, held = e->offload_param ? 18 : 16, host;

    if (__builtin_mul_overflow(e->largest, 4, &layer) ||
        __builtin_mul_overflow(e->params, held, &host))
        return false;
    if (!e->offload_optimizer)
        need->cpu = (double)(e->zero_init ? e->largest : e->params) * each * e->factor;
    else if (e->zero_init)
        need->cpu = (double)host * part * e->factor;
    else
        need->cpu = params * es_max(each, (double)held * part) * e->factor;
    if (!e->offload_optimizer || !e->offload_param) {
        if (!es_share(e->offload_optimizer ? 2 : 18, e->params, n_gpus, &share))
            return false;
    }
    return !__builtin_add_overflow(layer, share, &need->gpu);
}

int estimate_bytes(const estimate *e, uint64_t *cpu, uint64_t *gpu, ckpt_err *err)
{
    es_need need = {0, 0};
    uint64_t n_gpus;
    bool fits;

    if (e->stage != 2 && e->stage != 3)
        return fail(err, CKPT_EUSAGE, "memory estimates are for ZeRO stages 2 and 3, not %d",
                    e->stage);
    if (e->params == 0 || e->gpus == 0 || e->nodes == 0 || !(e->factor >= 0))
        return fail(err, CKPT_EUSAGE, "memory estimates need parameters, GPUs and nodes > 0");
    fits = !__builtin_mul_overflow(e->gpus, e->nodes, &n_gpus) && n_gpus < UINT32_MAX;
    fits = fits && (e->stage == 2 ? es_zero2(e, n_gpus, &need) : es_zero3(e, n_gpus, &need));
    if (!fits || !(need.cpu < 0x1p63))
        return fail(err, CKPT_ELIMIT,
                    "64 bits cannot count the bytes of the estimate: use fewer parameters or "
                    "GPUs");
    *cpu = (uint64_t)need.cpu;
    *gpu = need.gpu;
    return CKPT_OK;
}

/* A combination of offload options, and the memory that it needs. */
typedef struct es_row {
    bool optimizer, param, init;
    uint64_t cpu, gpu;
} es_row;

/*
 * "cpu " and "none" have equal widths, as DeepSpeed intends (with Python 3.11 and later it prints
 * the name of its enumeration instead).
 */
static void es_line(const es_row *row, int stage, FILE *out)
{
    fprintf(out, " %7.2fGB | %6.2fGB | ", (double)row->cpu / 0x1p30, (double)row->gpu / 0x1p30);
    if (stage == 3)
        fprintf(out, "offload_param=%s, ", row->param ? "cpu " : "none");
    fprintf(out, "offload_optimizer=%s", row->optimizer ? "cpu " : "none");
    if (stage == 3)
        fprintf(out, ", zero_init=%d", row->init);
    fputc('\n', out);
}

/* Print the table's head; millions are truncated, not rounded. */
static void es_head(const estimate *e, FILE *out)
{
    fprintf(out, "Estimated memory needed for params, optim states and gradients for a:\n");
    fprintf(out, "HW: Setup with %" PRIu64 " %s, %" PRIu64 " %s per node.\n", e->nodes,
            e->nodes > 1 ? "nodes" : "node", e->gpus, e->gpus > 1 ? "GPUs" : "GPU");
    fprintf(out, "SW: Model with %" PRIu64 "M total params", e->params / 1000000);
    if (e->stage == 3)
        fprintf(out, ", %" PRIu64 "M largest layer params", e->largest / 1000000);
    fprintf(out, ".\n  per CPU  |  per GPU |   Options\n");
}

int estimate_print(const estimate *e, FILE *out, ckpt_err *err)
{
    es_row row[6] = {{1, 1, 1, 0, 0}, {1, 1, 0, 0, 0}, {1, 0, 1, 0, 0},
                     {1, 0, 0, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 0, 0, 0}};
    estimate own = *e;
    int rc;

    for (size_t i = 0; i < 6; i++) {
        own.offload_optimizer = row[i].optimizer;
        own.offload_param = row[i].param;
        own.zero_init = row[i].init;
        rc = estimate_bytes(&own, &row[i].cpu, &row[i].gpu, err);
        if (rc != CKPT_OK)
            return rc;
    }
    es_head(e, out);
    for (size_t i = 0; i < 6; i++) {
        if (e->stage == 3 || i == 0 || i == 5)
            es_line(&row[i], e->stage, out);
    }
    return ferror(out) ? fail(err, CKPT_EIO, "the estimate was not written") : CKPT_OK;
}
