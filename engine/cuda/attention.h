/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.h: declares the parts that attention's kernels share, forward (attention.cu) and
 * backward (attention_grad.cu): the description of a call, the keys that a query sees, dropout,
 * tiles.
 *
 * Scores exist for one pair of tiles at a time (Dao et al. 2022, Dao 2023).  There are two
 * families of kernels, each forward and backward:
 *
 *     tensor   fp16 and bf16, heads up to AT_WIDEST: products by tensor cores, 4 warps a block,
 *              each warp with 16 or 32 rows of its own, so warps synchronize only when they load
 *     plain    fp32, wider heads, ALiBi, biases by distance, and caps: fused multiply-adds, 256
 *              threads a block with 4 x 4 products each
 *
 * Unlike the CPU's attention, the tensor family rounds probabilities (and, backward, gradients of
 * scores) to dt before it multiplies them, because factors of a tensor core have dt; the CPU keeps
 * them in fp32.  With e the relative rounding of dt (2^-8 bf16, 2^-11 fp16), o moves by at most e
 * times the largest |v|, dv by e times the sum of p |dout|, dq and dk by e times the sums of |ds k|
 * and |ds q|; sums themselves are fp32.  A gradient of a score beyond dt's range (fp16: 65504,
 * before `scale`) becomes infinite, and the loss scaler then sees it.  If a row of scores is not
 * finite, dv of later keys of its tile becomes NaN too, as dk does on CPU and GPU.  The plain
 * family rounds its outputs only, as the CPU does.
 */
#ifndef ZT_CUDA_ATTENTION_H
#define ZT_CUDA_ATTENTION_H

#include <stdint.h>

#include "engine/cuda/tensor.h"

/* Threads per block of the tensor family and of the plain one; widest head of the tensor family. */
#define AT_WARPS   4
#define AT_THREADS 128
#define AT_PLAIN   256
#define AT_WIDEST  128

#define AT_LOG2E 1.4426950408889634F
#define AT_LN2   0.6931471805599453F

/* A call as the kernels see it, with all strides set (elements). */
typedef struct cu_at_call {
    int batch, seq, queries, heads, kv_heads, width;
    int group; /* query heads per key head */
    uint64_t ldq, ldk, ldv, ldo, lddo;
    float scale;
    float cap; /* of scores; 0: none */
    bool causal;
    bool vector; /* all rows start at multiples of 16 bytes, and width is a multiple of 16 bytes */
    bool exact;  /* compute by the plain family */
    bool drop;
    uint64_t seed;
    int least; /* zt_keep's threshold, as `factor` is its factor */
    float factor;
    zt_alibi alibi; /* ALiBi; whole 0: none */
    ckpt_dtype dt;  /* to which its biases are rounded */
    /* biases by distance [heads, queries + seq - 1]; NULL: none.  Row k - q + queries - 1 of the
     * operation's list is element k - q + queries - 1 of each head's one here. */
    float *bias;
    /* their gradients, a list for each block of 64 queries: [batch, heads, blocks, seq + 63];
     * element k - q + 63 belongs to key k and query q of the block; NULL: not wanted */
    float *dbias;
    int window; /* keys that a query sees, itself the last; at most seq (no window) */
    const int32_t *mask;
    /* [batch, seq], with a mask and a window: the last unmasked key up to this one, or -1 */
    int32_t *near;
    const void *q, *k, *v, *dout;
    void *o, *dq, *dk, *dv;
    float *lse, *delta; /* [batch, heads, queries] */
} cu_at_call;

/*
 * One head of one sequence.  Keys that count lie in first .. last.  Queries below `blind` see no
 * key, so they attend to all keys equally (with a window, other queries may too: ck_at_is_blind).
 */
typedef struct ck_at_head {
    int batch, head, key_head;
    int first, last, blind;
} ck_at_head;

/* ---- host -------------------------------------------------------------------------------- */

/* Fill in a call; false: an argument is out of range. */
bool cu_at_set(cu_at_call *c, const zt_attention *a);

