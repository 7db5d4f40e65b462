/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embed.cu: computes embeddings on the GPU, forward and backward.
 *
 * Backward, rows of dy for the same row of a table add up.  They are sorted by that row (index <<
 * 32 | row of dy: no two keys are equal, so any sort gives one order), cut into chunks of equal
 * length, and summed chunk by chunk.  Rows of the table that span chunks are then summed from the
 * chunks' sums, in order.  So no atomics are needed, and no block waits for another.
 */
#include "engine/cuda/cuda.h"

#define EM_THREADS 128u
#define EM_TILE    2048u /* keys that a block sorts in shared memory, with half as many threads */
#define EM_CHUNK   32u   /* keys of a chunk, which one thread sums in order */
#define EM_NONE    UINT64_MAX

/* ---- forward ---- */

static __device__ __forceinline__ bool ck_in_table(int32_t index, uint64_t n)
{
    return index >= 0 && (uint64_t)index < n;
}

static __device__ __forceinline__ void ck_pack_add(float *x, const float *y)
{
#pragma unroll
    for (unsigned i = 0; i < CK_PACK; i++)
        x[i] += y[i];
}

template <typename T>
static __global__ void __launch_bounds__(EM_THREADS)
    ck_embed(zt_embed a, bool wide, cu_notes *notes)
{
    uint64_t packs = (a.width + CK_PACK - 1) / CK_PACK, n = a.width;
    for (uint64_t i = ck_thread(); i < a.rows * packs; i += ck_threads()) {
        uint64_t row = i / packs, at = i % packs * CK_PACK;
        int32_t token = a.token[row], kind = a.kind ? a.kind[row] : 0;
        float x[CK_PACK], y[CK_PACK];
        if (!ck_in_table(token, a.vocab) || (a.type && !ck_in_table(kind, a.n_types))) {
            notes->bad = CU_BAD_INDEX; // no race: all threads write the same value
            continue;
        }
        ck_read(x, (const T *)a.word + (uint64_t)token * n, at, n, wide);
        if (a.type) {
            ck_read(y, (const T *)a.type + (uint64_t)kind * n, at, n, wide);
            ck_pack_add(x, y);
        }
        if (a.position) {
            ck_read(y, (const T *)a.position + row % a.seq * n, at, n, wide);
            ck_pack_add(x, y);
        }
        ck_write((T *)a.y + row * n, at, n, wide, x);
    }
}

void cu_embed(zt_device *d, ckpt_dtype dt, const zt_embed *a)
{
    if (!cu_ready(d, dt, zt_ok_embed(a), "embed") || a->rows == 0)
        return;
    bool wide = cu_wide(a->word, a->position, a->type, a->width) && cu_wide(a->y, NULL, NULL, 0);
    unsigned grid = cu_grid(d, a->rows * (a->width + CK_PACK - 1), EM_THREADS * CK_PACK);
    CU_DTYPE(dt, T,
             ZT_LAUNCH(ck_embed<T>, grid, EM_THREADS, 0, cu_stream(d), *a, wide, cu_of(d)->notes));
    (void)cu_launched(d, "embed");
}

/* ---- sorting (Batcher 1968: bitonic) ---- */

/* The row of a table to which each gradient belongs. */
typedef struct em_indices {
    const int32_t *index;  /* [rows]; NULL: all 0 */
    uint64_t rows, n_rows; /* number of gradients; rows of the table */
    int64_t skip;          /* index without gradients (padding); -1: none */
} em_indices;

/* Make keys from indices; skipped ones and the padding up to a power of two sort to the end. */
static __global__ void __launch_bounds__(EM_THREADS)
    ck_keys(uint64_t *key, uint64_t n, em_indices x, cu_notes *notes)
{
    for (uint64_t i = ck_thread(); i < n; i += ck_threads()) {
        int32_t k = i < x.rows && x.index ? x.index[i] : 0;
        bool there = ck_in_table(k, x.n_rows);
        if (i < x.rows && !there)
            notes->bad = CU_BAD_INDEX;
        key[i] = i < x.rows && there && k != x.skip ? (uint64_t)k << 32 | i : EM_NONE;
    }
}

