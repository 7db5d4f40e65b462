/*
 * cuda_attention.cu: owns attention on the GPU, forward, and what both directions do on the host.
 *
 * A block takes some queries of one head and meets the keys tile by tile; a running maximum and sum
 * are kept per query, and what was summed so far is scaled down when the maximum grows (Milakov &
 * Gimelshein 2018).  The next tile is on its way while one is worked on.
 *
 *     s = scale q k'            top' = max(top, max s)        shrink = exp(top - top')
 *     sum' = sum shrink + sum of exp(s - top')                o' = o shrink + exp(s - top') v
 *     in the end  o / sum,  lse = top + log sum
 *
 * Exponents are powers of 2 in the tensor family (one instruction each): log2 e is a factor of the
 * scores there, and comes off again in lse.  Dropped probabilities leave o, not the sum; what is
 * kept is multiplied by 1 / (1 - p) once, with the division.
 */
#include "engine/device/cuda_attention.h"

/* Keys of a tile, and floats from one row of scores to the next. */
#define FW_KEYS 64
#define FW_LD   68

/* ---- tensor family ----------------------------------------------------------------------- */

/* Where things lie in shared memory, in bytes.  Each warp's scores become its probabilities: a row
 * of FW_KEYS of T lies where the row of scores began. */
typedef struct ck_fw_lay {
    int k, v, s, shrink, valid, keep, bytes; /* the queries come first */
} ck_fw_lay;

/* M: 16 M queries a warp.  stages: tiles of keys at a time. */
template <int W, int M> static __host__ __device__ ck_fw_lay ck_fw_plan(int stages, bool drop)
{
    // T has 2 bytes; all parts are multiples of 32 bytes, as pieces for tensor cores must be
    const int rows = 16 * M * AT_WARPS, row = 2 * (W + AT_PAD);
    ck_fw_lay l;

    l.k = rows * row;
    l.v = l.k + stages * FW_KEYS * row;
    l.s = l.v + stages * FW_KEYS * row;
    l.shrink = l.s + rows * FW_LD * 4;
    l.valid = l.shrink + rows * 4;
    l.keep = l.valid + stages * FW_KEYS * 4;
    l.bytes = l.keep + (drop ? rows * FW_KEYS : 0);
    return l;
}

/* What a warp works with. */
template <typename T> struct ck_fw_warp {
    const T *q;
    float *s, *shrink;   /* 16 M rows of scores; by what their sums shrink */
    const uint8_t *keep; /* of its rows, or unused */
    int q0;              /* its first query */
    uint32_t rows;       /* ck_at_places */
    float top, sum;      /* of this lane's row: maximum (times log2 e) and sum so far */
};

/* A tile of keys. */
template <typename T> struct ck_fw_keys {
    const T *k, *v;
    const int *valid;
    int k0;
};

/* Copy keys k0 .. k0 + FW_KEYS of the head into stage `at`. */
template <typename T, int W>
static __device__ __forceinline__ ck_fw_keys<T> ck_fw_load(const cu_at_call &a, const ck_at_head &h,
                                                           char *room, const ck_fw_lay &l,
                                                           const int2 &at_k0)
{
    const int size = FW_KEYS * (W + AT_PAD), at = at_k0.x, k0 = at_k0.y;
    T *k = (T *)(void *)(room + l.k) + at * size, *v = (T *)(void *)(room + l.v) + at * size;
    int *valid = (int *)(void *)(room + l.valid) + at * FW_KEYS;
    const T *from_k = (const T *)a.k + ck_at_key(a, h.batch, k0, h.key_head, a.ldk);
    const T *from_v = (const T *)a.v + ck_at_key(a, h.batch, k0, h.key_head, a.ldv);

    ck_at_tile<T, W>(a, k, from_k, a.ldk, FW_KEYS, a.seq - k0);
    ck_at_tile<T, W>(a, v, from_v, a.ldv, FW_KEYS, a.seq - k0);
    ck_at_valid(a, h, k0, FW_KEYS, valid);
    ck_at_batch();
    return {k, v, valid, k0};
}

/*
 * One step of the running softmax over the warp's scores: they become probabilities relative to the
 * new maxima, in T, in the same place.  A lane has a whole row (M 2) or half of one (M 1).
 */