/* True if the call has nothing to compute. */
static inline bool cu_at_nothing(const cu_at_call &c)
{
    return c.batch == 0 || c.seq == 0 || c.heads == 0 || c.width == 0;
}

/*
 * Allocate and fill c->near and c->bias, with `more` numbers behind them; returns the address of
 * these numbers, or NULL: the device has failed.
 */
float *cu_at_prepare(zt_device *d, cu_at_call *c, const zt_attention *a, uint64_t more);

/* Queue the own kernels of a call: those of attention.cu, and those of attention_grad.cu. */
void cu_at_forward(zt_device *d, cu_at_call *c, const zt_attention *a);
void cu_at_backward(zt_device *d, cu_at_call *c, const zt_attention_grad *a);

/* True if every pointer and stride (elements of `size` bytes) allows loads of 16 bytes. */
bool cu_at_whole(const cu_at_call *c, uint64_t size);

/*
 * Choose how many tiles a kernel has in flight, and allow it that much shared memory: 2 tiles (one
 * loads while the other is used) need bytes[1], 1 needs bytes[0].  Prefers 1 if only then two
 * blocks fit on a multiprocessor, because two blocks hide more latency than two tiles of one.  0:
 * the device has failed.
 */
template <typename F> static int cu_at_stages(zt_device *d, F *kernel, const int (&bytes)[2])
{
    const size_t both = cu_of(d)->all_shared / 2, one = (size_t)bytes[0] + CU_SHARED_OWN,
                 two = (size_t)bytes[1] + CU_SHARED_OWN;
    const bool fits = (size_t)bytes[1] <= cu_of(d)->max_shared;
    const int stages = fits && (two <= both || one > both) ? 2 : 1;
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               bytes[stages - 1]);

    return cu_try(d, e, "shared memory for attention") ? stages : 0;
}

/* ---- offsets of rows ---------------------------------------------------------------------- */

/* Offset (elements) of key `row` of a head in a tensor with this stride. */
static __device__ __forceinline__ uint64_t ck_at_key(const cu_at_call &a, int batch, int row,
                                                     int head, uint64_t ld)
{
    return ((uint64_t)batch * a.seq + row) * ld + (uint64_t)head * a.width;
}

/* Element offset of a row of queries; like ck_at_key, but sequences have `queries` rows. */
static __device__ __forceinline__ uint64_t ck_at_query(const cu_at_call &a, int batch, int row,
                                                       int head, uint64_t ld)
{
    return ((uint64_t)batch * a.queries + row) * ld + (uint64_t)head * a.width;
}

/* Offset of the statistics of a head's queries. */
static __device__ __forceinline__ uint64_t ck_at_list(const cu_at_call &a, int batch, int head)
{
    return ((uint64_t)batch * a.heads + head) * a.queries;
}

/* Rows of a head; only the first `there` exist (0 or less: none). */
template <typename T> struct ck_at_rows {
    const T *at;
    uint64_t ld;
    int there;
};

/* Rows of keys.  `what` is {batch, first row, head, -}. */
template <typename T>
static __device__ __forceinline__ ck_at_rows<T> ck_at_keys_of(const cu_at_call &a, const void *x,
                                                              const int4 &what, uint64_t ld)
{
    return {(const T *)x + ck_at_key(a, what.x, what.y, what.z, ld), ld, a.seq - what.y};
}

/* Rows of queries. */
template <typename T>
static __device__ __forceinline__ ck_at_rows<T> ck_at_queries_of(const cu_at_call &a, const void *x,
                                                                 const int4 &what, uint64_t ld)
{
    return {(const T *)x + ck_at_query(a, what.x, what.y, what.z, ld), ld, a.queries - what.y};
}

/*
 * The head of a block of queries; *q0: the block's first query.  Late queries come first: with
 * `causal` they see the most keys, so short blocks run last and fill idle multiprocessors.
 */
