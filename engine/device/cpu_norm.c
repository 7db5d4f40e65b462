/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_norm.c: computes layer norm and RMS norm on the CPU, forward and backward.
 *
 * Forward and dx go row by row.  Gradients of the weights are sums over rows, so they are divided
 * by columns: no two workers write the same sum, and its order does not depend on them.
 */
#include <math.h>
#include <string.h>

#include "engine/device/cpu.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/formulas.h"

/* Elements per range of rows. */
#define NM_GRAIN (8u * ZT_CPU_BLOCK)

/* Columns that are summed together, and rows per partial sum. */
#define NM_COLUMNS 64u
#define NM_ROWS    64u

typedef struct nm_job {
    zt_device *device;
    ckpt_dtype dt;
    zt_norm fw;
    zt_norm_grad bw;
} nm_job;

/* ---- sums over a row: 32 sums in turn, added up in fp64 ------------------------------------ */

ZT_INLINE double nm_total(const zt_v *sum)
{
    double total = 0;
    for (unsigned i = 0; i < 2 * ZT_LANES; i++)
        total += (double)sum[i / ZT_LANES][i % ZT_LANES];
    return total;
}

ZT_CLONES static double nm_sum(const float *x, uint64_t n)
{
    zt_v sum[2] = {{0}, {0}};
    uint64_t i = 0;
    for (; i + 2 * ZT_LANES <= n; i += 2 * ZT_LANES) {
        for (unsigned h = 0; h < 2; h++) {
            zt_v v;
            zt_v_load(&v, x + i + h * ZT_LANES);
            sum[h] += v;
        }
    }
    double total = nm_total(sum);
    for (; i < n; i++)
        total += (double)x[i];
    return total;
}

/* Sum of (x - mean)^2. */
ZT_CLONES static double nm_squares(const float *x, uint64_t n, float mean)
{
    zt_v sum[2] = {{0}, {0}};
    uint64_t i = 0;
    for (; i + 2 * ZT_LANES <= n; i += 2 * ZT_LANES) {
        for (unsigned h = 0; h < 2; h++) {
            zt_v v;
            zt_v_load(&v, x + i + h * ZT_LANES);
            v -= mean;
            sum[h] += v * v;
        }
    }
    double total = nm_total(sum);
    for (; i < n; i++) {
        double v = (double)(x[i] - mean);
        total += v * v;
    }
    return total;
}

/* Sum of a * b. */
ZT_CLONES static double nm_dot(const float *a, const float *b, uint64_t n)
{
    zt_v sum[2] = {{0}, {0}};
    uint64_t i = 0;
    for (; i + 2 * ZT_LANES <= n; i += 2 * ZT_LANES) {
        for (unsigned h = 0; h < 2; h++) {
            zt_v v, w;
            zt_v_load(&v, a + i + h * ZT_LANES);
            zt_v_load(&w, b + i + h * ZT_LANES);
            sum[h] += v * w;
        }
    }
    double total = nm_total(sum);
    for (; i < n; i++)
        total += (double)a[i] * (double)b[i];
    return total;
}

/* ---- forward ------------------------------------------------------------------------------- */

/* out = (x - mean) * rstd. */
ZT_CLONES static void nm_standard(float *out, const float *x, uint64_t n, float mean, float rstd)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = zt_norm_hat(x[i], mean, rstd);
}

