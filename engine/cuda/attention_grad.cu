/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_grad.cu: computes the backward pass of attention on the GPU.
 *
 * Probabilities are recomputed from the stored log of the sum (Dao et al. 2022).  Two passes
 * compute them: in one, a block has some queries and loops over keys (dq); in the other, a block
 * has some keys and loops over the queries of all heads that share them (dk and dv).  So every sum
 * belongs to one block and is added up in one order, and repeated runs have equal bits.  A small
 * kernel before them computes delta = dout * o, summed for each query.
 *
 *     p  = exp(scale q k' - lse)      keep = 1 / (1 - p_drop) or 0
 *     dv = (p keep)' dout             dp = dout v'
 *     ds = p (dp keep - delta)        dq = scale ds k,  dk = scale ds' q
 *
 * Of the seven products, two are computed twice, because the sums then need no atomic additions.
 * Factors common to all elements (scale, 1 / (1 - p_drop) of dv) are applied once, to the sums.
 *
 * In the tensor family p and ds stay in the registers in which the products leave scores and their
 * gradients: rounded to T they are the left factors of the next products (tensor.h).
 */
#include "engine/cuda/fused.h"

/* ---- shared by both families ------------------------------------------------------------- */

/* delta[b, h, t] = sum of dout * o.  `lanes` neighbouring threads (a power of two, up to 32) share
 * a query; heads of one row are side by side. */
template <typename T>
static __global__ void __launch_bounds__(AT_THREADS) ck_delta(cu_at_call a, unsigned lanes)
{
    // index of (batch, row, head), in the order of memory
    const unsigned i = blockIdx.x * (AT_THREADS / lanes) + threadIdx.x / lanes;
    const unsigned rows = (unsigned)a.batch * a.queries, head = i % a.heads, row = i / a.heads;
    const unsigned lane = threadIdx.x % lanes, each = a.vector ? CK_PACK : 1;
    const T *o = (const T *)a.o + row * a.ldo + (uint64_t)head * a.width;
    const T *dout = (const T *)a.dout + row * a.lddo + (uint64_t)head * a.width;
    float sum = 0;

    for (unsigned c = lane * each; row < rows && c < (unsigned)a.width; c += lanes * each) {
        float x[CK_PACK] = {}, y[CK_PACK] = {};

        ck_read(x, o, c, c + each, a.vector);
        ck_read(y, dout, c, c + each, a.vector);
#pragma unroll
        for (unsigned k = 0; k < CK_PACK; k++)
            sum += x[k] * y[k];
    }
    for (unsigned offset = lanes / 2; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
    if (lane == 0 && row < rows)
        a.delta[ck_at_list(a, row / a.queries, head) + row % a.queries] = sum;
}

/*
 * The key head of this block in the pass over keys; *k0: the block's first key (early keys come
 * first).
 */
static __device__ __forceinline__ ck_at_head ck_dkv_head(const cu_at_call &a, int rows, int *k0)
{
    const unsigned n = (unsigned)a.batch * a.kv_heads;
    const int i = (int)(blockIdx.x % n);
    ck_at_head h = {i / a.kv_heads, i % a.kv_heads * a.group, i % a.kv_heads, 0, 0, 0};

    *k0 = (int)(blockIdx.x / n) * rows;
    return h;
}

/* The next step of a block of keys: a query head of the group (equal to group: no step is left) and
 * the first query of a tile. */
typedef struct ck_dkv_pair {
    int head, q0;
} ck_dkv_pair;

/* Return a copy of h whose query head is that of the pair. */
static __device__ __forceinline__ ck_at_head ck_dkv_of(const cu_at_call &a, ck_at_head h,
                                                       const ck_dkv_pair &p)
{
    h.head = h.key_head * a.group + p.head;
    return h;
}

/*
 * Find the first pair, from `p` on, in which a query sees a key of the tile at k0.  rows_cols: keys
 * and queries per tile.
 */
static __device__ __forceinline__ ck_dkv_pair ck_dkv_next(const cu_at_call &a, const ck_at_head &h,
                                                          int k0, const int2 &rows_cols,
                                                          ck_dkv_pair p)
{
    const int cols = rows_cols.y, diagonal = a.causal ? k0 / cols * cols : 0;

    for (; p.head < a.group; p.head++, p.q0 = 0) {
        // queries before the diagonal see these keys only if they are blind, that is, see all keys
        p.q0 = p.q0 >= h.blind && !a.near ? max(p.q0, diagonal) : p.q0;
        while (p.q0 < a.queries && !ck_at_meets(a, h, p.q0, cols, k0, rows_cols.x))
            p.q0 += cols;
        if (p.q0 < a.queries)
            break;
    }
    return p;
}

/* ---- tensor family ----------------------------------------------------------------------- */

/*
 * Layout of shared memory in bytes: first the block's 16 M AT_WARPS rows (of q and dout, or of k
 * and v), then the stages, each with 16 N rows of the operand of the loop.  Offsets are constants,
 * so the compiler needs few registers for them.
 */
typedef struct ck_bw_lay {
    int mine_1;
    int stages, each; /* offset of the first stage, and bytes of each */
    int y, note_0,
        note_1; /* in a stage: second tile; then lse and delta of its queries, or valid */
    int keep, bytes;
} ck_bw_lay;

/* keys: the block's rows are keys, so a stage holds the queries' statistics. */
template <int W, int M, int N>
static __host__ __device__ __forceinline__ ck_bw_lay ck_bw_plan(bool keys, int stages, bool drop)
{
    const int rows = 16 * M * AT_WARPS, cols = 16 * N, row = 2 * (W + CK_TC_PAD);
    ck_bw_lay l;

    l.mine_1 = rows * row;
    l.stages = 2 * l.mine_1;
    l.y = cols * row;
    l.note_0 = 2 * l.y;
    l.note_1 = l.note_0 + cols * 4;
    l.each = l.note_1 + (keys ? cols * 4 : 0);
    l.keep = l.stages + stages * l.each;
    l.bytes = l.keep + (drop ? rows * cols : 0);
    return l;
}

/* A tile of the loop: keys and values (with valid), or queries and dout (with their statistics). */
template <typename T> struct ck_bw_tile {
    const T *x, *y;
    const int *valid;
    const float *lse, *delta;
    int at; /* its first row */
};

/*
 * State of a warp: its rows of both operands.  At the end, their memory holds the warp's results.
 * Row m * 16 + half * 8 + lane / 4 has index [m][half].
 */
template <typename T, int M> struct ck_bw_warp {
    T *x, *y;
    int at; /* its first row in the sequence */
    const uint8_t *keep;
    float lse[M][2], delta[M][2]; /* if rows are queries: their ck_bw_stat */
    int valid[M][2];              /* if rows are keys */
};

/*
 * lse (times log2 e) and delta of a query; beyond the last query lse is infinite, so p becomes 0.
 */
static __device__ __forceinline__ float2 ck_bw_stat(const cu_at_call &a, const ck_at_head &h, int q)
{
    const uint64_t i = ck_at_list(a, h.batch, h.head) + q;

    return q < a.queries ? make_float2(a.lse[i] * AT_LOG2E, a.delta[i])
                         : make_float2(INFINITY, 0.0F);
}

/* Load the statistics of queries q0 .. q0 + n into shared memory. */
static __device__ __forceinline__ void ck_bw_stats(const cu_at_call &a, const ck_at_head &h, int q0,
                                                   int n, float *lse, float *delta)
{
    for (int i = (int)threadIdx.x; i < n; i += AT_THREADS) {
        const float2 stat = ck_bw_stat(a, h, q0 + i);

        lse[i] = stat.x;
        delta[i] = stat.y;
    }
}

/*
 * The tile in a stage, from row `at` on; keys: the block has keys, so the tile has queries and
 * their statistics.
 */
template <typename T>
static __device__ __forceinline__ ck_bw_tile<T> ck_bw_view(const ck_bw_lay &l, const char *stage,
                                                           bool keys, int at)
{
    const char *note_0 = stage + l.note_0, *note_1 = stage + l.note_1;
    ck_bw_tile<T> t = {(const T *)(const void *)stage,
                       (const T *)(const void *)(stage + l.y),
                       NULL,
                       NULL,
                       NULL,
                       at};

    if (keys) {
        t.lse = (const float *)(const void *)note_0;
        t.delta = (const float *)(const void *)note_1;
    } else {
        t.valid = (const int *)(const void *)note_0;
    }
    return t;
}

/* Copy keys and values k0 .. k0 + 16 N to the stage at `to`. */
template <typename T, int W, int N>
static __device__ __forceinline__ void ck_dq_load(const cu_at_call &a, const ck_at_head &h,
                                                  const ck_bw_lay &l, char *to, int k0)
{
    const int4 at = make_int4(h.batch, k0, h.key_head, 0);

    ck_at_tile<T, W>(a, (T *)(void *)to, ck_at_keys_of<T>(a, a.k, at, a.ldk), 16 * N);
    ck_at_tile<T, W>(a, (T *)(void *)(to + l.y), ck_at_keys_of<T>(a, a.v, at, a.ldv), 16 * N);
    if (a.mask)
        ck_at_valid(a, h, k0, 16 * N, (int *)(void *)(to + l.note_0));
    ck_at_batch();
}

/*
 * For one tile of keys: turn the warp's scores s into ds, with the gradients dp of the
 * probabilities.
 */
template <typename T, int M, int N>
static __device__ __forceinline__ void ck_dq_factor(const cu_at_call &a, const ck_bw_warp<T, M> &w,
                                                    ck_tc_sums (&s)[M][2 * N],
                                                    ck_tc_sums (&dp)[M][2 * N])
{
    const float factor = a.scale * AT_LOG2E;

    if (a.drop) {
#pragma unroll
        for (int e = 0; e < M * N * 8; e++) {
            const int m = e / (N * 8), n = e / 4 % (2 * N), i = e % 4;
            const int r = m * 16 + ck_tc_row(i), c = n * 8 + ck_tc_col(i);
            float *d = &dp[m][n].x[i];

            *d = w.keep[r * 16 * N + c] != 0 ? *d * a.factor : 0.0F;
        }
    }
#pragma unroll
    for (int e = 0; e < M * N * 8; e++) {
        const int m = e / (N * 8), n = e / 4 % (2 * N), i = e % 4;

        s[m][n].x[i] = ck_exp2(fmaf(s[m][n].x[i], factor, -w.lse[m][i / 2])) *
                       (dp[m][n].x[i] - w.delta[m][i / 2]);
    }
}

/* Process one tile of keys for the warp's queries. */
template <typename T, int W, int M, int N>
static __device__ __forceinline__ void ck_dq_step(const cu_at_call &a, const ck_at_head &h,
                                                  const ck_bw_warp<T, M> &w, const ck_bw_tile<T> &t,
                                                  ck_tc_sums (&dq)[M][W / 8])
{
    ck_tc_sums s[M][2 * N], dp[M][2 * N];

    ck_tc_scores<T, W>(s, w.x, t.x);
    ck_tc_scores<T, W>(dp, w.y, t.y);
    if (!ck_at_open(a, w.at, 16 * M, t.at, 16 * N))
        ck_at_hide(a, h, make_int2(w.at, t.at), t.valid, s);
    ck_dq_factor<T, M, N>(a, w, s, dp);
    ck_tc_gather<T, W>(dq, s, t.x);
}

/* Load the block's own rows, and return the warp's view of them; `at` is still relative to the
 * block's first row. */
template <typename T, int W, int M>
static __device__ __forceinline__ ck_bw_warp<T, M>
ck_bw_begin(const cu_at_call &a, char *room, const ck_bw_lay &l, const ck_at_rows<T> &x,
            const ck_at_rows<T> &y)
{
    const int rows = 16 * M * AT_WARPS, first = (int)threadIdx.x / 32 * 16 * M;
    const int at = first * (W + CK_TC_PAD);
    ck_bw_warp<T, M> w;

    ck_at_tile<T, W>(a, (T *)(void *)room, x, rows);
    ck_at_tile<T, W>(a, (T *)(void *)(room + l.mine_1), y, rows);
    w.x = (T *)(void *)room + at;
    w.y = (T *)(void *)(room + l.mine_1) + at;
    w.at = first;
    w.keep = (const uint8_t *)room + l.keep;
    return w;
}

/* Kernel: a block computes dq of 16 M AT_WARPS queries of one head. */
template <typename T, int W, int M, int N>
static __global__ void __launch_bounds__(AT_THREADS, 2) ck_dq(cu_at_call a, int stages)
{
    ZT_SHARED(uint4, shared);
    char *room = (char *)shared;
    const ck_bw_lay l = ck_bw_plan<W, M, N>(false, stages, a.drop);
    const int rows = 16 * M * AT_WARPS, cols = 16 * N;
    int q0;
    ck_at_head h = ck_at_block_head(a, rows, &q0);
    const int4 at = make_int4(h.batch, q0, h.head, 0);
    ck_tc_sums dq[M][W / 8];

    ck_at_read_mask(a, &h, (int *)(void *)(room + l.stages)); // this memory is not in use yet
    ck_bw_warp<T, M> w = ck_bw_begin<T, W, M>(a, room, l, ck_at_queries_of<T>(a, a.q, at, a.ldq),
                                              ck_at_queries_of<T>(a, a.dout, at, a.lddo));
    w.keep += w.at * cols;
    w.at += q0;
    for (int row = 0; row < 2 * M; row++) {
        const float2 stat = ck_bw_stat(a, h, w.at + row / 2 * 16 + ck_tc_row(row % 2 * 2));

        w.lse[row / 2][row % 2] = stat.x;
        w.delta[row / 2][row % 2] = stat.y;
    }
    ck_tc_clear(dq);
    const int2 range = ck_at_range(a, h, q0, rows, cols);
    ck_dq_load<T, W, N>(a, h, l, room + l.stages, range.x);

    for (int k0 = range.x, i = 0; k0 < range.y; k0 += cols, i++) {
        const char *stage = room + l.stages + (stages == 2 ? i % 2 * l.each : 0);
        const bool more = k0 + cols < range.y;

        if (stages == 2 && more)
            ck_dq_load<T, W, N>(a, h, l, room + l.stages + (i + 1) % 2 * l.each, k0 + cols);
        ck_at_arrive(stages == 2 && more);
        if (a.drop)
            ck_at_keep(a, h, q0, rows, k0, cols, (uint8_t *)room + l.keep);
        __syncthreads();
        if (ck_at_meets(a, h, w.at, 16 * M, k0, cols))
            ck_dq_step<T, W, M, N>(a, h, w, ck_bw_view<T>(l, stage, false, k0), dq);
        __syncthreads(); // until then threads may read this tile
        if (stages == 1 && more)
            ck_dq_load<T, W, N>(a, h, l, room + l.stages, k0 + cols);
    }
    ck_at_write_all<T, W, M>(
        a, dq, a.scale, w.x,
        ck_at_queries_of<T>(a, a.dq, make_int4(h.batch, w.at, h.head, 0), a.ldq));
}

/* Copy the pair's 16 N queries, their dout and statistics to the stage at `to`. */
template <typename T, int W, int N>
static __device__ __forceinline__ void ck_dkv_load(const cu_at_call &a, const ck_at_head &key_head,
                                                   const ck_bw_lay &l, char *to,
                                                   const ck_dkv_pair &p)
{
    const ck_at_head h = ck_dkv_of(a, key_head, p);
    const int4 at = make_int4(h.batch, p.q0, h.head, 0);

    ck_at_tile<T, W>(a, (T *)(void *)to, ck_at_queries_of<T>(a, a.q, at, a.ldq), 16 * N);
    ck_at_tile<T, W>(a, (T *)(void *)(to + l.y), ck_at_queries_of<T>(a, a.dout, at, a.lddo),
                     16 * N);
    ck_bw_stats(a, h, p.q0, 16 * N, (float *)(void *)(to + l.note_0),
                (float *)(void *)(to + l.note_1));
    ck_at_batch();
}

/* ck_at_hide for transposed scores: rows are keys (this warp's), columns are queries from q0 on. */
template <typename T, int M, int N>
static __device__ __forceinline__ void ck_dkv_hide(const cu_at_call &a, const ck_at_head &h,
                                                   const ck_bw_warp<T, M> &w, int q0,
                                                   ck_tc_sums (&s)[M][N])
{
    if (a.mask) {
#pragma unroll
        for (int e = 0; e < M * N * 4; e++) {
            const int m = e / 4 / N, n = e / 4 % N, i = e % 4, k = w.at + m * 16 + ck_tc_row(i);

            s[m][n].x[i] =
                ck_at_score(a, h, q0 + n * 8 + ck_tc_col(i), k, w.valid[m][i / 2], s[m][n].x[i]);
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < M * N * 4; e++) {
        const int m = e / 4 / N, n = e / 4 % N, i = e % 4, k = w.at + m * 16 + ck_tc_row(i);
        const int first = (k >= a.seq ? INT32_MAX : a.causal ? k : 0) - q0;
        const int c = n * 8 + ck_tc_col(i);

        s[m][n].x[i] = c >= first && c + q0 < k + a.window ? s[m][n].x[i] : -INFINITY;
    }
}

/* Turn the warp's scores s into p, and their gradients into ds. */
template <typename T, int M, int N>
static __device__ __forceinline__ void ck_dkv_factor(float factor, const ck_bw_tile<T> &t,
                                                     ck_tc_sums (&s)[M][N], ck_tc_sums (&ds)[M][N])
{
#pragma unroll
    for (int e = 0; e < M * N * 4; e++) {
        const int m = e / 4 / N, n = e / 4 % N, i = e % 4, c = n * 8 + ck_tc_col(i);
        const float p = ck_exp2(fmaf(s[m][n].x[i], factor, -t.lse[c]));

        s[m][n].x[i] = p;
        ds[m][n].x[i] = p * (ds[m][n].x[i] - t.delta[c]);
    }
}

/*
 * ck_dkv_factor with dropout; the block's keep is [queries, keys], like the numbers of
 * probabilities.
 */
template <typename T, int M, int N>
static __device__ __forceinline__ void ck_dkv_drop(const cu_at_call &a, const ck_bw_warp<T, M> &w,
                                                   const ck_bw_tile<T> &t, ck_tc_sums (&s)[M][N],
                                                   ck_tc_sums (&ds)[M][N])
{
    const float factor = a.scale * AT_LOG2E;

#pragma unroll
    for (int e = 0; e < M * N * 4; e++) {
        const int m = e / 4 / N, n = e / 4 % N, i = e % 4;
        const int r = m * 16 + ck_tc_row(i), c = n * 8 + ck_tc_col(i);
        const float p = ck_exp2(fmaf(s[m][n].x[i], factor, -t.lse[c]));
        const bool kept = w.keep[c * 16 * M * AT_WARPS + r] != 0;

        s[m][n].x[i] = kept ? p : 0.0F;
        ds[m][n].x[i] = p * ((kept ? ds[m][n].x[i] * a.factor : 0.0F) - t.delta[c]);
    }
}

/* Gradients dk and dv of one block of keys, during summation. */
template <int W, int M> struct ck_dkv_sums {
    ck_tc_sums k[M][W / 8], v[M][W / 8];
};

/*
 * Process one tile of queries for the warp's keys.
 * LIMIT: five parameters; the checker also counts the commas in their template arguments
 */
template <typename T, int W, int M, int N>
static __device__ __forceinline__ void ck_dkv_step(const cu_at_call &a, const ck_at_head &h,
                                                   const ck_bw_warp<T, M> &w,
                                                   const ck_bw_tile<T> &t, ck_dkv_sums<W, M> *sums)
{
    ck_tc_sums s[M][2 * N], ds[M][2 * N];

    // rows are keys, so p and ds come out transposed, as dv and dk need them
    ck_tc_scores<T, W>(s, w.x, t.x);
    ck_tc_scores<T, W>(ds, w.y, t.y);
    if (!ck_at_open(a, t.at, 16 * N, w.at, 16 * M))
        ck_dkv_hide(a, h, w, t.at, s);
    if (a.drop)
        ck_dkv_drop(a, w, t, s, ds);
    else
        ck_dkv_factor(a.scale * AT_LOG2E, t, s, ds);
    ck_tc_gather<T, W>(sums->v, s, t.y);
    ck_tc_gather<T, W>(sums->k, ds, t.x);
}

/*
 * Kernel: a block computes dk and dv of 16 M AT_WARPS keys of one key head, from all its query
 * heads in order.
 */
template <typename T, int W, int M, int N>
static __global__ void __launch_bounds__(AT_THREADS, 2) ck_dkv(cu_at_call a, int stages)
{
    ZT_SHARED(uint4, shared);
    char *room = (char *)shared;
    const ck_bw_lay l = ck_bw_plan<W, M, N>(true, stages, a.drop);
    const int rows = 16 * M * AT_WARPS, cols = 16 * N;
    int k0;
    ck_at_head h = ck_dkv_head(a, rows, &k0);
    const int4 at = make_int4(h.batch, k0, h.key_head, 0);
    ck_dkv_sums<W, M> sums;

    ck_at_read_mask(a, &h, (int *)(void *)(room + l.stages)); // this memory is not in use yet
    ck_bw_warp<T, M> w = ck_bw_begin<T, W, M>(a, room, l, ck_at_keys_of<T>(a, a.k, at, a.ldk),
                                              ck_at_keys_of<T>(a, a.v, at, a.ldv));
    w.keep += w.at;
    w.at += k0;
    for (int row = 0; row < 2 * M; row++)
        w.valid[row / 2][row % 2] =
            ck_at_is_valid(a, h, w.at + row / 2 * 16 + ck_tc_row(row % 2 * 2));
    ck_tc_clear(sums.k);
    ck_tc_clear(sums.v);
    ck_dkv_pair next = ck_dkv_next(a, h, k0, make_int2(rows, cols), {0, 0});
    if (next.head < a.group)
        ck_dkv_load<T, W, N>(a, h, l, room + l.stages, next);

    for (int i = 0; next.head < a.group; i++) {
        const char *stage = room + l.stages + (stages == 2 ? i % 2 * l.each : 0);
        const ck_dkv_pair now = next;

        next = ck_dkv_next(a, h, k0, make_int2(rows, cols), {now.head, now.q0 + cols});
        const bool more = next.head < a.group;

        if (stages == 2 && more)
            ck_dkv_load<T, W, N>(a, h, l, room + l.stages + (i + 1) % 2 * l.each, next);
        ck_at_arrive(stages == 2 && more);
        if (a.drop)
            ck_at_keep(a, ck_dkv_of(a, h, now), now.q0, cols, k0, rows, (uint8_t *)room + l.keep);
        __syncthreads();
        if (ck_at_meets(a, h, now.q0, cols, w.at, 16 * M))
            ck_dkv_step<T, W, M, N>(a, h, w, ck_bw_view<T>(l, stage, true, now.q0), &sums);
        __syncthreads(); // until then threads may read this tile
        if (stages == 1 && more)
            ck_dkv_load<T, W, N>(a, h, l, room + l.stages, next);
    }
    // if no query sees these keys, the loop has not waited for the block's own rows
    ck_at_batch();
    ck_at_arrive(false);
    __syncthreads();
    const int4 to = make_int4(h.batch, w.at, h.key_head, 0);

    ck_at_write_all<T, W, M>(a, sums.k, a.scale, w.x, ck_at_keys_of<T>(a, a.dk, to, a.ldk));
    ck_at_write_all<T, W, M>(a, sums.v, a.factor, w.y, ck_at_keys_of<T>(a, a.dv, to, a.ldv));
}

/* ---- plain family ------------------------------------------------------------------------ */

/*
 * Turn a thread's 4 x 4 scores s into probabilities with dropout, and dp into gradients before
 * scaling.  at: {first query, first key, whether rows are keys (else queries), -}.
 */
static __device__ __forceinline__ void ck_bw_plain_factor(const cu_at_call &a, const ck_at_head &h,
                                                          const ck_at_plain &r, const int4 &at,
                                                          float (&s)[4][4], float (&dp)[4][4])
{
    const int y = (int)threadIdx.x / 16 * 4, x = (int)threadIdx.x % 16 * 4;
    const uint64_t list = ck_at_list(a, h.batch, h.head);
    const bool turned = at.z != 0;
    const float slope = ck_at_slope(a, h);

#pragma unroll
    for (int e = 0; e < 16; e++) {
        const int i = e / 4, j = e % 4, q = turned ? x + j : y + i, k = turned ? y + i : x + j;
        const bool there = at.x + q < a.queries;
        // INFINITY makes p 0 beyond the last query
        const float lse = there ? a.lse[list + at.x + q] : INFINITY;
        const float delta = there ? a.delta[list + at.x + q] : 0.0F;
        const float bias = ck_at_bias(a, h, slope, at.x + q, at.y + k);
        const float capped = ck_at_capped(a, s[i][j] * a.scale);
        const float score = ck_at_score(a, h, at.x + q, at.y + k, r.valid[k], capped + bias);
        const float p = score == -INFINITY ? 0.0F : expf(score - lse);
        const bool kept = !a.drop || r.keep[q * 64 + k] != 0;

        s[i][j] = kept ? p : 0.0F;
        dp[i][j] = p * ((kept ? dp[i][j] * a.factor : 0.0F) - delta) * ck_at_cap_slope(a, capped);
    }
}

/* Number of blocks of 64 queries of a head. */
static __host__ __device__ __forceinline__ int ck_at_blocks(const cu_at_call &a)
{
    return (a.queries + 63) / 64;
}

/* Number of distances between one block of queries and all keys. */
static __host__ __device__ __forceinline__ int ck_at_reach(const cu_at_call &a)
{
    return a.seq + 63;
}

/*
 * Add the tile's gradients of scores, which r.p holds by columns, to the block's sums of each
 * distance.  Each sum gets one addition per tile, from one thread; the barriers of the next tile's
 * products come before the next one.  k0: the tile's first key.
 */
static __device__ __forceinline__ void ck_at_sum_bias(const cu_at_call &a, const ck_at_head &h,
                                                      const ck_at_plain &r, int q0, int k0)
{
    const int apart = (int)threadIdx.x - 63; // of key and query in the tile
    const uint64_t block =
        ((uint64_t)h.batch * a.heads + h.head) * ck_at_blocks(a) + (uint64_t)(q0 / 64);
    float sum = 0;

    if (apart > 63 || k0 + apart + 63 >= ck_at_reach(a))
        return;
    for (int q = max(0, -apart); q < 64 && q + apart < 64; q++)
        sum += r.p[(q + apart) * AT_LD + q];
    a.dbias[block * ck_at_reach(a) + k0 + apart + 63] += sum;
}

/* Kernel: dbias [distances, heads] = the sums of all sequences and blocks, in this order. */
template <typename T>
static __global__ void __launch_bounds__(AT_THREADS) ck_at_dbias(cu_at_call a, T *to)
{
    const uint64_t i = (uint64_t)blockIdx.x * AT_THREADS + threadIdx.x, n = ck_at_distances(a);
    const int head = (int)(i / n), blocks = ck_at_blocks(a);
    float sum = 0;

    if (i >= n * a.heads)
        return;
    for (int e = 0; e < a.batch * blocks; e++) {
        const int block = e % blocks;
        const int64_t at = (int64_t)(i % n) - a.queries + 64 + (int64_t)block * 64;
        const uint64_t list = ((uint64_t)(e / blocks) * a.heads + head) * blocks + block;

        if (at >= 0 && at < ck_at_reach(a))
            sum += a.dbias[list * ck_at_reach(a) + at];
    }
    to[i % n * a.heads + head] = ck_down<T>(sum);
}

/* Kernel: a block computes columns blockIdx.y * 64 N .. of dq of 64 queries of one head. */
template <typename T, int N>
static __global__ void __launch_bounds__(AT_PLAIN) ck_dq_plain(cu_at_call a)
{
    ZT_SHARED(float4, shared);
    const ck_at_plain r = ck_at_plain_room((float *)shared);
    const float factor[4] = {a.scale, a.scale, a.scale, a.scale};
    int q0;
    ck_at_head h = ck_at_block_head(a, 64, &q0);
    const int4 at = make_int4(h.batch, q0, h.head, 0);
    float dq[N][4][4] = {};

    ck_at_read_mask(a, &h, r.valid);
    const int2 range = ck_at_range(a, h, q0, 64, 64);
    for (int k0 = range.x; k0 < range.y; k0 += 64) {
        const int4 key = make_int4(h.batch, k0, h.key_head, 0);
        const ck_at_rows<T> keys = ck_at_keys_of<T>(a, a.k, key, a.ldk);
        float s[4][4], dp[4][4];

        ck_at_valid(a, h, k0, 64, r.valid);
        if (a.drop)
            ck_at_keep(a, h, q0, 64, k0, 64, r.keep);
        ck_at_plain_scores(s, ck_at_queries_of<T>(a, a.q, at, a.ldq), keys, a.width, r);
        ck_at_plain_scores(dp, ck_at_queries_of<T>(a, a.dout, at, a.lddo),
                           ck_at_keys_of<T>(a, a.v, key, a.ldv), a.width, r);
        ck_bw_plain_factor(a, h, r, make_int4(q0, k0, 0, 0), s, dp);
        ck_at_plain_put(r, dp);
        ck_at_plain_gather<T, N>(dq, keys, a.width, r);
        if (a.dbias && blockIdx.y == 0)
            ck_at_sum_bias(a, h, r, q0, k0);
    }
    ck_at_plain_write<T, N>(dq, factor, ck_at_queries_of<T>(a, a.dq, at, a.ldq), a.width);
}

/* Kernel: a block computes columns blockIdx.y * 64 N .. of dk and dv of 64 keys of one key head. */
template <typename T, int N>
static __global__ void __launch_bounds__(AT_PLAIN) ck_dkv_plain(cu_at_call a)
{
    ZT_SHARED(float4, shared);
    const ck_at_plain r = ck_at_plain_room((float *)shared);
    const float scale[4] = {a.scale, a.scale, a.scale, a.scale};
    const float factor[4] = {a.factor, a.factor, a.factor, a.factor};
    const int2 sizes = make_int2(64, 64);
    int k0;
    ck_at_head h = ck_dkv_head(a, 64, &k0);
    const int4 key = make_int4(h.batch, k0, h.key_head, 0);
    float dk[N][4][4] = {}, dv[N][4][4] = {};

    ck_at_read_mask(a, &h, r.valid);
    ck_at_valid(a, h, k0, 64, r.valid);
    for (ck_dkv_pair p = ck_dkv_next(a, h, k0, sizes, {0, 0}); p.head < a.group;
         p = ck_dkv_next(a, h, k0, sizes, {p.head, p.q0 + 64})) {
        h = ck_dkv_of(a, h, p);
        const int4 at = make_int4(h.batch, p.q0, h.head, 0);
        const ck_at_rows<T> q = ck_at_queries_of<T>(a, a.q, at, a.ldq);
        const ck_at_rows<T> dout = ck_at_queries_of<T>(a, a.dout, at, a.lddo);
        float s[4][4], dp[4][4];

        if (a.drop)
            ck_at_keep(a, h, at.y, 64, k0, 64, r.keep);
        ck_at_plain_scores(s, ck_at_keys_of<T>(a, a.k, key, a.ldk), q, a.width, r);
        ck_at_plain_scores(dp, ck_at_keys_of<T>(a, a.v, key, a.ldv), dout, a.width, r);
        ck_bw_plain_factor(a, h, r, make_int4(at.y, k0, 1, 0), s, dp);
        // both factors use the same memory, one after the other
        ck_at_plain_put(r, s);
        ck_at_plain_gather<T, N>(dv, dout, a.width, r);
        ck_at_plain_put(r, dp);
        ck_at_plain_gather<T, N>(dk, q, a.width, r);
    }
    ck_at_plain_write<T, N>(dk, scale, ck_at_keys_of<T>(a, a.dk, key, a.ldk), a.width);
    ck_at_plain_write<T, N>(dv, factor, ck_at_keys_of<T>(a, a.dv, key, a.ldv), a.width);
}

/* ---- launching --------------------------------------------------------------------------- */

/* One block for each tile of `rows` queries of each head. */
static unsigned cu_dq_blocks(const cu_at_call &c, int rows)
{
    return (unsigned)((c.queries + rows - 1) / rows) * (unsigned)(c.batch * c.heads);
}

/* One block for each tile of `rows` keys of each key head. */
static unsigned cu_dkv_blocks(const cu_at_call &c, int rows)
{
    return (unsigned)((c.seq + rows - 1) / rows) * (unsigned)(c.batch * c.kv_heads);
}

/*
 * M: 16 M rows a warp; N: 16 N rows of the operand of the loop; for dq (Q) and for dk and dv (K).
 */
template <typename T, int W, int M_Q, int N_Q, int M_K, int N_K>
static void cu_bw_tensor(zt_device *d, const cu_at_call &c)
{
    const auto dq = ck_dq<T, W, M_Q, N_Q>;
    const auto dkv = ck_dkv<T, W, M_K, N_K>;
    const int at_q[2] = {ck_bw_plan<W, M_Q, N_Q>(false, 1, c.drop).bytes,
                         ck_bw_plan<W, M_Q, N_Q>(false, 2, c.drop).bytes};
    const int at_k[2] = {ck_bw_plan<W, M_K, N_K>(true, 1, c.drop).bytes,
                         ck_bw_plan<W, M_K, N_K>(true, 2, c.drop).bytes};
    const int stages_q = cu_at_stages(d, dq, at_q), stages_k = cu_at_stages(d, dkv, at_k);

    if (stages_q == 0 || stages_k == 0) {
        return; // the device has failed
    }
    ZT_LAUNCH(dq, cu_dq_blocks(c, 16 * M_Q * AT_WARPS), AT_THREADS, at_q[stages_q - 1],
              cu_stream(d), c, stages_q);
    ZT_LAUNCH(dkv, cu_dkv_blocks(c, 16 * M_K * AT_WARPS), AT_THREADS, at_k[stages_k - 1],
              cu_stream(d), c, stages_k);
}

template <typename T> static void cu_bw_dbias(zt_device *d, const cu_at_call &c, void *to)
{
    const uint64_t n = ck_at_distances(c) * (uint64_t)c.heads;

    if (c.dbias)
        ZT_LAUNCH(ck_at_dbias<T>, (unsigned)((n + AT_THREADS - 1) / AT_THREADS), AT_THREADS, 0,
                  cu_stream(d), c, (T *)to);
}

/* fp32, ALiBi, biases by distance, caps, or heads beyond AT_WIDEST: each block has 128 columns of
 * its outputs. */
template <typename T> static void cu_bw_plain(zt_device *d, const cu_at_call &c)
{
    const auto dq = c.width > 64 ? ck_dq_plain<T, 2> : ck_dq_plain<T, 1>;
    const auto dkv = c.width > 64 ? ck_dkv_plain<T, 2> : ck_dkv_plain<T, 1>;
    const unsigned parts = (unsigned)(c.width + 127) / 128;

    ZT_LAUNCH(dq, dim3(cu_dq_blocks(c, 64), parts), AT_PLAIN, AT_PLAIN_BYTES, cu_stream(d), c);
    ZT_LAUNCH(dkv, dim3(cu_dkv_blocks(c, 64), parts), AT_PLAIN, AT_PLAIN_BYTES, cu_stream(d), c);
}

template <typename T> static void cu_bw_delta(zt_device *d, const cu_at_call &c)
{
    const uint64_t n = (uint64_t)c.batch * c.queries * c.heads;
    unsigned lanes = 32;

    // with fewer than 32 packs in a row, one lane per pack
    while (c.vector && lanes > 1 && lanes / 2 * CK_PACK >= (unsigned)c.width)
        lanes /= 2;
    ZT_LAUNCH(ck_delta<T>, (unsigned)((n * lanes + AT_THREADS - 1) / AT_THREADS), AT_THREADS, 0,
              cu_stream(d), c, lanes);
}

/* Choose tiles by head width, so sums fit into registers (255 per thread). */
template <typename T> static void cu_bw_width(zt_device *d, const cu_at_call &c)
{
    if (c.alibi.whole != 0 || c.bias || c.cap > 0.0F || c.exact)
        cu_bw_plain<T>(d, c);
    else if (c.width <= 32)
        cu_bw_tensor<T, 32, 2, 2, 2, 2>(d, c);
    else if (c.width <= 64)
        cu_bw_tensor<T, 64, 2, 2, 2, 2>(d, c);
    else if (c.width <= 96)
        cu_bw_tensor<T, 96, 2, 2, 1, 2>(d, c);
    else if (c.width <= AT_WIDEST)
        cu_bw_tensor<T, 128, 1, 4, 1, 2>(d, c);
    else
        cu_bw_plain<T>(d, c);
}

void cu_at_backward(zt_device *d, cu_at_call *c, const zt_attention_grad *a)
{
    const uint64_t sums = (uint64_t)c->batch * c->heads * c->queries;
    const uint64_t biases =
        a->dbias ? (uint64_t)c->batch * c->heads * ck_at_blocks(*c) * ck_at_reach(*c) : 0;

    c->delta = cu_at_prepare(d, c, &a->fw, sums + biases);
    if (!c->delta)
        return;
    if (biases > 0) {
        c->dbias = c->delta + sums;
        if (!cu_try(d, cudaMemsetAsync(c->dbias, 0, biases * sizeof *c->dbias, cu_stream(d)),
                    "attention_grad"))
            return;
    }
    if (c->dt == CKPT_F32) {
        cu_bw_delta<float>(d, *c);
        cu_bw_plain<float>(d, *c);
        cu_bw_dbias<float>(d, *c, a->dbias);
    } else if (c->dt == CKPT_F16) {
        cu_bw_delta<__half>(d, *c);
        cu_bw_width<__half>(d, *c);
        cu_bw_dbias<__half>(d, *c, a->dbias);
    } else {
        cu_bw_delta<__nv_bfloat16>(d, *c);
        cu_bw_width<__nv_bfloat16>(d, *c);
        cu_bw_dbias<__nv_bfloat16>(d, *c, a->dbias);
    }
    cu_launched(d, "attention_grad");
}

void cu_attention_grad(zt_device *d, ckpt_dtype dt, const zt_attention_grad *a)
{
    cu_at_call c;
    const bool ok = zt_ok_attention_grad(a) && cu_at_set(&c, &a->fw);

    if (!cu_ready(d, dt, ok, "attention_grad") || cu_at_nothing(c))
        return;
    c.lddo = zt_stride(a->lddo, a->fw.heads * a->fw.width);
    c.dout = a->dout;
    c.dq = a->dq;
    c.dk = a->dk;
    c.dv = a->dv;
    c.dt = dt;
    c.vector = cu_at_whole(&c, 2);
    if (!cu_fused_run(d, c, &a->fw, a))
        cu_at_backward(d, &c, a);
}