static __device__ __forceinline__ ck_at_head ck_at_block_head(const cu_at_call &a, int rows,
                                                              int *q0)
{
    const unsigned n = (unsigned)a.batch * a.heads, tiles = (a.queries + rows - 1) / rows;
    const int i = (int)(blockIdx.x % n);
    const ck_at_head h = {i / a.heads, i % a.heads, i % a.heads / a.group, 0, 0, 0};

    *q0 = (int)(tiles - 1 - blockIdx.x / n) * rows;
    return h;
}

/* ---- keys that count --------------------------------------------------------------------- */

/*
 * Find the head's first and last key in its sequence's mask; all threads must call it.  room:
 * scratch space, 2 ints per warp.
 */
static __device__ __forceinline__ void ck_at_read_mask(const cu_at_call &a, ck_at_head *h,
                                                       int *room)
{
    const int warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    int first = a.seq, last = 0;

    h->first = h->blind = 0;
    h->last = a.seq;
    if (!a.mask)
        return;
    for (int i = (int)threadIdx.x; i < a.seq; i += (int)blockDim.x) {
        if (a.mask[(uint64_t)h->batch * a.seq + i] != 0) {
            first = i < first ? i : first;
            last = i + 1;
        }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        first = min(first, __shfl_xor_sync(0xFFFFFFFFu, first, offset));
        last = max(last, __shfl_xor_sync(0xFFFFFFFFu, last, offset));
    }
    if (threadIdx.x % 32 == 0) {
        room[2 * warp] = first;
        room[2 * warp + 1] = last;
    }
    __syncthreads();
    for (int w = 0; w < warps; w++) {
        first = min(first, room[2 * w]);
        last = max(last, room[2 * w + 1]);
    }
    __syncthreads(); // the caller may use `room` for other data
    h->first = first;
    h->last = last;
    h->blind = first == a.seq ? max(a.queries, a.seq) : a.causal ? first : 0;
}

/* True if query q sees no key. */
static __device__ __forceinline__ bool ck_at_is_blind(const cu_at_call &a, const ck_at_head &h,
                                                      int q)
{
    if (!a.near)
        return q < h.blind;
    if (q >= a.queries)
        return false;
    const int near = a.near[(uint64_t)h.batch * a.seq + q];

    return near < 0 || near <= q - a.window;
}

/*
 * True if some query of q0 .. q0 + rows sees some key of k0 .. k0 + cols.  With a mask and a window
 * any query may be blind, and then sees all keys.
 */
static __device__ __forceinline__ bool ck_at_meets(const cu_at_call &a, const ck_at_head &h, int q0,
                                                   int rows, int k0, int cols)
{
    if (q0 >= a.queries || k0 >= a.seq)
        return false;
    if (q0 < h.blind || a.near)
        return true;
    return k0 < h.last && k0 + cols > h.first && k0 + cols > q0 - a.window + 1 &&
           (!a.causal || k0 < min(q0 + rows, a.queries));
}

/* The keys that queries q0 .. q0 + rows see, rounded down to a whole tile of `cols`. */
static __device__ __forceinline__ int2 ck_at_range(const cu_at_call &a, const ck_at_head &h, int q0,
                                                   int rows, int cols)
{
    if (q0 < h.blind || a.near) {
        return make_int2(0, a.seq); // a query without keys attends to all of them
    }
    return make_int2(max(h.first, q0 - a.window + 1) / cols * cols,
                     a.causal ? min(h.last, min(q0 + rows, a.queries)) : h.last);
}

/* True if every query of q0 .. q0 + rows that exists sees all these keys. */
static __device__ __forceinline__ bool ck_at_open(const cu_at_call &a, int q0, int rows, int k0,
                                                  int cols)
{
    return !a.mask && k0 + cols <= a.seq && k0 > q0 + rows - 1 - a.window &&
           (!a.causal || k0 + cols <= q0 + 1);
}

/* True if key k exists and is not masked out. */
static __device__ __forceinline__ bool ck_at_is_valid(const cu_at_call &a, const ck_at_head &h,
                                                      int k)
{
    return k < a.seq && (!a.mask || a.mask[(uint64_t)h.batch * a.seq + k] != 0);
}