/* y = y * w + b; b NULL: none. */
ZT_CLONES static void nm_affine(float *y, const float *w, const float *b, uint64_t n)
{
    if (!b) {
        for (uint64_t i = 0; i < n; i++)
            y[i] *= w[i];
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        y[i] = y[i] * w[i] + b[i];
}

/* The factors of a row: w, or 1 + w. */
static void nm_weight(const nm_job *j, float *to, const void *w, bool plus_one, uint64_t n)
{
    zt_cpu_load(j->dt, to, w, 0, n);
    for (uint64_t i = 0; plus_one && i < n; i++)
        to[i] += 1.0F;
}

/* Round to dt and back to fp32, as storing and loading would; `room` takes 2n bytes. */
static void nm_round(ckpt_dtype dt, float *x, uint64_t n, void *room)
{
    if (dt != CKPT_F32) {
        zt_cpu_store(dt, room, 0, x, n);
        zt_cpu_load(dt, x, room, 0, n);
    }
}

/* The row s = x + add, rounded, and stored if the caller wants it. */
static const float *nm_input(const nm_job *j, uint64_t at, float *room, float *room2)
{
    const zt_norm *a = &j->fw;
    const float *x = zt_cpu_read(j->dt, a->x, at, a->width, room);
    if (!a->add)
        return x;
    zt_cpu_sum(room, x, zt_cpu_read(j->dt, a->add, at, a->width, room2), a->width);
    nm_round(j->dt, room, a->width, room2);
    if (a->sum)
        zt_cpu_store(j->dt, a->sum, at, room, a->width);
    return room;
}

static void nm_forward_row(const nm_job *j, uint64_t row, const float *wb, float *room)
{
    const zt_norm *a = &j->fw;
    uint64_t n = a->width, at = row * n;
    float *out = room + n, *spare = room + 2 * n;
    const float *s = nm_input(j, at, room, spare);
    double count = (double)n;
    float mean = a->rms ? 0.0F : (float)(nm_sum(s, n) / count);
    float variance = (float)(nm_squares(s, n, mean) / count);
    float rstd = 1.0F / sqrtf(variance + a->eps);
    float *y = j->dt == CKPT_F32 ? (float *)a->y + at : out;
    nm_standard(y, s, n, mean, rstd);
    if (a->rms && !a->once)
        nm_round(j->dt, y, n, spare);
    nm_affine(y, wb, a->b ? wb + n : NULL, n);
    if (j->dt != CKPT_F32)
        zt_cpu_store(j->dt, a->y, at, y, n);
    if (a->mean)
        a->mean[row] = mean;
    if (a->rstd)
        a->rstd[row] = rstd;
}

static void nm_forward_rows(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const nm_job *j = ctx;
    uint64_t n = j->fw.width;
    float *room = zt_cpu_scratch(j->device, worker, 5 * n * sizeof(float));
    if (!room)
        return;
    float *wb = room + 3 * n;
    nm_weight(j, wb, j->fw.w, j->fw.plus_one, n);
    if (j->fw.b)
        zt_cpu_load(j->dt, wb + n, j->fw.b, 0, n);
    for (uint64_t row = first; row < last; row++)
        nm_forward_row(j, row, wb, room);
}

void zt_cpu_norm(zt_device *d, ckpt_dtype dt, const zt_norm *a)
{
    if (!zt_ready(d, dt, zt_ok_norm(a), "norm") || a->rows == 0)
        return;
    nm_job j = {.device = d, .dt = dt, .fw = *a};
    zt_cpu_parallel(d, a->rows, NM_GRAIN / a->width + 1, nm_forward_rows, &j);
}

/* ---- backward: x --------------------------------------------------------------------------- */

/* out = (g - c1 - xhat * c2) * rstd [+ old]. */
ZT_CLONES static void nm_dx(float *restrict out, const float *g, const float *xhat, uint64_t n,
                            const float *c)
{
    const float c1 = c[0], c2 = c[1], rstd = c[2];
    for (uint64_t i = 0; i < n; i++)
        out[i] = zt_norm_dx(g[i], xhat[i], c1, c2, rstd);
}

static void nm_dx_row(const nm_job *j, uint64_t row, const float *w, float *room)
{
    const zt_norm_grad *a = &j->bw;
    uint64_t n = a->width, at = row * n;
    float *xhat = room, *g = room + n, *out = room + 2 * n;
    const float *x = zt_cpu_read(j->dt, a->x, at, n, xhat);
    nm_standard(xhat, x, n, a->rms ? 0.0F : a->mean[row], a->rstd[row]);
    const float *dy = zt_cpu_read(j->dt, a->dy, at, n, g);
    if (dy != g)
        memcpy(g, dy, n * sizeof *g);
    nm_affine(g, w, NULL, n);
    float c[3] = {0.0F, 0.0F, a->rstd[row]};
    c[0] = a->rms ? 0.0F : (float)(nm_sum(g, n) / (double)n);
    c[1] = (float)(nm_dot(g, xhat, n) / (double)n);
    nm_dx(out, g, xhat, n, c);
    if (a->dx_add)
        zt_cpu_sum(out, out, zt_cpu_read(j->dt, a->dx, at, n, xhat), n);
    zt_cpu_store(j->dt, a->dx, at, out, n);
}

static void nm_dx_rows(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const nm_job *j = ctx;
    uint64_t n = j->bw.width;
    float *room = zt_cpu_scratch(j->device, worker, 4 * n * sizeof(float));
    if (!room)
        return;
    nm_weight(j, room + 3 * n, j->bw.w, j->bw.plus_one, n);
    for (uint64_t row = first; row < last; row++)
        nm_dx_row(j, row, room + 3 * n, room);
}

/* ---- backward: weights --------------------------------------------------------------------- */

/* Sums of up to NM_COLUMNS columns; part_*: of the rows since the last complete partial sum. */
typedef struct nm_sums {
    float w[NM_COLUMNS], b[NM_COLUMNS], part_w[NM_COLUMNS], part_b[NM_COLUMNS];
} nm_sums;

ZT_CLONES static void nm_sums_row(nm_sums *restrict s, const float *xhat, const float *dy,
                                  uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        s->part_w[i] += dy[i] * xhat[i];
        s->part_b[i] += dy[i];
    }
}

