/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.cu: computes the forward pass of attention on the GPU; also has the host code that both
 * passes share.
 *
 * A block takes some queries of one head and passes over the keys tile by tile.  It keeps a running
 * maximum and sum per query, and scales the sums down when the maximum grows (Milakov & Gimelshein
 * 2018).  The next tile loads while the current one is used.
 *
 *     s = scale q k'      top' = max(top, max s)     shrink = exp(top - top')
 *     sum' = sum shrink + sum of exp(s - top')       o' = o shrink + exp(s - top') v
 *     in the end  o / sum,  lse = top + log sum
 *
 * Exponents are powers of 2 in the tensor family, because those take one instruction each: scores
 * have log2 e as a factor there, and lse divides it out again.  Dropped probabilities are left out
 * of o, not of the sum; kept ones are multiplied by 1 / (1 - p) once, together with the division.
 */
#include "engine/cuda/fused.h"

/* ---- tensor family ----------------------------------------------------------------------- */

/* Layout of shared memory: byte offsets, with the queries first. */
typedef struct ck_fw_lay {
    int k, v, valid, keep, bytes;
} ck_fw_lay;

/* M: 16 M queries a warp.  K: keys of a tile.  stages: tiles of keys in flight. */
template <int W, int M, int K>
static __host__ __device__ ck_fw_lay ck_fw_plan(int stages, bool drop)
{
    // T has 2 bytes
    const int rows = 16 * M * AT_WARPS, row = 2 * (W + CK_TC_PAD);
    ck_fw_lay l;

    l.k = rows * row;
    l.v = l.k + stages * K * row;
    l.valid = l.v + stages * K * row;
    l.keep = l.valid + stages * K * 4;
    l.bytes = l.keep + (drop ? rows * K : 0);
    return l;
}

/*
 * State of a warp.  Four lanes share a row: row m * 16 + half * 8 + lane / 4 for each m and half.
 */
template <typename T, int M> struct ck_fw_warp {
    T *q;                /* the warp's rows of q; after the last tile its room holds o */
    const uint8_t *keep; /* dropout flags of the warp's rows; unset without dropout */
    int q0;              /* index of the warp's first query */
    float top[M][2];     /* maximum so far, times log2 e */
    float sum[M][2];     /* this lane's part of the sum so far */
};

/* A tile of keys. */
template <typename T> struct ck_fw_keys {
    const T *k, *v;
    const int *valid;
    int k0;
};

/* The tile of keys from k0 on, in stage `at`. */
template <typename T, int W, int K>
static __device__ __forceinline__ ck_fw_keys<T> ck_fw_view(char *room, const ck_fw_lay &l, int at,
                                                           int k0)
{
    const int skip = at * K * (W + CK_TC_PAD);

    return {(const T *)(void *)(room + l.k) + skip, (const T *)(void *)(room + l.v) + skip,
            (const int *)(void *)(room + l.valid) + at * K, k0};
}

template <typename T, int W, int K>
static __device__ __forceinline__ void ck_fw_load(const cu_at_call &a, const ck_at_head &h,
                                                  const ck_fw_keys<T> &to)
{
    const int4 at = make_int4(h.batch, to.k0, h.key_head, 0);

    ck_at_tile<T, W>(a, const_cast<T *>(to.k), ck_at_keys_of<T>(a, a.k, at, a.ldk), K);
    ck_at_tile<T, W>(a, const_cast<T *>(to.v), ck_at_keys_of<T>(a, a.v, at, a.ldv), K);
    if (a.mask)
        ck_at_valid(a, h, to.k0, K, const_cast<int *>(to.valid));
    ck_at_batch();
}

/*
 * One step of the running softmax over one row of the warp's scores (row = 2 m + half), not yet
 * multiplied by `factor`.  Scores become probabilities relative to the new maximum.  Returns the
 * factor by which earlier sums shrink.
 */