template <typename T, int M>
static __device__ __forceinline__ void ck_fw_softmax(const cu_at_call &a, const ck_at_head &h,
                                                     ck_fw_warp<T> *w, const ck_fw_keys<T> &t)
{
    const int lane = (int)threadIdx.x % 32, row = lane * M / 2, n = FW_KEYS / (2 / M);
    const int from = M == 2 ? 0 : lane % 2 * n, q = w->q0 + row;
    const bool open = ck_at_open(a, w->q0, t.k0, FW_KEYS);
    const float factor = a.scale * AT_LOG2E, before = w->top;
    float *s = w->s + row * FW_LD, sum = 0;
    alignas(16) float x[n];

#pragma unroll
    for (int c = 0; c < n; c += 4) { // 16 bytes at a time: lanes then use different banks
        *(float4 *)(void *)&x[c] = *(const float4 *)(const void *)&s[from + c];
    }
#pragma unroll
    for (int c = 0; c < n; c++) {
        x[c] *= factor;
        if (!open) {
            x[c] = ck_at_score(a, h, q, t.k0 + from + c, t.valid[from + c], x[c]);
        }
        w->top = fmaxf(w->top, x[c]);
    }
    // fmaxf passes NaN over; such a score makes the sum NaN below
    if (M == 1) {
        w->top = fmaxf(w->top, __shfl_xor_sync(0xFFFFFFFFu, w->top, 1));
    }
    // -inf: a row that has seen no key yet; 2^(-inf - 0) = 0
    const float top = w->top > -INFINITY ? w->top : 0.0F;
#pragma unroll
    for (int c = 0; c < n; c++) {
        x[c] = exp2f(x[c] - top);
        sum += x[c]; // not rounded to T, and before dropout
        if (a.drop && w->keep[row * FW_KEYS + from + c] == 0) {
            x[c] = 0;
        }
    }
    if (M == 1) {
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    }
    w->shrink[row] = exp2f(before - top);
    w->sum = w->sum * w->shrink[row] + sum;
    __syncwarp(); // all scores were read
#pragma unroll
    for (int c = 0; c < n; c += 8) {
        ck_write((T *)(void *)s, from + c, FW_KEYS, true, x + c);
    }
    __syncwarp();
}

/* One tile of keys for the warp's queries. */
template <typename T, int W, int M>
static __device__ __forceinline__ void ck_fw_step(const cu_at_call &a, const ck_at_head &h,
                                                  ck_fw_warp<T> *w, const ck_fw_keys<T> &t,
                                                  ck_at_acc (&o)[M][W / 16])
{
    // a softmax needs whole rows, and where a lane's numbers lie is not known: through shared
    // memory
    {
        ck_at_acc s[M][FW_KEYS / 16];

        ck_at_scores<T, W>(s, w->q, t.k);
#pragma unroll
        for (int i = 0; i < M * (FW_KEYS / 16); i++) {
            const int m = i / (FW_KEYS / 16), n = i % (FW_KEYS / 16);

            nvcuda::wmma::store_matrix_sync(w->s + m * 16 * FW_LD + n * 16, s[m][n], FW_LD,
                                            nvcuda::wmma::mem_row_major);
        }
    }
    __syncwarp();
    ck_fw_softmax<T, M>(a, h, w, t);
    // after a few tiles the maxima seldom grow
    if (__any_sync(0xFFFFFFFFu, w->shrink[(int)threadIdx.x % (16 * M)] != 1.0F)) {
#pragma unroll
        for (int i = 0; i < M * (W / 16) * 8; i++) {
            const int m = i / (W / 16 * 8), n = i / 8 % (W / 16);

            o[m][n].x[i % 8] *= w->shrink[m * 16 + ck_at_place(w->rows, i % 8)];
        }
    }
    ck_at_gather<T, W, M, FW_KEYS / 16>(o, (const T *)(const void *)w->s, 2 * FW_LD, t.v);
}

/* o and lse of the warp's queries, from the sums. */
template <typename T, int W, int M>
static __device__ __forceinline__ void ck_fw_finish(const cu_at_call &a, const ck_at_head &h,
                                                    const ck_fw_warp<T> &w,
                                                    ck_at_acc (&o)[M][W / 16])
{
    const int lane = (int)threadIdx.x % 32, row = lane * M / 2, q = w.q0 + row;
    float factor[M];

    // one lane of each row writes
    if (a.lse != NULL && q < a.queries && (M == 2 || lane % 2 == 0)) {
        a.lse[ck_at_list(a, h.batch, h.head) + q] = w.top * AT_LN2 + logf(w.sum);
    }
    // rows beyond the last query may divide by 0: they are not written
    w.shrink[row] = a.factor / w.sum;
    __syncwarp();
    for (int m = 0; m < M; m++) {
        factor[m] = w.shrink[m * 16 + lane / 2];
    }
    ck_at_write<T, W, M>(a, o, factor, w.s,
                         ck_at_queries_of<T>(a, a.o, make_int4(h.batch, w.q0, h.head, 0), a.ldo));
}

