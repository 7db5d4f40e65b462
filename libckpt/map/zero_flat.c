/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_flat.c: lays out ZeRO stages 1 and 2: a parameter group is one flat buffer, partitioned
 * evenly over the ranks.
 *
 *    | param 0 | pad | param 1 | ... | param n-1 |   padding   |
 *    0                               N = used    F = total
 *    |  rank 0: s     |  rank 1: s     |  ...   |  rank w-1: s |
 */
#include <assert.h>

#include "libckpt/map/zero_flat.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/mem.h"

/* a rounded up to a multiple of b > 0; false on overflow. */
static bool zf_ceil(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t rest = a % b;

    return ckpt_add(a, rest == 0 ? 0 : b - rest, out);
}

/* Place the parameters one after another. */
static bool zf_place(ckpt_zero_flat *z, const uint64_t *numel, const uint64_t *pad)
{
    uint64_t at = 0;

    z->before[0] = 0;
    for (uint64_t i = 0; i < z->n_params; i++) {
        z->start[i] = at;
        z->numel[i] = numel[i];
        // no overflow: the sum without pads is at most `at`, which the next line checks
        z->before[i + 1] = z->before[i] + numel[i];
        if (!ckpt_add(at, numel[i], &at) || (pad && !ckpt_add(at, pad[i], &at)))
            return false;
    }
    z->used = at;
    return true;
}

uint64_t ckpt_zero_flat_align(uint32_t world, bool before_0_5_2)
{
    return (before_0_5_2 ? 1 : 2) * (uint64_t)world;
}

/*
 * LIMIT: six numbers define a group, and one pointer gets the result; a struct would only rename
 * them.
 * 
 */
int ckpt_zero_flat_new(ckpt_zero_flat *out, const ckpt_zero_sizes *of, uint32_t world,
                       uint64_t align, ckpt_err *err)
{
    assert(out && (of->numel || of->n == 0));
    ckpt_zero_flat z = {.world = world, .n_params = of->n};
    uint64_t n_bytes;

    memset(out, 0, sizeof *out);
    // Slices are only equal if the alignment is a multiple of the ranks.
    if (world == 0 || align == 0 || align % world != 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "a flat group cannot be divided among %" PRIu32
                         " ranks if it is aligned to %" PRIu64 " elements",
                         world, align);
    if (!ckpt_mul(of->n, sizeof *z.start, &n_bytes) || n_bytes > SIZE_MAX - sizeof *z.start)
        return ckpt_fail_memory(err);
    z.start = ckpt_alloc((size_t)n_bytes);
    z.numel = ckpt_alloc((size_t)n_bytes);
    z.before = ckpt_alloc((size_t)n_bytes + sizeof *z.before);
    if (!z.start || !z.numel || !z.before) {
        ckpt_zero_flat_free(&z);
        return ckpt_fail_memory(err);
    }
    if (!zf_place(&z, of->numel, of->pad) || !zf_ceil(z.used, align, &z.total)) {
        ckpt_zero_flat_free(&z);
        return ckpt_fail(err, CKPT_EFORMAT, "a flat group has more than 2^64 elements");
    }
    z.slice = z.total / world;
    *out = z;
    return CKPT_OK;
}

void ckpt_zero_flat_free(ckpt_zero_flat *z)
{
    if (!z)
        return;
    ckpt_free(z->start);
    ckpt_free(z->numel);
    ckpt_free(z->before);
    memset(z, 0, sizeof *z);
}

bool ckpt_zero_flat_next(const ckpt_zero_flat *z, uint64_t i, uint64_t *cursor, ckpt_zero_run *run)
{
    assert(z && cursor && run);
    uint64_t at, left, room;

    // This also ends at once for a parameter without elements, so slice > 0 below.
    if (i >= z->n_params || *cursor >= z->numel[i])
        return false;
    at = z->start[i] + *cursor;
    left = z->numel[i] - *cursor;
    room = z->slice - at % z->slice;
    run->rank = (uint32_t)(at / z->slice); // < world: at < used <= total
    run->first = *cursor;
    run->count = left < room ? left : room;
    run->at = at % z->slice;
    *cursor += run->count;
    return true;
}

uint64_t ckpt_zero_flat_padding(const ckpt_zero_flat *z, uint32_t rank)
{
    uint64_t begin, end;

    if (rank >= z->world)
        return 0;
    begin = rank * z->slice; // at most total
    end = begin + z->slice;
    if (end <= z->used)
        return 0;
    return begin >= z->used ? z->slice : end - z->used;
}

uint64_t ckpt_zero_flat_first(const ckpt_zero_flat *z, uint64_t from)
{
    uint64_t low = 0, high = z->n_params;

    while (low < high) {
        uint64_t mid = low + (high - low) / 2;

        if (z->start[mid] + z->numel[mid] <= from)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The first parameter that begins at or after `end`. */
static uint64_t zf_end(const ckpt_zero_flat *z, uint64_t end)
{
    uint64_t low = 0, high = z->n_params;

    while (low < high) {
        uint64_t mid = low + (high - low) / 2;

        if (z->start[mid] < end)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

uint64_t ckpt_zero_whole_size(const ckpt_zero_flat *z, uint32_t rank)
{
    uint64_t first, end;

    if (rank >= z->world)
        return 0;
    first = ckpt_zero_flat_first(z, rank * z->slice);
    end = zf_end(z, (rank + UINT64_C(1)) * z->slice);
    return first < end ? z->before[end] - z->before[first] : 0;
}

bool ckpt_zero_whole_next(const ckpt_zero_flat *z, uint64_t i, uint32_t *cursor, ckpt_zero_run *run)
{
    assert(z && cursor && run);
    uint64_t rank;

    if (i >= z->n_params || z->numel[i] == 0)
        return false;
    rank = z->start[i] / z->slice + *cursor;
    if (rank > (z->start[i] + z->numel[i] - 1) / z->slice)
        return false;
    *run = (ckpt_zero_run){.rank = (uint32_t)rank, .count = z->numel[i]};
    run->at = z->before[i] - z->before[ckpt_zero_flat_first(z, rank * z->slice)];
    (*cursor)++;
    return true;
}

void ckpt_zero_round_robin(uint64_t n, uint32_t world, uint64_t *out)
{
    assert(world > 0 && (out || n == 0));
    uint64_t k = 0;

    for (uint64_t j = 0; j < world && j < n; j++) {
        for (uint64_t i = j; i < n; i += world)
            out[k++] = i;
    }
}