template <typename T, int M, int K>
static __device__ __forceinline__ float ck_fw_row(ck_fw_warp<T, M> *w, float factor,
                                                  ck_tc_sums (&s)[M][K / 8], int row)
{
    const int m = row / 2, half = row % 2;
    const float before = w->top[m][half];
    float top = -INFINITY, sum = 0;

#pragma unroll
    for (int e = 0; e < K / 4; e++) {
        // fmaxf ignores NaN; a NaN score makes the sum NaN below
        top = fmaxf(top, s[m][e / 2].x[half * 2 + e % 2]);
    }
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
    top = fmaxf(before, top * factor); // factor > 0
    w->top[m][half] = top;
    // -inf: the row has seen no key yet; 2^(-inf - 0) = 0
    top = top > -INFINITY ? top : 0.0F;
#pragma unroll
    for (int e = 0; e < K / 4; e++) {
        float &x = s[m][e / 2].x[half * 2 + e % 2];

        x = ck_exp2(fmaf(x, factor, -top));
        sum += x; // the sum is of values before rounding to T and before dropout
    }
    const float shrink = ck_exp2(before - top);

    w->sum[m][half] = w->sum[m][half] * shrink + sum;
    return shrink;
}

/* Set dropped probabilities to 0. */
template <int M, int K>
static __device__ __forceinline__ void ck_fw_drop(const uint8_t *keep, ck_tc_sums (&s)[M][K / 8])
{
#pragma unroll
    for (int e = 0; e < M * (K / 2); e++) {
        const int m = e / (K / 2), n = e / 4 % (K / 8), i = e % 4;
        const int r = m * 16 + ck_tc_row(i), c = n * 8 + ck_tc_col(i);

        s[m][n].x[i] = keep[r * K + c] != 0 ? s[m][n].x[i] : 0.0F;
    }
}

/* Process one tile of keys for the warp's queries. */
template <typename T, int W, int M, int K>
static __device__ __forceinline__ void ck_fw_step(const cu_at_call &a, const ck_at_head &h,
                                                  ck_fw_warp<T, M> *w, const ck_fw_keys<T> &t,
                                                  ck_tc_sums (&o)[M][W / 8])
{
    ck_tc_sums s[M][K / 8];
    float shrink[2 * M];
    bool grown = false;

    ck_tc_scores<T, W>(s, w->q, t.k);
    // below the diagonal, and without a mask, no score is hidden
    if (!ck_at_open(a, w->q0, 16 * M, t.k0, K))
        ck_at_hide(a, h, make_int2(w->q0, t.k0), t.valid, s);
#pragma unroll
    for (int row = 0; row < 2 * M; row++) {
        shrink[row] = ck_fw_row<T, M, K>(w, a.scale * AT_LOG2E, s, row);
        grown = grown || shrink[row] != 1.0F;
    }
    // a branch is worthwhile, because after a few tiles the maxima seldom grow
    if (__any_sync(0xFFFFFFFFu, grown)) {
#pragma unroll
        for (int e = 0; e < M * (W / 8) * 4; e++) {
            const int m = e / (W / 8 * 4), n = e / 4 % (W / 8), i = e % 4;

            o[m][n].x[i] *= shrink[2 * m + i / 2];
        }
    }
    if (a.drop)
        ck_fw_drop<M, K>(w->keep, s);
    ck_tc_gather<T, W>(o, s, t.v);
}

/* Write o and lse of the warp's queries. */
template <typename T, int W, int M>
static __device__ __forceinline__ void ck_fw_finish(const cu_at_call &a, const ck_at_head &h,
                                                    const ck_fw_warp<T, M> &w,
                                                    const ck_tc_sums (&o)[M][W / 8])
{
    float factor[M][2];

#pragma unroll
    for (int row = 0; row < 2 * M; row++) {
        const int m = row / 2, half = row % 2, q = w.q0 + m * 16 + ck_tc_row(half * 2);
        float sum = w.sum[m][half];

        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
        // one lane per row writes
        if (a.lse && q < a.queries && threadIdx.x % 4 == 0)
            a.lse[ck_at_list(a, h.batch, h.head) + q] = w.top[m][half] * AT_LN2 + logf(sum);
        // rows beyond the last query may divide by 0, but are not written
        factor[m][half] = a.factor / sum;
    }
    ck_at_write<T, W, M>(a, o, factor, w.q,
                         ck_at_queries_of<T>(a, a.o, make_int4(h.batch, w.q0, h.head, 0), a.ldo));
}

