/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_loss.c: computes losses on the CPU, and writes their gradients over the logits.
 *
 * A row of logits stays in a worker's second-level cache for its three passes: maximum, exponents
 * and their sum, gradient.  Losses of rows are summed in their order, in fp64.
 */
#include <math.h>
#include <string.h>

#include "engine/device/cpu.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/vmath.h"
#include "libckpt/base/mem.h"

#define LO_GRAIN (8u * ZT_CPU_BLOCK) /* elements per range */

typedef struct lo_job {
    zt_device *device;
    ckpt_dtype dt;
    zt_loss a;
    double *row_loss; /* [rows] */
    float factor;     /* factor of gradients: the call's / number of rows that count */
} lo_job;

/* Maximum of n > 0 elements.  It may skip a NaN, because the sum becomes NaN anyway. */
ZT_CLONES static float lo_max(const float *x, uint64_t n)
{
    float top = x[0];
    uint64_t i = 0;
    if (n >= ZT_LANES) {
        zt_v most;
        zt_v_load(&most, x);
        for (i = ZT_LANES; i + ZT_LANES <= n; i += ZT_LANES) {
            zt_v v;
            zt_v_load(&v, x + i);
            zt_v_max(&most, &v);
        }
        top = zt_v_top(&most);
    }
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

/* out = exp(x - top) for one block; returns the sum. */
ZT_CLONES static double lo_exp(float *out, const float *x, uint64_t n, float top)
{
    zt_v sum = {0};
    uint64_t i = 0;
    for (; i + ZT_LANES <= n; i += ZT_LANES) {
        zt_v v;
        zt_v_load(&v, x + i);
        v -= top;
        zt_v_exp(&v);
        sum += v;
        zt_v_store(out + i, &v);
    }
    double total = (double)zt_v_sum(&sum);
    if (i < n) {
        zt_v v = {0};
        memcpy(&v, x + i, (n - i) * sizeof *x);
        v -= top;
        zt_v_exp(&v);
        memcpy(out + i, &v, (n - i) * sizeof *x);
        for (; i < n; i++)
            total += (double)out[i];
    }
    return total;
}

ZT_CLONES static void lo_scale(float *y, uint64_t n, float factor)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] *= factor;
}

/* ---- cross entropy ------------------------------------------------------------------------- */

/* Sum of exponents of a row; stores them in `out` (may be x). */
static double lo_exp_row(float *out, const float *x, uint64_t n, float top)
{
    double sum = 0;
    for (uint64_t at = 0; at < n; at += ZT_CPU_BLOCK) {
        uint64_t part = n - at < ZT_CPU_BLOCK ? n - at : ZT_CPU_BLOCK;
        sum += lo_exp(out + at, x + at, part, top);
    }
    return sum;
}

/*
 * Sum of exponents without storing them: a gradient is not needed, so a block of memory is enough.
 */
static double lo_exp_sum(const float *x, uint64_t n, float top)
{
    float room[ZT_CPU_BLOCK];
    double sum = 0;
    for (uint64_t at = 0; at < n; at += ZT_CPU_BLOCK) {
        uint64_t part = n - at < ZT_CPU_BLOCK ? n - at : ZT_CPU_BLOCK;
        sum += lo_exp(room, x + at, part, top);
    }
    return sum;
}

static void lo_entropy_row(const lo_job *j, uint64_t row, float *room)
{
    const zt_loss *a = &j->a;
    uint64_t n = a->classes, at = row * a->ld;
    int32_t label = a->label[row];
    void *logits = zt_cpu_at(j->dt, a->logits, at);
    if (label == ZT_IGNORE) {
        if (a->grad)
            memset(logits, 0, n * zt_size(j->dt));
        return;
    }
    if (label < 0 || (uint64_t)label >= n) {
        zt_device_fail(j->device, CKPT_EUSAGE, "loss: a label is not one of the classes");
        return;
    }
    const float *x = zt_cpu_read(j->dt, logits, 0, n, room);
    float top = lo_max(x, n), own = x[label];
    float *out = j->dt == CKPT_F32 ? logits : room;
    double sum = a->grad ? lo_exp_row(out, x, n, top) : lo_exp_sum(x, n, top);
    j->row_loss[row] = log(sum) - ((double)own - (double)top);
    if (!a->grad)
        return;
    double scale = (double)j->factor / sum;
    double at_label = (double)out[label] / sum - 1.0;
    lo_scale(out, n, (float)scale);
    out[label] = (float)(at_label * (double)j->factor);
    if (j->dt != CKPT_F32)
        zt_cpu_store(j->dt, logits, 0, out, n);
}

/* ---- mean squared error, binary cross entropy ---------------------------------------------- */

/* Loss of one element; *slope its derivative. */
static double lo_element(zt_loss_kind kind, double x, double target, double *slope)
{
    if (kind == ZT_MSE) {
        double e = x - target;
        *slope = 2.0 * e;
        return e * e;
    }
    // -t log s(x) - (1 - t) log(1 - s(x)) = max(x, 0) - x t + log(1 + exp(-|x|)), s the logistic
    // function
    double e = exp(-fabs(x));
    *slope = (x >= 0 ? 1.0 / (1.0 + e) : e / (1.0 + e)) - target;
    return (x > 0 ? x : x < 0 ? 0 : x) - x * target + log1p(e);
}

static void lo_element_row(const lo_job *j, uint64_t row, float *room)
{
    const zt_loss *a = &j->a;
    uint64_t n = a->classes;
    zt_cpu_load(j->dt, room, a->logits, row * a->ld, n);
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        double slope = 0;
        sum += lo_element(a->kind, (double)room[i], (double)a->target[row * n + i], &slope);
        room[i] = (float)(slope * (double)j->factor);
    }
    j->row_loss[row] = sum;
    if (a->grad)
        zt_cpu_store(j->dt, a->logits, row * a->ld, room, n);
}

/* ---- all ----------------------------------------------------------------------------------- */

static void lo_rows(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const lo_job *j = ctx;
    float *room = zt_cpu_scratch(j->device, worker, j->a.classes * sizeof *room);
    for (uint64_t row = first; room && row < last; row++) {
        if (j->a.kind == ZT_CROSS_ENTROPY)
            lo_entropy_row(j, row, room);
        else
            lo_element_row(j, row, room);
    }
}

/* The divisor of the sum of losses. */
static double lo_count(const zt_loss *a)
{
    if (a->kind != ZT_CROSS_ENTROPY)
        return (double)a->rows * (double)a->classes;
    uint64_t n = 0;
    for (uint64_t i = 0; i < a->rows; i++)
        n += a->label[i] != ZT_IGNORE;
    return (double)n;
}

void zt_cpu_loss(zt_device *d, ckpt_dtype dt, const zt_loss *a)
{
    if (!zt_ready(d, dt, zt_ok_loss(a), "loss"))
        return;
    lo_job j = {.device = d, .dt = dt, .a = *a};
    double count = lo_count(a), sum = 0;
    j.a.ld = zt_stride(a->ld, a->classes);
    j.factor = (float)((double)a->factor / count);
    j.row_loss = ckpt_alloc((size_t)(a->rows + 1) * sizeof *j.row_loss);
    if (!j.row_loss) {
        zt_device_fail(d, CKPT_ELIMIT, "loss: out of memory");
        return;
    }
    zt_cpu_parallel(d, a->rows, LO_GRAIN / a->classes + 1, lo_rows, &j);
    for (uint64_t i = 0; i < a->rows; i++)
        sum += j.row_loss[i];
    ckpt_free(j.row_loss);
    *a->loss = sum / count;
}