/* Compare key `i` with its partner at distance `by`; runs of `run` ascend and descend in turn. */
static __device__ __forceinline__ void ck_compare(uint64_t *low, uint64_t *high, bool up)
{
    if ((*low > *high) == up) {
        uint64_t t = *low;
        *low = *high;
        *high = t;
    }
}

/* Index of the lower partner of pair i at distance `by`. */
static __device__ __forceinline__ uint64_t ck_pair(uint64_t i, uint64_t by)
{
    return i / by * (2 * by) + i % by;
}

/* Within tiles: sort them completely (run 2 to EM_TILE), or finish a longer run (first = run). */
static __global__ void __launch_bounds__(EM_TILE / 2)
    ck_sort_tile(uint64_t *key, uint64_t first, uint64_t last)
{
    ZT_SHARED_ARRAY(uint64_t, tile, EM_TILE);
    uint64_t base = (uint64_t)blockIdx.x * EM_TILE;
    for (unsigned i = threadIdx.x; i < EM_TILE; i += EM_TILE / 2)
        tile[i] = key[base + i];
    for (uint64_t run = first; run <= last; run *= 2) {
        for (uint64_t by = run / 2 < EM_TILE / 2 ? run / 2 : EM_TILE / 2; by > 0; by /= 2) {
            uint64_t i = ck_pair(threadIdx.x, by);
            __syncthreads();
            ck_compare(&tile[i], &tile[i + by], ((base + i) & run) == 0);
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < EM_TILE; i += EM_TILE / 2)
        key[base + i] = tile[i];
}

/* One step of the bitonic sort, for pairs that are too far apart for one tile. */
static __global__ void __launch_bounds__(EM_THREADS)
    ck_sort_step(uint64_t *key, uint64_t n, uint64_t run, uint64_t by)
{
    for (uint64_t p = ck_thread(); p < n / 2; p += ck_threads()) {
        uint64_t i = ck_pair(p, by);
        ck_compare(&key[i], &key[i + by], (i & run) == 0);
    }
}

/* n must be a power of two, at least EM_TILE. */
static void em_sort(zt_device *d, uint64_t *key, uint64_t n)
{
    unsigned tiles = (unsigned)(n / EM_TILE);
    ZT_LAUNCH(ck_sort_tile, tiles, EM_TILE / 2, 0, cu_stream(d), key, 2, EM_TILE);
    for (uint64_t run = 2 * EM_TILE; run <= n; run *= 2) {
        for (uint64_t by = run / 2; by >= EM_TILE; by /= 2)
            ZT_LAUNCH(ck_sort_step, cu_grid(d, n / 2, EM_THREADS), EM_THREADS, 0, cu_stream(d), key,
                      n, run, by);
        ZT_LAUNCH(ck_sort_tile, tiles, EM_TILE / 2, 0, cu_stream(d), key, run, run);
    }
}

/* ---- backward ---- */

/* One table. */
typedef struct em_table {
    const uint64_t *key; /* sorted; EM_NONE at the end */
    uint64_t n, width, chunks;
    const void *dy;
    void *grad;
    float *part; /* [chunks, 2, width]: sums of chunks' first and last rows */
    bool add, wide;
} em_table;

/* The table's row of key number i; -1 beyond the keys. */
static __device__ __forceinline__ int64_t ck_row_of(const em_table &t, uint64_t i)
{
    return i >= t.n || t.key[i] == EM_NONE ? -1 : (int64_t)(t.key[i] >> 32);
}

template <typename T>
static __device__ __forceinline__ void ck_put_pack(const em_table &t, int64_t row, uint64_t at,
                                                   const float *x)
{
    T *to = (T *)t.grad + (uint64_t)row * t.width;
    float sum[CK_PACK], old[CK_PACK] = {};
    if (t.add)
        ck_read(old, to, at, t.width, t.wide);
#pragma unroll
    for (unsigned i = 0; i < CK_PACK; i++)
        sum[i] = t.add ? old[i] + ck_round<T>(x[i]) : x[i];
    ck_write(to, at, t.width, t.wide, sum);
}

/*
 * Sum a chunk, one pack of columns per thread.  A table row whose keys all lie in the chunk is
 * complete.  Otherwise its sum goes to `part`: index 0 if the row began in an earlier chunk, index
 * 1 if it begins here and goes on.
 */
template <typename T>
static __device__ __forceinline__ void ck_chunk(const em_table &t, uint64_t chunk, uint64_t at)
{
    uint64_t i = chunk * EM_CHUNK, end = i + EM_CHUNK;
    int64_t before = i > 0 ? ck_row_of(t, i - 1) : -1, row = ck_row_of(t, i);
    while (i < end && row >= 0) {
        float sum[CK_PACK] = {}, x[CK_PACK];
        int64_t next = row;
        for (; i < end && next == row; next = ck_row_of(t, ++i)) {
            ck_read(x, (const T *)t.dy + (t.key[i] & UINT32_MAX) * t.width, at, t.width, t.wide);
            ck_pack_add(sum, x);
        }
        if (row != before && (i < end || next != row))
            ck_put_pack<T>(t, row, at, sum);
        else
            ck_write(t.part + (2 * chunk + (row != before)) * t.width, at, t.width, t.wide, sum);
        before = -1; // only the chunk's first row can have begun earlier
        row = next;
    }
}

template <typename T> static __global__ void __launch_bounds__(EM_THREADS) ck_chunks(em_table t)
{
    uint64_t packs = (t.width + CK_PACK - 1) / CK_PACK;
    for (uint64_t i = ck_thread(); i < t.chunks * packs; i += ck_threads())
        ck_chunk<T>(t, i / packs, i % packs * CK_PACK);
}

/* Complete the row that begins in this chunk and goes on, from the sums of all its chunks. */
template <typename T>
static __device__ __forceinline__ void ck_join(const em_table &t, uint64_t chunk, uint64_t at)
{
    uint64_t end = (chunk + 1) * EM_CHUNK;
    int64_t row = ck_row_of(t, end - 1);
    if (row < 0 || ck_row_of(t, end) != row ||
        (chunk > 0 && ck_row_of(t, chunk * EM_CHUNK - 1) == row)) {
        return; // no row crosses the chunk's end, or an earlier chunk adds it up
    }
    float sum[CK_PACK], x[CK_PACK];
    ck_read(sum, (const float *)t.part + (2 * chunk + 1) * t.width, at, t.width, t.wide);
    for (uint64_t c = chunk + 1; ck_row_of(t, c * EM_CHUNK) == row; c++) {
        ck_read(x, (const float *)t.part + 2 * c * t.width, at, t.width, t.wide);
        ck_pack_add(sum, x);
    }
    ck_put_pack<T>(t, row, at, sum);
}

template <typename T> static __global__ void __launch_bounds__(EM_THREADS) ck_joins(em_table t)
{
    uint64_t packs = (t.width + CK_PACK - 1) / CK_PACK;
    for (uint64_t i = ck_thread(); i < t.chunks * packs; i += ck_threads())
        ck_join<T>(t, i / packs, i % packs * CK_PACK);
}

/* Sum position gradients; their rows of dy lie `seq` apart, so no sorting is needed. */
template <typename T>
static __global__ void __launch_bounds__(EM_THREADS)
    ck_positions(em_table t, uint64_t rows, uint64_t seq)
{
    uint64_t packs = (t.width + CK_PACK - 1) / CK_PACK;
    for (uint64_t i = ck_thread(); i < seq * packs; i += ck_threads()) {
        uint64_t position = i / packs, at = i % packs * CK_PACK;
        float sum[CK_PACK] = {}, x[CK_PACK];
        for (uint64_t row = position; row < rows; row += seq) {
            ck_read(x, (const T *)t.dy + row * t.width, at, t.width, t.wide);
            ck_pack_add(sum, x);
        }
        if (position < rows)
            ck_put_pack<T>(t, (int64_t)position, at, sum);
    }
}

/* The state of a call. */
typedef struct em_call {
    zt_device *d;
    ckpt_dtype dt;
    const zt_embed_grad *a;
    uint64_t *key;
    uint64_t n_keys; /* a power of two */
} em_call;

/* Start a table; without `add`, set its gradients to 0. */
static void em_begin(const em_call *c, em_table *t, void *grad, uint64_t n_rows, bool add)
{
    t->grad = grad;
    t->add = add;
    t->wide = cu_wide(c->a->dy, grad, NULL, c->a->width);
    if (!add)
        c->d->ops->zero(c->d, grad, n_rows * c->a->width * zt_size(c->dt));
}

static void em_by_index(const em_call *c, em_table *t, const int32_t *index, int64_t skip,
                        uint64_t n_rows)
{
    zt_device *d = c->d;
    uint64_t work = t->chunks * (t->width + CK_PACK - 1);
    unsigned grid = cu_grid(d, work, EM_THREADS * CK_PACK);
    em_indices x = {index, c->a->rows, n_rows, skip};
    ZT_LAUNCH(ck_keys, cu_grid(d, c->n_keys, EM_THREADS), EM_THREADS, 0, cu_stream(d), c->key,
              c->n_keys, x, cu_of(d)->notes);
    em_sort(d, c->key, c->n_keys);
    CU_DTYPE(c->dt, T, ZT_LAUNCH(ck_chunks<T>, grid, EM_THREADS, 0, cu_stream(d), *t));
    CU_DTYPE(c->dt, T, ZT_LAUNCH(ck_joins<T>, grid, EM_THREADS, 0, cu_stream(d), *t));
}

static void em_tables(const em_call *c, em_table *t)
{
    const zt_embed_grad *a = c->a;
    if (a->dword) {
        em_begin(c, t, a->dword, a->vocab, a->word_add);
        em_by_index(c, t, a->token, a->padding, a->vocab);
    }
    if (a->dkind) {
        em_begin(c, t, a->dkind, a->n_types, a->kind_add);
        em_by_index(c, t, a->kind, -1, a->n_types);
    }
    if (a->dposition) {
        em_begin(c, t, a->dposition, a->n_positions, a->position_add);
        unsigned grid = cu_grid(c->d, a->seq * (a->width + CK_PACK - 1), EM_THREADS * CK_PACK);
        CU_DTYPE(
            c->dt, T,
            ZT_LAUNCH(ck_positions<T>, grid, EM_THREADS, 0, cu_stream(c->d), *t, a->rows, a->seq));
    }
}

void cu_embed_grad(zt_device *d, ckpt_dtype dt, const zt_embed_grad *a)
{
    if (!cu_ready(d, dt, zt_ok_embed_grad(a), "embed_grad"))
        return;
    em_call c = {d, dt, a, NULL, EM_TILE};
    while (c.n_keys < a->rows)
        c.n_keys *= 2;
    em_table t = {};
    t.n = c.n_keys;
    t.width = a->width;
    t.chunks = (a->rows + EM_CHUNK - 1) / EM_CHUNK;
    t.dy = a->dy;
    uint64_t keys = c.n_keys * sizeof *c.key;
    char *room = (char *)cu_scratch(d, keys + 2 * t.chunks * a->width * sizeof *t.part);
    if (!room)
        return;
    c.key = (uint64_t *)(void *)room;
    t.key = c.key;
    t.part = (float *)(void *)(room + keys);
    em_tables(&c, &t);
    (void)cu_launched(d, "embed_grad");
}