/* Kernel: a block computes 16 M AT_WARPS queries of one head. */
template <typename T, int W, int M, int K>
static __global__ void __launch_bounds__(AT_THREADS, 2) ck_fw(cu_at_call a, int stages)
{
    ZT_SHARED(uint4, shared);
    char *room = (char *)shared;
    const ck_fw_lay l = ck_fw_plan<W, M, K>(stages, a.drop);
    const int rows = 16 * M * AT_WARPS, first = (int)threadIdx.x / 32 * 16 * M;
    int q0;
    ck_at_head h = ck_at_block_head(a, rows, &q0);
    T *q = (T *)(void *)room;
    uint8_t *keep = (uint8_t *)room + l.keep;
    ck_fw_warp<T, M> w = {q + first * (W + CK_TC_PAD), keep + first * K, q0 + first, {}, {}};
    ck_tc_sums o[M][W / 8];

    // the memory of `valid` is not in use yet
    ck_at_read_mask(a, &h, (int *)(void *)(room + l.valid));
    for (int m = 0; m < M; m++)
        w.top[m][0] = w.top[m][1] = -INFINITY;
    ck_tc_clear(o);
    const int2 range = ck_at_range(a, h, q0, rows, K);

    ck_at_tile<T, W>(a, q, ck_at_queries_of<T>(a, a.q, make_int4(h.batch, q0, h.head, 0), a.ldq),
                     rows);
    ck_fw_load<T, W, K>(a, h, ck_fw_view<T, W, K>(room, l, 0, range.x));
    for (int k0 = range.x, i = 0; k0 < range.y; k0 += K, i++) {
        const int at = stages == 2 ? i % 2 : 0;
        const bool more = k0 + K < range.y;

        // with two stages, the next tile's copies run during this tile's products
        if (stages == 2 && more)
            ck_fw_load<T, W, K>(a, h, ck_fw_view<T, W, K>(room, l, 1 - at, k0 + K));
        ck_at_arrive(stages == 2 && more);
        if (a.drop)
            ck_at_keep(a, h, q0, rows, k0, K, keep);
        __syncthreads(); // all threads' copies have arrived
        // with `causal`, a block's first warps need not see its last tile
        if (ck_at_meets(a, h, w.q0, 16 * M, k0, K))
            ck_fw_step<T, W, M, K>(a, h, &w, ck_fw_view<T, W, K>(room, l, at, k0), o);
        __syncthreads(); // until here other threads may still read this tile
        if (stages == 1 && more)
            ck_fw_load<T, W, K>(a, h, ck_fw_view<T, W, K>(room, l, 0, k0 + K));
    }
    ck_fw_finish<T, W, M>(a, h, w, o);
}

/* ---- plain family ------------------------------------------------------------------------ */

/* The running softmax of a thread's four queries; all 16 threads of a row hold the same values. */
typedef struct ck_fw_stats {
    float top[4], sum[4], shrink[4];
} ck_fw_stats;

/*
 * One step of the running softmax: turn this thread's scores (queries q0.., keys k0..) into
 * probabilities with dropout applied.
 */
