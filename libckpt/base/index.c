/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c: implements the hash index: open addressing with linear probing, at most half full.
 */
#include <assert.h>

#include "libckpt/base/index.h"

#include <string.h>

#define INDEX_ROOM_MIN   16u   /* slots */
#define INDEX_PROBES_MAX 1024u /* ordinary keys in a half-full table need far fewer */

uint32_t ckpt_hash_u64(uint64_t x)
{
    // the usual finaliser: two multiply-xorshift rounds spread every bit over the result
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDull;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53ull;
    x ^= x >> 33;
    return (uint32_t)x;
}

uint32_t ckpt_hash_bytes(const void *p, size_t n, uint32_t seed)
{
    assert(p || n == 0);
    const uint8_t *s = p;
    uint64_t h = 0x9E3779B97F4A7C15ull ^ seed ^ n;

    for (; n >= 8; n -= 8, s += 8) {
        uint64_t word;

        memcpy(&word, s, sizeof word);
        h = (h ^ word) * 0x9FB21C651E98DF25ull;
        h ^= h >> 32;
    }
    for (; n > 0; n--, s++) {
        h = (h ^ *s) * 0x100000001B3ull; // the remaining bytes, one by one
    }
    return ckpt_hash_u64(h);
}

uint32_t ckpt_index_find(const ckpt_index *ix, uint32_t hash, ckpt_same_fn same, const void *ctx,
                         const void *key)
{
    assert(ix && same);
    assert((ix->room & (ix->room - 1)) == 0 && ix->n <= ix->room);
    size_t mask = ix->room - 1;

    if (ix->room == 0)
        return CKPT_INDEX_NONE;
    for (size_t i = 0; i < INDEX_PROBES_MAX; i++) {
        const ckpt_index_slot *s = &ix->at[(hash + i) & mask];

        if (s->number == 0)
            break;
        if (s->hash == hash && same(ctx, s->number - 1, key))
            return s->number - 1;
    }
    return CKPT_INDEX_NONE;
}

/* Put one entry into a table that has free slots. */
static bool index_put(ckpt_index_slot *at, size_t room, ckpt_index_slot entry)
{
    for (size_t i = 0; i < INDEX_PROBES_MAX; i++) {
        ckpt_index_slot *s = &at[(entry.hash + i) & (room - 1)];

        if (s->number == 0) {
            *s = entry;
            return true;
        }
    }
    return false;
}

/* Move all entries into a table of twice the capacity. */
static bool index_grow(ckpt_index *ix)
{
    size_t room = ix->room == 0 ? INDEX_ROOM_MIN : ix->room * 2;
    ckpt_index_slot *at = room > SIZE_MAX / sizeof *at ? NULL : ckpt_alloc(room * sizeof *at);

    if (!at)
        return false;
    for (size_t i = 0; i < ix->room; i++) {
        if (ix->at[i].number != 0 && !index_put(at, room, ix->at[i])) {
            ckpt_free(at);
            return false;
        }
    }
    ckpt_free(ix->at);
    ix->at = at;
    ix->room = room;
    return true;
}

bool ckpt_index_add(ckpt_index *ix, uint32_t hash, uint32_t number)
{
    assert(ix && number < UINT32_C(1) << 31);
    if (ix->n >= ix->room / 2 && !index_grow(ix))
        return false;
    if (!index_put(ix->at, ix->room, (ckpt_index_slot){.hash = hash, .number = number + 1})) {
        return false;
    }
    ix->n++;
    return true;
}

void ckpt_index_free(ckpt_index *ix)
{
    ckpt_free(ix->at);
    *ix = (ckpt_index){0};
}
