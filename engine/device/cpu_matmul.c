/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_matmul.c: computes matrix products on the CPU: linear maps, their gradients, general
 * products.
 *
 * A product is split into tiles of its result by sizes alone, never along k, and one thread
 * computes each tile, so results do not depend on the number of threads.  Activation and rounding
 * are applied to each tile at once, while it is in the cache.  16-bit operands become fp32 in the
 * worker's scratch, in panels of at most BL_TILE x BL_DEPTH, except BF16 where the processor
 * multiplies it faster (zt_cpu_has_bf16).
 */
#include <limits.h>
#include <string.h>

#include "engine/device/cpu.h"
#include "engine/device/cpu_bf16.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/cpu_sgemm.h"
#include "engine/device/product.h"
#include "engine/device/vmath.h"

/* Approximate side of a tile.  With smaller ones, packing the operands for each tile wastes time;
 * larger ones cannot be divided evenly among threads. */
#define BL_TILE 768u

/* Products with fewer multiplications than this have one tile. */
#define BL_WORTH (1u << 20)

/* Multiplications of a tile from which on oneDNN's call for BF16, about 40 us, is worth it. */
#define BL_WORTH_BF16 4e6

/* Steps along k for which a 16-bit panel is converted at a time. */
#define BL_DEPTH 512u

/* Steps along k of BF16 operands that are multiplied as they are: a dense operand of this depth or
 * less is not copied. */
#define BL_DEPTH_BF16 4096u

/* Columns of a bias gradient that are summed together, and rows per partial sum. */
#define BL_COLUMNS 64u
#define BL_ROWS    64u

/* ---- a product and its tiles --------------------------------------------------------------- */

typedef struct bl_product {
    zt_product q;
    uint64_t tile_m, tile_n; /* sizes of a tile; 0: no product */
    uint64_t across, tiles;  /* tiles side by side; number of tiles */
} bl_product;

typedef struct bl_column_sums {
    const void *x;
    void *to;
    uint64_t rows, width, ld, blocks;
    bool add;
} bl_column_sums;

/* The work of one operation: tiles of two products, then blocks of column sums. */
typedef struct bl_job {
    zt_device *device;
    ckpt_dtype dt;
    bl_product p[2];
    bl_column_sums sums;
} bl_job;

typedef struct bl_tile {
    uint64_t row, column, m, n;
} bl_tile;

/* Divide a side into equal parts of about BL_TILE, multiples of 64. */
static uint64_t bl_side(uint64_t n, uint64_t parts)
{
    uint64_t each = n / parts + (n % parts != 0);
    return (each + 63) / 64 * 64;
}

static uint64_t bl_parts(uint64_t n)
{
    uint64_t parts = (n + BL_TILE / 2) / BL_TILE;
    return parts ? parts : 1;
}

/*
 * Choose tiles.  If there are few, their number is even, so two or four threads get the same share;
 * a single one is cut along the longer side.
 */
static void bl_plan(bl_product *p)
{
    uint64_t down = bl_parts(p->q.m), across = bl_parts(p->q.n);
    double work = (double)p->q.m * (double)p->q.n * (double)(p->q.k + 1);
    if (work < BL_WORTH) {
        down = across = 1;
    } else if (down * across < 8 && down * across % 2 == 1) {
        if (p->q.m > p->q.n)
            down++;
        else
            across++;
    }
    if (p->q.m == 0 || p->q.n == 0) {
        p->tiles = 0;
        return;
    }
    p->tile_m = down == 1 ? p->q.m : bl_side(p->q.m, down);
    p->tile_n = across == 1 ? p->q.n : bl_side(p->q.n, across);
    p->across = p->q.n / p->tile_n + (p->q.n % p->tile_n != 0);
    p->tiles = p->across * (p->q.m / p->tile_m + (p->q.m % p->tile_m != 0));
}

static bl_tile bl_tile_at(const bl_product *p, uint64_t i)
{
    bl_tile t = {.row = i / p->across * p->tile_m, .column = i % p->across * p->tile_n};
    t.m = p->q.m - t.row < p->tile_m ? p->q.m - t.row : p->tile_m;
    t.n = p->q.n - t.column < p->tile_n ? p->q.n - t.column : p->tile_n;
    return t;
}

/* Offset in A (or, in bl_b_at, in B) of a tile's elements at step k. */
static uint64_t bl_a_at(const bl_product *p, const bl_tile *t, uint64_t k)
{
    return p->q.a_transposed ? k * p->q.lda + t->row : t->row * p->q.lda + k;
}

static uint64_t bl_b_at(const bl_product *p, const bl_tile *t, uint64_t k)
{
    return p->q.b_transposed ? t->column * p->q.ldb + k : k * p->q.ldb + t->column;
}

/* ---- fp32 ---------------------------------------------------------------------------------- */