static __device__ __forceinline__ void ck_fw_plain_softmax(const cu_at_call &a, const ck_at_head &h,
                                                           const ck_at_plain &r, const int2 &q0_k0,
                                                           float (&s)[4][4], ck_fw_stats *m)
{
    const int y = (int)threadIdx.x / 16 * 4, x = (int)threadIdx.x % 16 * 4;
    const float slope = ck_at_slope(a, h);

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float before = m->top[i];
        float sum = 0;

        for (int j = 0; j < 4; j++) {
            const int q = q0_k0.x + y + i, k = q0_k0.y + x + j;

            s[i][j] =
                ck_at_score(a, h, q, k, r.valid[x + j],
                            ck_at_capped(a, s[i][j] * a.scale) + ck_at_bias(a, h, slope, q, k));
            m->top[i] = fmaxf(m->top[i], s[i][j]);
        }
        // 16 neighbouring threads share the row: half a warp
        for (int offset = 8; offset > 0; offset /= 2)
            m->top[i] = fmaxf(m->top[i], __shfl_xor_sync(0xFFFFFFFFu, m->top[i], offset));
        // -inf: the row has seen no key yet; exp(-inf - 0) = 0
        const float top = m->top[i] > -INFINITY ? m->top[i] : 0.0F;

        for (int j = 0; j < 4; j++) {
            s[i][j] = expf(s[i][j] - top);
            sum += s[i][j];
            s[i][j] = a.drop && r.keep[(y + i) * 64 + x + j] == 0 ? 0.0F : s[i][j];
        }
        for (int offset = 8; offset > 0; offset /= 2)
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
        m->shrink[i] = expf(before - top);
        m->sum[i] = m->sum[i] * m->shrink[i] + sum;
    }
}

/* Pass over all keys for the block's queries q0 .. q0 + 64: columns c0 .. of o, not yet divided by
 * the sums. */
template <typename T, int N>
static __device__ __forceinline__ void ck_fw_plain_keys(const cu_at_call &a, const ck_at_head &h,
                                                        const ck_at_plain &r, int q0,
                                                        float (&o)[N][4][4], ck_fw_stats *m)
{
    const int2 range = ck_at_range(a, h, q0, 64, 64);
    const ck_at_rows<T> q = ck_at_queries_of<T>(a, a.q, make_int4(h.batch, q0, h.head, 0), a.ldq);

    for (int k0 = range.x; k0 < range.y; k0 += 64) {
        const int4 at = make_int4(h.batch, k0, h.key_head, 0);
        float s[4][4];

        ck_at_valid(a, h, k0, 64, r.valid);
        if (a.drop)
            ck_at_keep(a, h, q0, 64, k0, 64, r.keep);
        // the barriers in this function also order the writes of valid and keep before their reads
        ck_at_plain_scores(s, q, ck_at_keys_of<T>(a, a.k, at, a.ldk), a.width, r);
        ck_fw_plain_softmax(a, h, r, make_int2(q0, k0), s, m);
#pragma unroll
        for (int i = 0; i < N * 16; i++)
            o[i / 16][i / 4 % 4][i % 4] *= m->shrink[i / 4 % 4];
        ck_at_plain_put(r, s);
        ck_at_plain_gather<T, N>(o, ck_at_keys_of<T>(a, a.v, at, a.ldv), a.width, r);
    }
}

/* Kernel: a block computes 64 queries of one head, columns blockIdx.y * 64 N .. of their outputs.
 * The blocks of a wider head each compute the scores again. */
template <typename T, int N>
static __global__ void __launch_bounds__(AT_PLAIN, N == 1 ? 2 : 1) ck_fw_plain(cu_at_call a)
{
    ZT_SHARED(float4, shared);
    const ck_at_plain r = ck_at_plain_room((float *)shared);
    const int y = (int)threadIdx.x / 16 * 4;
    int q0;
    ck_at_head h = ck_at_block_head(a, 64, &q0);
    float o[N][4][4] = {};
    ck_fw_stats m = {};

    ck_at_read_mask(a, &h, r.valid);
    m.top[0] = m.top[1] = m.top[2] = m.top[3] = -INFINITY;
    ck_fw_plain_keys<T, N>(a, h, r, q0, o, &m);
    for (int i = 0; i < 4; i++) {
        m.shrink[i] = a.factor / m.sum[i];
        if (a.lse && blockIdx.y == 0 && threadIdx.x % 16 == 0 && q0 + y + i < a.queries)
            a.lse[ck_at_list(a, h.batch, h.head) + q0 + y + i] = m.top[i] + logf(m.sum[i]);
    }
    ck_at_plain_write<T, N>(o, m.shrink,
                            ck_at_queries_of<T>(a, a.o, make_int4(h.batch, q0, h.head, 0), a.ldo),
                            a.width);
}