/* Set valid[c] to whether key k0 + c is valid.  Not needed without a mask. */
static __device__ __forceinline__ void ck_at_valid(const cu_at_call &a, const ck_at_head &h, int k0,
                                                   int cols, int *valid)
{
    for (int c = (int)threadIdx.x; c < cols; c += (int)blockDim.x)
        valid[c] = ck_at_is_valid(a, h, k0 + c);
}

/* Number of biases of a head, one for each distance of a key and a query. */
static __host__ __device__ __forceinline__ uint64_t ck_at_distances(const cu_at_call &a)
{
    return (uint64_t)a.queries + a.seq - 1;
}

/*
 * The bias of query q and key k: that of their distance, or ALiBi's for key k, rounded to dt, less
 * that of query q itself without rounding, which does not change the softmax; 0 without either.
 */
static __device__ __forceinline__ float ck_at_bias(const cu_at_call &a, const ck_at_head &h,
                                                   float slope, int q, int k)
{
    if (a.bias)
        return q < a.queries && k < a.seq
                   ? a.bias[(uint64_t)h.head * ck_at_distances(a) + (k - q + a.queries - 1)]
                   : 0.0F;
    const float x = slope * (float)(k - h.first);
    const float low = a.dt == CKPT_F32   ? x
                      : a.dt == CKPT_F16 ? ck_round<__half>(x)
                                         : ck_round<__nv_bfloat16>(x);

    return a.alibi.whole != 0 ? low - slope * (float)(q - h.first) : 0.0F;
}

/* A scaled score with the call's cap. */
static __device__ __forceinline__ float ck_at_capped(const cu_at_call &a, float s)
{
    return a.cap > 0.0F ? a.cap * tanhf(s / a.cap) : s;
}

/* The derivative of a capped score y. */
static __device__ __forceinline__ float ck_at_cap_slope(const cu_at_call &a, float y)
{
    return a.cap > 0.0F ? 1.0F - y / a.cap * (y / a.cap) : 1.0F;
}

/* The head's slope; 0 without ALiBi. */
static __device__ __forceinline__ float ck_at_slope(const cu_at_call &a, const ck_at_head &h)
{
    return a.alibi.whole != 0 ? zt_alibi_slope(a.alibi, h.head) : 0.0F;
}

/* The score of query q and key k for the softmax: -inf if q does not see k. */
static __device__ __forceinline__ float ck_at_score(const cu_at_call &a, const ck_at_head &h, int q,
                                                    int k, int valid, float s)
{
    if (ck_at_is_blind(a, h, q))
        return k < a.seq ? 0.0F : -INFINITY;
    return valid != 0 && k > q - a.window && (!a.causal || k <= q) ? s : -INFINITY;
}

/* ---- dropout ----------------------------------------------------------------------------- */

/*
 * Set keep[r * cols + c] to 1 if dropout keeps the probability of query q0 + r and key k0 + c; all
 * threads must call it.  A probability's number is its offset in [batch, heads, queries, seq].  64
 * numbers in a row share 16 blocks of Philox; a row of a tile may touch one such group more than it
 * fills, because it need not start at a multiple of 64.
 * LIMIT: seven parameters: a corner, two sides and an offset, each a constant or in a register at
 * the call
 */
static __device__ __forceinline__ void ck_at_keep(const cu_at_call &a, const ck_at_head &h, int q0,
                                                  int rows, int k0, int cols, uint8_t *keep)
{
    const int groups = (cols + 63) / 64 + 1;

    for (int i = (int)threadIdx.x; i < rows * groups * 16; i += (int)blockDim.x) {
        const int lane = i % 16, r = i / (16 * groups);
        const uint64_t first = (ck_at_list(a, h.batch, h.head) + q0 + r) * a.seq + k0;
        const uint64_t group = first / 64 + i / 16 % groups;

        if (group * 64 >= first + cols)
            continue;
        const philox4x32_ctr_t word = zt_philox_block(a.seed, group * 16 + lane, 0);
        for (int w = 0; w < 4; w++) {
            const int64_t c = (int64_t)(group * 64 + 16 * w + lane - first);

            if (c >= 0 && c < cols)
                keep[r * cols + c] = (int)(word.v[w] >> 8) >= a.least;
        }
    }
}