/* The keys that some of queries q0 .. q0 + rows see, from a whole tile on. */
static __device__ __forceinline__ int2 ck_fw_range(const cu_at_call &a, const ck_at_head &h, int q0,
                                                   int rows)
{
    if (q0 < h.blind) {
        return make_int2(0, a.seq); // a query without keys looks at all of them
    }
    return make_int2(h.first / FW_KEYS * FW_KEYS, a.causal ? min(h.last, q0 + rows) : h.last);
}

/* A block: 16 M AT_WARPS queries of one head. */
template <typename T, int W, int M>
static __global__ void __launch_bounds__(AT_THREADS, 2) ck_fw(cu_at_call a, int stages)
{
    ZT_SHARED(uint4, shared);
    char *room = (char *)shared;
    const ck_fw_lay l = ck_fw_plan<W, M>(stages, a.drop);
    const int rows = 16 * M * AT_WARPS, first = (int)threadIdx.x / 32 * 16 * M;
    int q0;
    ck_at_head h = ck_at_block_head(a, rows, &q0);
    T *q = (T *)(void *)room;
    uint8_t *keep = (uint8_t *)room + l.keep;
    float *s = (float *)(void *)(room + l.s) + first * FW_LD;
    ck_fw_warp<T> w = {q + first * (W + AT_PAD),
                       s,
                       (float *)(void *)(room + l.shrink) + first,
                       keep + first * FW_KEYS,
                       q0 + first,
                       0,
                       -INFINITY,
                       0};
    ck_at_acc o[M][W / 16];

    ck_at_read_mask(a, &h, (int *)(void *)(room + l.valid)); // its room: not in use yet
    w.rows = ck_at_find_places(s).row;
    ck_at_clear(o);
    const int2 range = ck_fw_range(a, h, q0, rows);

    ck_at_tile<T, W>(a, q, (const T *)a.q + ck_at_query(a, h.batch, q0, h.head, a.ldq), a.ldq, rows,
                     a.queries - q0);
    ck_fw_keys<T> next = ck_fw_load<T, W>(a, h, room, l, make_int2(0, range.x));
    for (int k0 = range.x, i = 0; k0 < range.y; k0 += FW_KEYS, i++) {
        const ck_fw_keys<T> keys = next;
        const bool more = k0 + FW_KEYS < range.y;

        // with two stages the copies of the next tile go on during this one's products
        if (stages == 2 && more) {
            next = ck_fw_load<T, W>(a, h, room, l, make_int2((i + 1) % 2, k0 + FW_KEYS));
        }
        ck_at_arrive(stages == 2 && more);
        if (a.drop) {
            ck_at_keep(a, h, q0, rows, k0, FW_KEYS, keep);
        }
        __syncthreads(); // everybody's copies have arrived
        // with `causal` the block's first warps have nothing to do in its last tile
        if (ck_at_meets(a, h, w.q0, 16 * M, k0, FW_KEYS)) {
            ck_fw_step<T, W, M>(a, h, &w, keys, o);
        }
        __syncthreads(); // before this tile's place is used again
        if (stages == 1 && more) {
            next = ck_fw_load<T, W>(a, h, room, l, make_int2(0, k0 + FW_KEYS));
        }
    }
    ck_fw_finish<T, W, M>(a, h, w, o);
}

/* ---- plain family ------------------------------------------------------------------------ */

/* The running softmax of a thread's four queries; all 16 threads of a row have the same. */
typedef struct ck_fw_stats {
    float top[4], sum[4], shrink[4];
} ck_fw_stats;