/* ---- launching --------------------------------------------------------------------------- */

bool cu_at_set(cu_at_call *c, const zt_attention *a)
{
    const uint64_t most = INT32_MAX / 2; // kernels count rows, heads and blocks in 32 bits
    const uint64_t longest = a && a->queries > a->seq ? a->queries : a ? a->seq : 0;

    memset(c, 0, sizeof *c); // callers read c even if the call is refused
    if (!zt_ok_attention(a) || a->queries > most || a->seq > most || a->width > most ||
        a->batch > most || a->heads > most || a->batch * a->heads > most ||
        a->batch * a->heads * (longest / AT_WARPS + 1) > most)
        return false;
    c->batch = (int)a->batch;
    c->seq = (int)a->seq;
    c->queries = (int)(a->queries != 0 ? a->queries : a->seq);
    c->heads = (int)a->heads;
    c->kv_heads = (int)a->kv_heads;
    c->width = (int)a->width;
    c->group = (int)(a->heads / a->kv_heads);
    c->ldq = zt_stride(a->ldq, a->heads * a->width);
    c->ldk = zt_stride(a->ldk, a->kv_heads * a->width);
    c->ldv = zt_stride(a->ldv, a->kv_heads * a->width);
    c->ldo = zt_stride(a->ldo, a->heads * a->width);
    c->scale = a->scale;
    c->cap = a->cap;
    c->causal = a->causal;
    if (a->alibi)
        c->alibi = zt_alibi_of(a->heads);
    c->window = a->window != 0 && a->window < a->seq ? (int)a->window : (int)most;
    c->drop = a->p > 0;
    c->seed = a->seed;
    c->least = zt_keep_of(a->p).least;
    c->factor = zt_keep_of(a->p).factor;
    c->mask = a->mask;
    c->q = a->q;
    c->k = a->k;
    c->v = a->v;
    c->o = a->o;
    c->lse = a->lse;
    return true;
}

/* One thread per sequence, which is enough: the work equals reading the mask once. */
static __global__ void __launch_bounds__(32) ck_at_near(cu_at_call a)
{
    const int batch = (int)(blockIdx.x * 32 + threadIdx.x);
    int near = -1;

    for (int i = 0; batch < a.batch && i < a.seq; i++) {
        const uint64_t at = (uint64_t)batch * a.seq + i;

        near = a.mask[at] != 0 ? i : near;
        a.near[at] = near;
    }
}

/* Turn the list [distances, heads] in T into one in fp32 for each head. */
template <typename T>
static __global__ void __launch_bounds__(AT_THREADS) ck_at_list_biases(cu_at_call a, const T *from)
{
    const uint64_t i = (uint64_t)blockIdx.x * AT_THREADS + threadIdx.x, n = ck_at_distances(a);

    if (i < n * a.heads)
        a.bias[i] = ck_up(from[i % n * a.heads + i / n]);
}

template <typename T>
static void cu_at_list_biases(zt_device *d, const cu_at_call &c, const void *from)
{
    const uint64_t n = ck_at_distances(c) * (uint64_t)c.heads;

    ZT_LAUNCH(ck_at_list_biases<T>, (unsigned)((n + AT_THREADS - 1) / AT_THREADS), AT_THREADS, 0,
              cu_stream(d), c, (const T *)from);
}

float *cu_at_prepare(zt_device *d, cu_at_call *c, const zt_attention *a, uint64_t more)
{
    const uint64_t near = c->mask && c->window < c->seq ? (uint64_t)c->batch * c->seq : 0;
    const uint64_t bias = a->bias ? ck_at_distances(*c) * (uint64_t)c->heads : 0;
    float *room = (float *)cu_scratch(d, (near + bias + more + 1) * sizeof(float));

    if (!room)
        return NULL;
    if (near > 0) {
        c->near = (int32_t *)(void *)room;
        ZT_LAUNCH(ck_at_near, (unsigned)(c->batch + 31) / 32, 32, 0, cu_stream(d), *c);
    }
    if (bias > 0) {
        c->bias = room + near;
        if (c->dt == CKPT_F32)
            cu_at_list_biases<float>(d, *c, a->bias);
        else if (c->dt == CKPT_F16)
            cu_at_list_biases<__half>(d, *c, a->bias);
        else
            cu_at_list_biases<__nv_bfloat16>(d, *c, a->bias);
    }
    return room + near + bias;
}

