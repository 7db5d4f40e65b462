/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_embed.c: computes embeddings on the CPU, forward and backward.
 *
 * Backward, rows of dy for the same row of a table are summed in their order, then rounded once.
 * Workers get different columns, so no two workers write the same element, and the order does not
 * depend on them.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/device/cpu.h"
#include "engine/device/cpu_pool.h"
#include "libckpt/base/mem.h"

#define EM_GRAIN   (8u * ZT_CPU_BLOCK) /* elements per range */
#define EM_COLUMNS 128u

/* ---- forward ------------------------------------------------------------------------------- */

typedef struct em_job {
    zt_device *device;
    ckpt_dtype dt;
    zt_embed a;
} em_job;

static bool em_in_table(int32_t index, uint64_t n)
{
    return index >= 0 && (uint64_t)index < n;
}

/* Compute one row of y; false: an index is outside its table. */
static bool em_row(const em_job *j, uint64_t row, float *sum, float *room)
{
    const zt_embed *a = &j->a;
    uint64_t n = a->width;
    int32_t kind = a->kind ? a->kind[row] : 0;
    if (!em_in_table(a->token[row], a->vocab) || (a->type && !em_in_table(kind, a->n_types)))
        return false;
    const float *x = zt_cpu_read(j->dt, a->word, (uint64_t)a->token[row] * n, n, sum);
    if (a->type) {
        zt_cpu_sum(sum, x, zt_cpu_read(j->dt, a->type, (uint64_t)kind * n, n, room), n);
        x = sum;
    }
    if (a->position) {
        zt_cpu_sum(sum, x, zt_cpu_read(j->dt, a->position, row % a->seq * n, n, room), n);
        x = sum;
    }
    zt_cpu_store(j->dt, a->y, row * n, x, n);
    return true;
}

static void em_rows(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const em_job *j = ctx;
    float *room = zt_cpu_scratch(j->device, worker, 2 * j->a.width * sizeof(float));
    for (uint64_t row = first; room && row < last; row++) {
        if (!em_row(j, row, room, room + j->a.width)) {
            zt_device_fail(j->device, CKPT_EUSAGE,
                           "embed: a token or token type is outside its embedding table");
            return;
        }
    }
}

void zt_cpu_embed(zt_device *d, ckpt_dtype dt, const zt_embed *a)
{
    if (!zt_ready(d, dt, zt_ok_embed(a), "embed"))
        return;
    em_job j = {d, dt, *a};
    zt_cpu_parallel(d, a->rows, EM_GRAIN / a->width + 1, em_rows, &j);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* One table, and the rows of dy that belong to each of its rows. */
typedef struct em_table {
    ckpt_dtype dt;
    uint64_t width, n_rows; /* size of the table */
    const void *dy;
    void *grad;
    bool add;
    const uint64_t *order; /* row of the table << 32 | row of dy, ascending */
    uint64_t n;            /* of those */
} em_table;

/* Sum columns c .. c + n of one group, rows order[first..last). */
static void em_group(const em_table *t, uint64_t first, uint64_t last, uint64_t c, uint64_t n)
{
    float sum[EM_COLUMNS], room[EM_COLUMNS];
    const float *x = NULL;
    for (uint64_t i = first; i < last; i++) {
        uint64_t at = (t->order[i] & UINT32_MAX) * t->width + c;
        const float *dy = zt_cpu_read(t->dt, t->dy, at, n, x ? room : sum);
        if (x) {
            zt_cpu_sum(sum, x, dy, n);
            x = sum;
        } else {
            x = dy;
        }
    }
    zt_cpu_put_sum(t->dt, t->grad, (t->order[first] >> 32) * t->width + c, x, n, t->add);
}

static void em_columns(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const em_table *t = ctx;
    (void)worker;
    for (uint64_t c = first; c < last; c += EM_COLUMNS) {
        uint64_t n = last - c < EM_COLUMNS ? last - c : EM_COLUMNS;
        uint64_t begin = 0;
        for (uint64_t i = 1; i <= t->n; i++) {
            if (i == t->n || t->order[i] >> 32 != t->order[begin] >> 32) {
                em_group(t, begin, i, c, n);
                begin = i;
            }
        }
    }
}

static void em_table_grad(zt_device *d, em_table *t)
{
    if (!t->add)
        d->ops->zero(d, t->grad, t->n_rows * t->width * zt_size(t->dt));
    if (t->n > 0)
        zt_cpu_parallel(d, t->width, EM_COLUMNS, em_columns, t);
}

static int em_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Fill order from indices (NULL: all 0); false: an index is outside the table. */
static bool em_sort(em_table *t, uint64_t *order, const int32_t *index, uint64_t rows, int64_t skip)
{
    t->order = order;
    t->n = 0;
    for (uint64_t i = 0; i < rows; i++) {
        int32_t k = index ? index[i] : 0;
        if (!em_in_table(k, t->n_rows))
            return false;
        if (k != skip)
            order[t->n++] = (uint64_t)k << 32 | i;
    }
    qsort(order, t->n, sizeof *order, em_compare);
    return true;
}

/* Order rows of dy by their position, which needs no sorting. */
static void em_by_position(em_table *t, uint64_t *order, uint64_t rows, uint64_t seq)
{
    t->order = order;
    t->n = 0;
    for (uint64_t k = 0; k < seq; k++) {
        for (uint64_t i = k; i < rows; i += seq)
            order[t->n++] = k << 32 | i;
    }
}

static void em_grads(zt_device *d, ckpt_dtype dt, const zt_embed_grad *a, uint64_t *order)
{
    em_table t = {.dt = dt, .width = a->width, .dy = a->dy};
    bool ok = true;
    if (a->dword) {
        t.grad = a->dword;
        t.add = a->word_add;
        t.n_rows = a->vocab;
        ok = em_sort(&t, order, a->token, a->rows, a->padding);
    }
    if (ok && a->dword)
        em_table_grad(d, &t);
    if (ok && a->dkind) {
        t.grad = a->dkind;
        t.add = a->kind_add;
        t.n_rows = a->n_types;
        ok = em_sort(&t, order, a->kind, a->rows, -1);
    }
    if (ok && a->dkind)
        em_table_grad(d, &t);
    if (!ok) {
        zt_device_fail(d, CKPT_EUSAGE,
                       "embed_grad: a token or token type is outside its embedding table");
    } else if (a->dposition) {
        t.grad = a->dposition;
        t.add = a->position_add;
        t.n_rows = a->n_positions;
        em_by_position(&t, order, a->rows, a->seq);
        em_table_grad(d, &t);
    }
}

void zt_cpu_embed_grad(zt_device *d, ckpt_dtype dt, const zt_embed_grad *a)
{
    if (!zt_ready(d, dt, zt_ok_embed_grad(a), "embed_grad"))
        return;
    uint64_t *order = ckpt_alloc((size_t)(a->rows + 1) * sizeof *order);
    if (!order) {
        zt_device_fail(d, CKPT_ELIMIT, "embed_grad: out of memory");
        return;
    }
    em_grads(d, dt, a, order);
    ckpt_free(order);
}