ZT_CLONES static void bl_add(float *restrict y, const float *restrict x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* Store the bias first, because BLAS adds its product to C. */
static void bl_start(float *c, uint64_t ld, const bl_tile *t, const float *bias, bool add)
{
    for (uint64_t i = 0; i < t->m; i++) {
        if (add)
            bl_add(c + i * ld, bias, t->n);
        else
            memcpy(c + i * ld, bias, t->n * sizeof *c);
    }
}

static void bl_tile_f32(zt_device *d, const bl_product *p, const bl_tile *t)
{
    bool keep = p->q.act != ZT_ACT_NONE && p->q.pre;
    uint64_t ldc = keep ? p->q.n : p->q.ldc;
    float *c = (float *)(keep ? p->q.pre : p->q.c) + t->row * ldc + t->column;
    float beta = p->q.sum ? 1.0F : p->q.beta;
    if (p->q.bias) {
        bl_start(c, ldc, t, (const float *)p->q.bias + t->column, beta != 0.0F);
        beta = 1.0F;
    }
    zt_sgemm g = {.a_transposed = p->q.a_transposed,
                  .b_transposed = p->q.b_transposed,
                  .m = t->m,
                  .n = t->n,
                  .k = p->q.k,
                  .alpha = p->q.alpha,
                  .beta = beta,
                  .a = (const float *)p->q.a + bl_a_at(p, t, 0),
                  .b = (const float *)p->q.b + bl_b_at(p, t, 0),
                  .c = c,
                  .lda = p->q.lda,
                  .ldb = p->q.ldb,
                  .ldc = ldc};
    zt_cpu_sgemm(d, &g);
    if (p->q.act != ZT_ACT_NONE) {
        float *y = (float *)p->q.c + t->row * p->q.ldc + t->column;
        for (uint64_t i = 0; i < t->m; i++)
            zt_cpu_act_block(p->q.act, t->n, y + i * p->q.ldc, c + i * ldc);
    }
}

/* ---- 16 bits: panels, start and end of a tile ---------------------------------------------- */

/* A worker's scratch: panels of both operands (fp32, or BF16 where it is multiplied as it is), and
 * the tile. */
typedef struct bl_room {
    void *a, *b;
    float *c;
} bl_room;

/* The part of A (or, in bl_b_part, of B) that a tile needs for the steps k to k + n, as stored. */
static bl_tile bl_a_part(const bl_product *p, const bl_tile *t, uint64_t k, uint64_t n)
{
    return p->q.a_transposed ? (bl_tile){k, t->row, n, t->m} : (bl_tile){t->row, k, t->m, n};
}

static bl_tile bl_b_part(const bl_product *p, const bl_tile *t, uint64_t k, uint64_t n)
{
    return p->q.b_transposed ? (bl_tile){t->column, k, t->n, n} : (bl_tile){k, t->column, n, t->n};
}

/* Convert `rows` rows of `width` elements into dense fp32. */
static void bl_panel(ckpt_dtype dt, float *to, const void *from, uint64_t ld, const bl_tile *size)
{
    for (uint64_t i = 0; i < size->m; i++)
        zt_cpu_load(dt, to + i * size->n, from, (size->row + i) * ld + size->column, size->n);
}

static void bl_panels(ckpt_dtype dt, const bl_product *p, const bl_tile *t, const bl_room *room,
                      const zt_sgemm *g, uint64_t k)
{
    bl_tile a = bl_a_part(p, t, k, g->k), b = bl_b_part(p, t, k, g->k);
    bl_panel(dt, room->a, p->q.a, p->q.lda, &a);
    bl_panel(dt, room->b, p->q.b, p->q.ldb, &b);
}

/* Store the values to which the product is added: bias, or beta C, or 0. */
static void bl_start_16(ckpt_dtype dt, const bl_product *p, const bl_tile *t, float *c)
{
    float bias[ZT_CPU_BLOCK];
    for (uint64_t i = 0; i < t->m; i++) {
        float *row = c + i * t->n;
        if (p->q.beta != 0.0F)
            zt_cpu_load(dt, row, p->q.c, (t->row + i) * p->q.ldc + t->column, t->n);
        else
            memset(row, 0, t->n * sizeof *row);
        for (uint64_t j = 0; p->q.beta != 0.0F && p->q.beta != 1.0F && j < t->n; j++)
            row[j] *= p->q.beta;
        for (uint64_t j = 0; p->q.bias && j < t->n; j += ZT_CPU_BLOCK) {
            uint64_t n = t->n - j < ZT_CPU_BLOCK ? t->n - j : ZT_CPU_BLOCK;
            bl_add(row + j, zt_cpu_read(dt, p->q.bias, t->column + j, n, bias), n);
        }
    }
}

/* Round a tile into the output. */
static void bl_finish_16(ckpt_dtype dt, const bl_product *p, const bl_tile *t, float *c)
{
    for (uint64_t i = 0; i < t->m; i++) {
        float *row = c + i * t->n;
        uint64_t at = (t->row + i) * p->q.ldc + t->column;
        if (p->q.act != ZT_ACT_NONE) {
            // the activation must see the rounded value, because the backward pass sees that one
            void *pre = p->q.pre ? p->q.pre : p->q.c;
            uint64_t pre_at = p->q.pre ? (t->row + i) * p->q.n + t->column : at;
            zt_cpu_store(dt, pre, pre_at, row, t->n);
            zt_cpu_load(dt, row, pre, pre_at, t->n);
            zt_cpu_act_block(p->q.act, t->n, row, row);
        }
        zt_cpu_put_sum(dt, p->q.c, at, row, t->n, p->q.sum);
    }
}

/* ---- BF16, multiplied as it is ------------------------------------------------------------- */

typedef struct bl_operand {
    const void *p;
    uint64_t ld;
} bl_operand;

/* The part `size` of a matrix, copied into `room` unless its rows follow each other: with dense
 * operands oneDNN has its fastest code. */
static bl_operand bl_dense(void *room, const void *from, uint64_t ld, const bl_tile *size)
{
    const char *first = (const char *)from + (size->row * ld + size->column) * 2;
    if (ld == size->n)
        return (bl_operand){first, ld};
    for (uint64_t i = 0; i < size->m; i++)
        memcpy((char *)room + i * size->n * 2, first + i * ld * 2, size->n * 2);
    return (bl_operand){room, size->n};
}

static bool bl_multiply_bf16(const bl_product *p, const bl_tile *t, const bl_room *room, uint64_t k,
                             uint64_t part)
{
    bl_tile a = bl_a_part(p, t, k, part), b = bl_b_part(p, t, k, part);
    bl_operand left = bl_dense(room->a, p->q.a, p->q.lda, &a);
    bl_operand right = bl_dense(room->b, p->q.b, p->q.ldb, &b);
    zt_cpu_product x = {.dt = CKPT_BF16,
                        .a_transposed = p->q.a_transposed,
                        .b_transposed = p->q.b_transposed,
                        .m = t->m,
                        .n = t->n,
                        .k = part,
                        .a = left.p,
                        .b = right.p,
                        .c = room->c,
                        .lda = left.ld,
                        .ldb = right.ld};
    return zt_cpu_multiply(&x);
}

/* False: oneDNN has no code for such a product, or no memory; nothing is written. */
static bool bl_tile_bf16(const bl_job *j, const bl_product *p, const bl_tile *t, unsigned worker)
{
    uint64_t depth = p->q.k < BL_DEPTH_BF16 ? p->q.k : BL_DEPTH_BF16;
    uint64_t bytes = t->m * t->n * sizeof(float) + (t->m + t->n) * depth * sizeof(uint16_t);
    bl_room room = {.c = zt_cpu_scratch(j->device, worker, bytes)};
    if (!room.c)
        return true; // the device has failed
    room.a = room.c + t->m * t->n;
    room.b = (uint16_t *)room.a + t->m * depth;
    bl_start_16(j->dt, p, t, room.c);
    for (uint64_t k = 0; k < p->q.k; k += depth) {
        uint64_t part = p->q.k - k < depth ? p->q.k - k : depth;
        if (!bl_multiply_bf16(p, t, &room, k, part))
            return false;
    }
    bl_finish_16(j->dt, p, t, room.c);
    return true;
}

/* ---- 16 bits, by fp32 ---------------------------------------------------------------------- */

static void bl_tile_16(const bl_job *j, const bl_product *p, const bl_tile *t, unsigned worker)
{
    uint64_t depth = p->q.k < BL_DEPTH ? p->q.k : BL_DEPTH;
    uint64_t floats = t->m * depth + depth * t->n + t->m * t->n;
    bl_room room = {.c = zt_cpu_scratch(j->device, worker, floats * sizeof(float))};
    if (!room.c)
        return;
    room.a = room.c + t->m * t->n;
    room.b = room.c + t->m * t->n + t->m * depth;
    bl_start_16(j->dt, p, t, room.c);
    for (uint64_t k = 0; k < p->q.k; k += depth) {
        uint64_t part = p->q.k - k < depth ? p->q.k - k : depth;
        zt_sgemm g = {.a_transposed = p->q.a_transposed,
                      .b_transposed = p->q.b_transposed,
                      .m = t->m,
                      .n = t->n,
                      .k = part,
                      .alpha = p->q.alpha,
                      .beta = 1.0F,
                      .a = room.a,
                      .b = room.b,
                      .c = room.c,
                      .lda = p->q.a_transposed ? t->m : part,
                      .ldb = p->q.b_transposed ? part : t->n,
                      .ldc = t->n};
        bl_panels(j->dt, p, t, &room, &g, k);
        zt_cpu_sgemm(j->device, &g);
    }
    bl_finish_16(j->dt, p, t, room.c);
}

/* ---- column sums --------------------------------------------------------------------------- */

static void bl_column_block(ckpt_dtype dt, const bl_column_sums *s, uint64_t column)
{
    float sum[BL_COLUMNS] = {0}, part[BL_COLUMNS] = {0}, room[BL_COLUMNS];
    uint64_t n = s->width - column < BL_COLUMNS ? s->width - column : BL_COLUMNS;
    for (uint64_t row = 0; row < s->rows; row++) {
        bl_add(part, zt_cpu_read(dt, s->x, row * s->ld + column, n, room), n);
        if (row % BL_ROWS == BL_ROWS - 1) {
            bl_add(sum, part, n);
            memset(part, 0, sizeof part);
        }
    }
    bl_add(sum, part, n);
    zt_cpu_put_sum(dt, s->to, column, sum, n, s->add);
}

/* ---- operations ---------------------------------------------------------------------------- */

/* True if a tile is multiplied as BF16; small ones cost less as fp32, with fewer calls. */
static bool bl_is_bf16(const bl_job *j, const bl_product *p, const bl_tile *t)
{
    return j->dt == CKPT_BF16 && p->q.alpha == 1.0F &&
           (double)t->m * (double)t->n * (double)p->q.k >= BL_WORTH_BF16 && zt_cpu_has_bf16();
}

static void bl_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const bl_job *j = ctx;
    for (uint64_t i = first; i < last; i++) {
        uint64_t k = i;
        const bl_product *p = NULL;
        for (unsigned which = 0; which < 2 && !p; which++) {
            if (k < j->p[which].tiles)
                p = &j->p[which];
            else
                k -= j->p[which].tiles;
        }
        if (!p) {
            bl_column_block(j->dt, &j->sums, k * BL_COLUMNS);
            continue;
        }
        bl_tile t = bl_tile_at(p, k);
        if (j->dt == CKPT_F32)
            bl_tile_f32(j->device, p, &t);
        else if (!bl_is_bf16(j, p, &t) || !bl_tile_bf16(j, p, &t, worker))
            bl_tile_16(j, p, &t, worker);
    }
}