bool cu_at_whole(const cu_at_call *c, uint64_t size)
{
    // NULL for tensors that a forward call lacks
    const void *const p[] = {c->q, c->k, c->v, c->o, c->dout, c->dq, c->dk, c->dv};
    uint64_t bits = (c->ldq | c->ldk | c->ldv | c->ldo | c->lddo | (uint64_t)c->width) * size;

    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        bits |= (uint64_t)(uintptr_t)p[i];
    return bits % 16 == 0;
}

/* Heads up to W: blocks of 16 M AT_WARPS queries, K keys at a time. */
template <typename T, int W, int M, int K>
static void cu_fw_tensor(zt_device *d, const cu_at_call &c)
{
    const auto kernel = ck_fw<T, W, M, K>;
    const int rows = 16 * M * AT_WARPS;
    const int bytes[2] = {ck_fw_plan<W, M, K>(1, c.drop).bytes,
                          ck_fw_plan<W, M, K>(2, c.drop).bytes};
    const int stages = cu_at_stages(d, kernel, bytes);
    const unsigned tiles = (unsigned)((c.queries + rows - 1) / rows);

    if (stages != 0)
        ZT_LAUNCH(kernel, tiles * (unsigned)(c.batch * c.heads), AT_THREADS, bytes[stages - 1],
                  cu_stream(d), c, stages);
}

/* fp32, ALiBi, biases by distance, caps, or heads beyond AT_WIDEST: each block has 128 columns of
 * o. */
template <typename T> static void cu_fw_plain(zt_device *d, const cu_at_call &c)
{
    const auto kernel = c.width > 64 ? ck_fw_plain<T, 2> : ck_fw_plain<T, 1>;
    const unsigned tiles = (unsigned)(c.queries + 63) / 64;
    const dim3 grid(tiles * (unsigned)(c.batch * c.heads), (unsigned)(c.width + 127) / 128);

    ZT_LAUNCH(kernel, grid, AT_PLAIN, AT_PLAIN_BYTES, cu_stream(d), c);
}

/* Choose tiles by head width, so sums and scores fit into registers (255 per thread). */
template <typename T> static void cu_fw_width(zt_device *d, const cu_at_call &c)
{
    if (c.alibi.whole != 0 || c.bias || c.cap > 0.0F || c.exact)
        cu_fw_plain<T>(d, c);
    else if (c.width <= 32)
        cu_fw_tensor<T, 32, 2, 64>(d, c);
    else if (c.width <= 64)
        cu_fw_tensor<T, 64, 2, 64>(d, c);
    else if (c.width <= 96)
        cu_fw_tensor<T, 96, 2, 32>(d, c);
    else if (c.width <= AT_WIDEST)
        cu_fw_tensor<T, 128, 2, 32>(d, c);
    else
        cu_fw_plain<T>(d, c);
}

void cu_at_forward(zt_device *d, cu_at_call *c, const zt_attention *a)
{
    if (!cu_at_prepare(d, c, a, 0))
        return;
    if (c->dt == CKPT_F32)
        cu_fw_plain<float>(d, *c);
    else if (c->dt == CKPT_F16)
        cu_fw_width<__half>(d, *c);
    else
        cu_fw_width<__nv_bfloat16>(d, *c);
    cu_launched(d, "attention");
}

void cu_attention(zt_device *d, ckpt_dtype dt, const zt_attention *a)
{
    cu_at_call c;
    const bool ok = cu_at_set(&c, a);

    if (!cu_ready(d, dt, ok, "attention") || cu_at_nothing(c))
        return;
    c.dt = dt;
    c.vector = cu_at_whole(&c, 2);
    if (!cu_fused_run(d, c, a, NULL))
        cu_at_forward(d, &c, a);
}