/* One step of it: the thread's scores (queries q0.. , keys k0..) become dropped probabilities. */
static __device__ __forceinline__ void ck_fw_plain_softmax(const cu_at_call &a, const ck_at_head &h,
                                                           const ck_at_plain &r, const int2 &q0_k0,
                                                           float (&s)[4][4], ck_fw_stats *m)
{
    const int y = (int)threadIdx.x / 16 * 4, x = (int)threadIdx.x % 16 * 4;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float before = m->top[i];
        float sum = 0;

        for (int j = 0; j < 4; j++) {
            s[i][j] = ck_at_score(a, h, q0_k0.x + y + i, q0_k0.y + x + j, r.valid[x + j],
                                  s[i][j] * a.scale);
            m->top[i] = fmaxf(m->top[i], s[i][j]);
        }
        // 16 neighbours have the row: half a warp
        for (int offset = 8; offset > 0; offset /= 2) {
            m->top[i] = fmaxf(m->top[i], __shfl_xor_sync(0xFFFFFFFFu, m->top[i], offset));
        }
        // -inf: a row that has seen no key yet; exp(-inf - 0) = 0
        const float top = m->top[i] > -INFINITY ? m->top[i] : 0.0F;

        for (int j = 0; j < 4; j++) {
            s[i][j] = expf(s[i][j] - top);
            sum += s[i][j];
            s[i][j] = a.drop && r.keep[(y + i) * 64 + x + j] == 0 ? 0.0F : s[i][j];
        }
        for (int offset = 8; offset > 0; offset /= 2) {
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
        }
        m->shrink[i] = expf(before - top);
        m->sum[i] = m->sum[i] * m->shrink[i] + sum;
    }
}

/* All keys for the block's queries q0 .. q0 + 64: columns c0 .. of o, not yet divided by the sums.
 */
template <typename T, int N>
static __device__ __forceinline__ void ck_fw_plain_keys(const cu_at_call &a, const ck_at_head &h,
                                                        const ck_at_plain &r, int q0,
                                                        float (&o)[N][4][4], ck_fw_stats *m)
{
    const int2 range = ck_fw_range(a, h, q0, 64);
    const ck_at_rows<T> q = ck_at_queries_of<T>(a, a.q, make_int4(h.batch, q0, h.head, 0), a.ldq);

    for (int k0 = range.x; k0 < range.y; k0 += 64) {
        const int4 at = make_int4(h.batch, k0, h.key_head, 0);
        float s[4][4];

        ck_at_valid(a, h, k0, 64, r.valid);
        if (a.drop) {
            ck_at_keep(a, h, q0, 64, k0, 64, r.keep);
        }
        // its barriers are also those between valid, keep and their readers
        ck_at_plain_scores(s, q, ck_at_keys_of<T>(a, a.k, at, a.ldk), a.width, r);
        ck_fw_plain_softmax(a, h, r, make_int2(q0, k0), s, m);
#pragma unroll
        for (int i = 0; i < N * 16; i++) {
            o[i / 16][i / 4 % 4][i % 4] *= m->shrink[i / 4 % 4];
        }
        ck_at_plain_put(r, s);
        ck_at_plain_gather<T, N>(o, ck_at_keys_of<T>(a, a.v, at, a.ldv), a.width, r);
    }
}

/* A block: 64 queries of one head, and columns blockIdx.y * 64 N .. of their outputs (of a head
 * wider than that each block computes the scores again). */
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
        if (a.lse != NULL && blockIdx.y == 0 && threadIdx.x % 16 == 0 && q0 + y + i < a.queries) {
            a.lse[ck_at_list(a, h.batch, h.head) + q0 + y + i] = m.top[i] + logf(m.sum[i]);
        }
    }
    ck_at_plain_write<T, N>(o, m.shrink,
                            ck_at_queries_of<T>(a, a.o, make_int4(h.batch, q0, h.head, 0), a.ldo),
                            a.width);
}

/* ---- launching --------------------------------------------------------------------------- */