/* True if all sizes fit an int, which libraries may use. */
static bool bl_fits(const bl_product *p)
{
    return p->q.m <= INT_MAX && p->q.n <= INT_MAX && p->q.k <= INT_MAX && p->q.lda <= INT_MAX &&
           p->q.ldb <= INT_MAX && p->q.ldc <= INT_MAX;
}

static void bl_run(bl_job *j)
{
    for (unsigned i = 0; i < 2; i++) {
        if (!bl_fits(&j->p[i])) {
            zt_device_fail(j->device, CKPT_ELIMIT, "matrix product: a side is over 2^31 - 1");
            return;
        }
        if (j->p[i].q.c)
            bl_plan(&j->p[i]);
    }
    if (j->sums.to)
        j->sums.blocks = j->sums.width / BL_COLUMNS + (j->sums.width % BL_COLUMNS != 0);
    zt_cpu_parallel(j->device, j->p[0].tiles + j->p[1].tiles + j->sums.blocks, 1, bl_range, j);
}

void zt_cpu_linear(zt_device *d, ckpt_dtype dt, const zt_linear *a)
{
    if (!zt_ready(d, dt, zt_ok_linear(a), "linear") || a->rows == 0)
        return;
    bl_job j = {.device = d, .dt = dt, .p = {{.q = zt_product_linear(a)}}};
    bl_run(&j);
}

void zt_cpu_linear_grad(zt_device *d, ckpt_dtype dt, const zt_linear_grad *a)
{
    if (!zt_ready(d, dt, zt_ok_linear_grad(a), "linear_grad"))
        return;
    bl_job j = {.device = d, .dt = dt};
    if (a->dx)
        j.p[0].q = zt_product_dx(a);
    if (a->dw)
        j.p[1].q = zt_product_dw(a);
    j.sums = (bl_column_sums){.x = a->dy,
                              .to = a->db,
                              .rows = a->rows,
                              .width = a->out,
                              .ld = zt_stride(a->lddy, a->out),
                              .add = a->b_add};
    bl_run(&j);
}

void zt_cpu_matmul(zt_device *d, ckpt_dtype dt, const zt_matmul *a)
{
    if (!zt_ready(d, dt, zt_ok_matmul(a), "matmul") || a->m == 0 || a->n == 0)
        return;
    bl_job j = {.device = d, .dt = dt, .p = {{.q = zt_product_matmul(a)}}};
    bl_run(&j);
}