/* ---- loads ------------------------------------------------------------------------------- */

/* Copy 16 bytes from device to shared memory, or zero them if not `there` (`from` may then be any
 * address); complete after ck_at_arrive. */
static __device__ __forceinline__ void ck_at_copy16(void *to, const void *from, bool there)
{
#ifdef ZT_EMULATED
    zt_emu_copy16(to, from, there);
#else
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);

    // asynchronous and without registers; bytes beyond the source size become 0
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
#endif
}

/* Close a batch, which contains all copies since the previous batch. */
static __device__ __forceinline__ void ck_at_batch(void)
{
#ifdef ZT_EMULATED
    zt_emu_copy_batch();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Wait for this thread's batches (all except the latest if `but_one`). */
static __device__ __forceinline__ void ck_at_arrive(bool but_one)
{
#ifdef ZT_EMULATED
    zt_emu_copy_wait(but_one ? 1 : 0);
#else
    if (but_one)
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    else
        asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
}

/* ck_at_tile element by element, for rows that do not start at multiples of 16 bytes. */
template <typename T, int W>
static __device__ __forceinline__ void ck_at_tile_each(int width, T *to, const ck_at_rows<T> &from,
                                                       int rows)
{
    for (int i = (int)threadIdx.x; i < rows * W; i += AT_THREADS) {
        const int r = i / W, c = i % W;

        to[r * (W + CK_TC_PAD) + c] =
            r < from.there && c < width ? from.at[r * from.ld + c] : ck_down<T>(0.0F);
    }
}

/*
 * Load `rows` rows of one head into shared memory, W + CK_TC_PAD elements a row, with zeros beyond
 * the existing rows and beyond the head's width.  `rows` is a multiple of 32.
 */
template <typename T, int W>
static __device__ __forceinline__ void ck_at_tile(const cu_at_call &a, T *to,
                                                  const ck_at_rows<T> &from, int rows)
{
    // pieces of 16 bytes: each thread copies one column of them, or (W 96) three
    constexpr int pieces = W / 8, by = AT_THREADS % pieces == 0 ? pieces : 4;
    constexpr int step = AT_THREADS / by, columns = pieces / by;
    const int r = (int)threadIdx.x / by, c = (int)threadIdx.x % by * 8;
    const T *at = from.at + r * from.ld + c;
    T *room = to + r * (W + CK_TC_PAD) + c;

    static_assert(pieces % by == 0, "a row is whole in steps");
    if (!a.vector) {
        ck_at_tile_each<T, W>(a.width, to, from, rows);
        return;
    }
#pragma unroll
    for (int i = 0; i < rows; i += step) {
#pragma unroll
        for (int n = 0; n < columns; n++)
            ck_at_copy16(room + i * (W + CK_TC_PAD) + n * by * 8, at + n * by * 8,
                         r + i < from.there && c + n * by * 8 < a.width);
        at += step * from.ld;
    }
}

/* ---- scores ------------------------------------------------------------------------------ */

/*
 * Mask the scores of 16 M queries from q0 on (this warp's) and 8 N keys from k0 on: scores of
 * hidden keys become -inf, those of blind queries 0 (ck_at_score).
 *
 * valid  of the tile's keys (ck_at_valid); not read without a mask
 */
template <int M, int N>
static __device__ __forceinline__ void ck_at_hide(const cu_at_call &a, const ck_at_head &h,
                                                  const int2 &q0_k0, const int *valid,
                                                  ck_tc_sums (&s)[M][N])
{
    if (a.mask) {
#pragma unroll
        for (int e = 0; e < M * N * 4; e++) {
            const int m = e / 4 / N, n = e / 4 % N, i = e % 4, c = n * 8 + ck_tc_col(i);
            const int q = q0_k0.x + m * 16 + ck_tc_row(i);

            s[m][n].x[i] = ck_at_score(a, h, q, q0_k0.y + c, valid[c], s[m][n].x[i]);
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < M * N * 4; e++) {
        const int m = e / 4 / N, n = e / 4 % N, i = e % 4;
        const int q = q0_k0.x + m * 16 + ck_tc_row(i);
        const int last = (a.causal ? min(q, a.seq - 1) : a.seq - 1) - q0_k0.y;
        const int before = q - a.window - q0_k0.y, c = n * 8 + ck_tc_col(i);

        s[m][n].x[i] = c > before && c <= last ? s[m][n].x[i] : -INFINITY;
    }
}

/* ---- writing ----------------------------------------------------------------------------- */

/*
 * Write 16 M rows of W numbers, rounded to T, except rows that `to` does not have.  They pass
 * through shared memory, so a row is written in pieces of 16 bytes.
 *
 * factor  multipliers of the rows m * 16 + half * 8 + lane / 4
 * room    16 M rows of W + CK_TC_PAD in shared memory, used by this warp alone, without copies
 *         under way
 */
template <typename T, int W, int M>
static __device__ __forceinline__ void
ck_at_write(const cu_at_call &a, const ck_tc_sums (&acc)[M][W / 8], const float (&factor)[M][2],
            T *room, const ck_at_rows<T> &to)
{
    __syncwarp(); // no thread still reads the old content
    ck_tc_put<T, W, M>(room, acc, factor);
    __syncwarp();
    for (int i = (int)threadIdx.x % 32; i < 16 * M * (W / 8); i += 32) {
        const int r = i / (W / 8), c = i % (W / 8) * 8, left = a.width - c;
        const T *from = room + r * (W + CK_TC_PAD) + c;
        T *at = const_cast<T *>(to.at) + (uint64_t)r * to.ld + c;

        if (r >= to.there || left <= 0)
            continue;
        if (a.vector) {
            *(uint4 *)(void *)at = *(const uint4 *)(const void *)from;
            continue;
        }
        for (int j = 0; j < min(left, 8); j++)
            at[j] = from[j];
    }
}

/* ck_at_write with one factor for all rows. */
template <typename T, int W, int M>
static __device__ __forceinline__ void
ck_at_write_all(const cu_at_call &a, const ck_tc_sums (&acc)[M][W / 8], float factor, T *room,
                const ck_at_rows<T> &to)
{
    float factors[M][2];

    for (int m = 0; m < M; m++)
        factors[m][0] = factors[m][1] = factor;
    ck_at_write<T, W, M>(a, acc, factors, room, to);
}

/* ---- plain products ---------------------------------------------------------------------- */

/* Stride in floats between rows of a tile in shared memory. */
#define AT_LD 68

/* Shared memory of the plain family, AT_PLAIN_BYTES. */
typedef struct ck_at_plain {
    float *x, *y;  /* 32 columns of 64 rows each, by columns: the factors of scores */
    float *v;      /* shares their memory: 64 rows of 64 columns */
    float *p;      /* 64 x 64, by columns: probabilities, or gradients of scores */
    int *valid;    /* [64] */
    uint8_t *keep; /* [64, 64] */
} ck_at_plain;

#define AT_PLAIN_BYTES (2 * 64 * AT_LD * 4 + 64 * 4 + 64 * 64)

static __device__ __forceinline__ ck_at_plain ck_at_plain_room(float *base)
{
    ck_at_plain r;

    r.x = r.v = base;
    r.y = base + 32 * AT_LD;
    r.p = base + 64 * AT_LD;
    r.valid = (int *)(void *)(base + 128 * AT_LD);
    r.keep = (uint8_t *)(void *)(base + 128 * AT_LD + 64);
    return r;
}

/* Load columns c0 .. c0 + 32 into shared memory, transposed. */
template <typename T>
static __device__ __forceinline__ void ck_at_plain_turn(float *to, const ck_at_rows<T> &x, int c0,
                                                        int width)
{
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < 64 * 32; i += AT_PLAIN) {
        const int r = i / 32, c = i % 32;
        const bool there = r < x.there && c0 + c < width;

        to[c * AT_LD + r] = there ? ck_up(x.at[r * x.ld + c0 + c]) : 0.0F;
    }
}

/* s[i][j] += u[i] v[j]: 16 products need only two loads of 16 bytes. */
static __device__ __forceinline__ void ck_at_plain_outer(float (&s)[4][4], const float *u,
                                                         const float *v)
{
    const float4 x = *(const float4 *)(const void *)u, y = *(const float4 *)(const void *)v;
    const float a[4] = {x.x, x.y, x.z, x.w}, b[4] = {y.x, y.y, y.z, y.w};

#pragma unroll
    for (int i = 0; i < 16; i++)
        s[i / 4][i % 4] += a[i / 4] * b[i % 4];
}

/* s = x y' for 64 rows of each.  This thread computes rows threadIdx.x / 16 * 4 .. of x by rows
 * threadIdx.x % 16 * 4 .. of y. */
template <typename T>
static __device__ __forceinline__ void ck_at_plain_scores(float (&s)[4][4], const ck_at_rows<T> &x,
                                                          const ck_at_rows<T> &y, int width,
                                                          const ck_at_plain &r)
{
    const float *u = r.x + threadIdx.x / 16 * 4, *v = r.y + threadIdx.x % 16 * 4;

    for (int i = 0; i < 16; i++)
        s[i / 4][i % 4] = 0;
    for (int c0 = 0; c0 < width; c0 += 32) {
        __syncthreads(); // no thread still reads the old columns
        ck_at_plain_turn(r.x, x, c0, width);
        ck_at_plain_turn(r.y, y, c0, width);
        __syncthreads();
#pragma unroll 4
        for (int c = 0; c < 32; c++)
            ck_at_plain_outer(s, u + c * AT_LD, v + c * AT_LD);
    }
}

/* Store s as the left factor of ck_at_plain_gather. */
static __device__ __forceinline__ void ck_at_plain_put(const ck_at_plain &r, const float (&s)[4][4])
{
    float *to = r.p + threadIdx.x % 16 * 4 * AT_LD + threadIdx.x / 16 * 4;

    __syncthreads(); // no thread still reads the old factor
    for (int j = 0; j < 4; j++)
        *(float4 *)(void *)(to + j * AT_LD) = make_float4(s[0][j], s[1][j], s[2][j], s[3][j]);
}

/* o += p x, columns blockIdx.y * 64 N .. of x. */
template <typename T, int N>
static __device__ __forceinline__ void
ck_at_plain_gather(float (&o)[N][4][4], const ck_at_rows<T> &x, int width, const ck_at_plain &r)
{
    const float *u = r.p + threadIdx.x / 16 * 4, *v = r.v + threadIdx.x % 16 * 4;

#pragma unroll
    for (int n = 0; n < N; n++) {
        const int c0 = ((int)blockIdx.y * N + n) * 64;

        __syncthreads(); // p is complete, and no thread still reads the old v
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < 64 * 64; i += AT_PLAIN) {
            const int row = i / 64, c = i % 64;
            const bool there = row < x.there && c0 + c < width;

            r.v[row * AT_LD + c] = there ? ck_up(x.at[row * x.ld + c0 + c]) : 0.0F;
        }
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < 64; k++)
            ck_at_plain_outer(o[n], u + k * AT_LD, v + k * AT_LD);
    }
}

/*
 * Write o, with row i of this thread multiplied by factor[i], except rows that `to` does not have.
 */
template <typename T, int N>
static __device__ __forceinline__ void ck_at_plain_write(const float (&o)[N][4][4],
                                                         const float (&factor)[4],
                                                         const ck_at_rows<T> &to, int width)
{
    T *at = const_cast<T *>(to.at);

#pragma unroll
    for (int e = 0; e < N * 16; e++) {
        const int r = (int)threadIdx.x / 16 * 4 + e / 4 % 4;
        const int c = ((int)blockIdx.y * N + e / 16) * 64 + (int)threadIdx.x % 16 * 4 + e % 4;

        if (r < to.there && c < width)
            at[r * to.ld + c] = ck_down<T>(o[e / 16][e / 4 % 4][e % 4] * factor[e / 4 % 4]);
    }
}

#endif