bool cu_at_set(cu_at_call *c, const zt_attention *a)
{
    const uint64_t most = INT32_MAX / 2; // kernels count rows, heads and blocks in 32 bits

    memset(c, 0, sizeof *c); // c is read, too, where it was refused
    if (a->kv_heads == 0 || a->heads % a->kv_heads != 0 || a->q == NULL || a->k == NULL ||
        a->v == NULL || a->o == NULL || !(a->p >= 0 && a->p <= 1)) {
        return false;
    }
    if (a->seq > most || a->queries > a->seq || a->width > most || a->batch > most ||
        a->heads > most || a->batch * a->heads > most ||
        a->batch * a->heads * (a->seq / AT_WARPS + 1) > most) {
        return false;
    }
    c->batch = (int)a->batch;
    c->seq = (int)a->seq;
    c->queries = (int)(a->queries != 0 ? a->queries : a->seq);
    c->heads = (int)a->heads;
    c->kv_heads = (int)a->kv_heads;
    c->width = (int)a->width;
    c->group = (int)(a->heads / a->kv_heads);
    c->ldq = a->ldq != 0 ? a->ldq : a->heads * a->width;
    c->ldk = a->ldk != 0 ? a->ldk : a->kv_heads * a->width;
    c->ldv = a->ldv != 0 ? a->ldv : a->kv_heads * a->width;
    c->ldo = a->ldo != 0 ? a->ldo : a->heads * a->width;
    c->scale = a->scale;
    c->causal = a->causal;
    c->drop = a->p > 0;
    c->seed = a->seed;
    c->least = (int)ceilf(a->p * 0x1p+24F); // as zt_philox_keep has both
    c->factor = a->p < 1.0F ? (float)(1.0 / (1.0 - (double)a->p)) : 0.0F;
    c->mask = a->mask;
    c->q = a->q;
    c->k = a->k;
    c->v = a->v;
    c->o = a->o;
    c->lse = a->lse;
    return true;
}

bool cu_at_whole(const cu_at_call *c, uint64_t size)
{
    // NULL for what a forward call does not have
    const void *const p[] = {c->q, c->k, c->v, c->o, c->dout, c->dq, c->dk, c->dv};
    uint64_t bits = (c->ldq | c->ldk | c->ldv | c->ldo | c->lddo | (uint64_t)c->width) * size;

    for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
        bits |= (uint64_t)(uintptr_t)p[i];
    }
    return bits % 16 == 0;
}

/* Heads up to W: blocks of 16 M AT_WARPS queries. */
template <typename T, int W, int M> static void cu_fw_tensor(zt_device *d, const cu_at_call &c)
{
    const auto kernel = ck_fw<T, W, M>;
    const int rows = 16 * M * AT_WARPS;
    const int bytes[2] = {ck_fw_plan<W, M>(1, c.drop).bytes, ck_fw_plan<W, M>(2, c.drop).bytes};
    const int stages = cu_at_stages(d, kernel, bytes);
    const unsigned tiles = (unsigned)((c.queries + rows - 1) / rows);

    if (stages != 0) {
        ZT_LAUNCH(kernel, tiles * (unsigned)(c.batch * c.heads), AT_THREADS, bytes[stages - 1],
                  cu_stream(d), c, stages);
    }
}

/* fp32, or heads beyond AT_WIDEST: each block has 128 columns of o. */
template <typename T> static void cu_fw_plain(zt_device *d, const cu_at_call &c)
{
    const auto kernel = c.width > 64 ? ck_fw_plain<T, 2> : ck_fw_plain<T, 1>;
    const unsigned tiles = (unsigned)(c.queries + 63) / 64;
    const dim3 grid(tiles * (unsigned)(c.batch * c.heads), (unsigned)(c.width + 127) / 128);

    ZT_LAUNCH(kernel, grid, AT_PLAIN, AT_PLAIN_BYTES, cu_stream(d), c);
}

/* By width: 32 queries a warp while their sums and scores fit into its registers. */
template <typename T> static void cu_fw_width(zt_device *d, const cu_at_call &c)
{
    if (c.width <= 32) {
        cu_fw_tensor<T, 32, 2>(d, c);
    } else if (c.width <= 64) {
        cu_fw_tensor<T, 64, 2>(d, c);
    } else if (c.width <= 96) {
        cu_fw_tensor<T, 96, 1>(d, c);
    } else if (c.width <= AT_WIDEST) {
        cu_fw_tensor<T, 128, 1>(d, c);
    } else {
        cu_fw_plain<T>(d, c);
    }
}

void cu_attention(zt_device *d, ckpt_dtype dt, const zt_attention *a)
{
    cu_at_call c;
    const bool ok = cu_at_set(&c, a);

    if (!cu_ready(d, dt, ok, "attention") || cu_at_nothing(c)) {
        return;
    }
    c.vector = cu_at_whole(&c, 2);
    if (dt == CKPT_F32) {
        cu_fw_plain<float>(d, c);
    } else if (dt == CKPT_F16) {
        cu_fw_width<__half>(d, c);
    } else {
        cu_fw_width<__nv_bfloat16>(d, c);
    }
    cu_launched(d, "attention");
}