static void nm_sums_flush(nm_sums *s)
{
    zt_cpu_sum(s->w, s->w, s->part_w, NM_COLUMNS);
    zt_cpu_sum(s->b, s->b, s->part_b, NM_COLUMNS);
    memset(s->part_w, 0, sizeof s->part_w);
    memset(s->part_b, 0, sizeof s->part_b);
}

static void nm_sums_block(const nm_job *j, uint64_t column, uint64_t n)
{
    const zt_norm_grad *a = &j->bw;
    float xhat[NM_COLUMNS], room[NM_COLUMNS];
    uint16_t spare[NM_COLUMNS];
    nm_sums s = {.w = {0}};
    for (uint64_t row = 0; row < a->rows; row++) {
        uint64_t at = row * a->width + column;
        const float *x = zt_cpu_read(j->dt, a->x, at, n, xhat);
        nm_standard(xhat, x, n, a->rms ? 0.0F : a->mean[row], a->rstd[row]);
        if (a->rms && !a->once)
            nm_round(j->dt, xhat, n, spare);
        nm_sums_row(&s, xhat, zt_cpu_read(j->dt, a->dy, at, n, room), n);
        if (row % NM_ROWS == NM_ROWS - 1)
            nm_sums_flush(&s);
    }
    nm_sums_flush(&s);
    if (a->dw)
        zt_cpu_put_sum(j->dt, a->dw, column, s.w, n, a->w_add);
    if (a->db)
        zt_cpu_put_sum(j->dt, a->db, column, s.b, n, a->b_add);
}

static void nm_sums_columns(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    (void)worker;
    for (uint64_t c = first; c < last; c += NM_COLUMNS)
        nm_sums_block(ctx, c, last - c < NM_COLUMNS ? last - c : NM_COLUMNS);
}

void zt_cpu_norm_grad(zt_device *d, ckpt_dtype dt, const zt_norm_grad *a)
{
    if (!zt_ready(d, dt, zt_ok_norm_grad(a), "norm_grad"))
        return;
    nm_job j = {.device = d, .dt = dt, .bw = *a};
    // compute these before dx, because dx may overwrite dy or x
    if (a->dw || a->db)
        zt_cpu_parallel(d, a->width, NM_COLUMNS, nm_sums_columns, &j);
    if (a->dx)
        zt_cpu_parallel(d, a->rows, NM_GRAIN / a->width + 1, nm_dx_rows, &j);
}
