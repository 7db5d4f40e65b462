/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc_ledger.c: joins CRCs of stretches to CRCs of records.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/copy/crc_ledger.h"

int ckpt_ledger_add(ckpt_segments *s, uint32_t source, uint64_t at, uint64_t n, uint32_t crc,
                    ckpt_err *err)
{
    assert(s);
    ckpt_segment *p;

    if (n == 0 && s->n > 0 && s->at[s->n - 1].n == 0 && s->at[s->n - 1].source == source)
        return CKPT_OK;
    p = ckpt_vec_push(s);
    if (!p)
        return ckpt_fail_memory(err);
    *p = (ckpt_segment){at, n, source, crc};
    return CKPT_OK;
}

int ckpt_ledger_move(ckpt_segments *all, ckpt_segments *from, ckpt_err *err)
{
    assert(all && from && all != from);
    ckpt_segment *p;

    if (from->n == 0)
        return CKPT_OK;
    if (all->n == 0) {
        ckpt_vec_free(all);
        *all = *from;
        *from = (ckpt_segments){0};
        return CKPT_OK;
    }
    p = ckpt_resize(all->at, (all->n + from->n) * sizeof *p);
    if (!p)
        return ckpt_fail_memory(err);
    memcpy(p + all->n, from->at, from->n * sizeof *p);
    all->at = p;
    all->n += from->n;
    all->room = all->n;
    ckpt_vec_free(from);
    return CKPT_OK;
}

static int led_order(const void *pa, const void *pb)
{
    const ckpt_segment *a = pa, *b = pb;

    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return (a->crc > b->crc) - (a->crc < b->crc);
}

void ckpt_ledger_sort(ckpt_segments *all)
{
    size_t kept = 0;

    if (all->n < 2)
        return;
    qsort(all->at, all->n, sizeof *all->at, led_order);
    for (size_t i = 1; i < all->n; i++) {
        // Equal stretch and equal CRC: the same bytes were used twice (tied or repeated tensors).
        if (led_order(&all->at[kept], &all->at[i]) != 0)
            all->at[++kept] = all->at[i];
    }
    all->n = kept + 1;
}

size_t ckpt_ledger_group(const ckpt_segments *all, size_t first)
{
    assert(first < all->n);
    size_t n = 1;

    while (first + n < all->n && all->at[first + n].source == all->at[first].source)
        n++;
    return n;
}

bool ckpt_ledger_disjoint(const ckpt_segment *seg, size_t n, uint64_t n_bytes)
{
    assert(seg || n == 0);
    for (size_t i = 0; i < n; i++) {
        if (seg[i].n == 0 || !ckpt_within(seg[i].at, seg[i].n, n_bytes) ||
            (i > 0 && seg[i].at - seg[i - 1].at < seg[i - 1].n))
            return false;
    }
    return true;
}

int ckpt_ledger_record(ckpt_feed *feed, const ckpt_segment *seg, size_t n, uint32_t *crc,
                       uint64_t *n_read, ckpt_err *err)
{
    assert(feed && seg && n > 0 && crc && n_read);
    uint32_t source = seg[0].source;
    uint64_t size = feed->map->sources.at[source].n_bytes;
    uint64_t at = 0;
    int rc = CKPT_OK;

    *crc = 0;
    if (!ckpt_ledger_disjoint(seg, n, size)) {
        *n_read += size;
        return ckpt_feed_crc(feed, source, 0, size, crc, err);
    }
    for (size_t i = 0; rc == CKPT_OK && i <= n; i++) {
        uint64_t to = i < n ? seg[i].at : size;

        if (to > at) {
            uint32_t gap = 0;

            rc = ckpt_feed_crc(feed, source, at, to - at, &gap, err);
            *crc = ckpt_crc32_join(*crc, gap, to - at);
            *n_read += to - at;
        }
        if (i < n) {
            *crc = ckpt_crc32_join(*crc, seg[i].crc, seg[i].n);
            at = to + seg[i].n;
        }
    }
    return rc;
}

/* Extend a CRC by n zero bytes. */
static uint32_t led_zeros(uint32_t crc, uint64_t n)
{
    static const uint8_t zero[4096];

    for (; n > 0; n -= n < sizeof zero ? n : sizeof zero)
        crc = ckpt_crc32(crc, zero, n < sizeof zero ? (size_t)n : sizeof zero);
    return crc;
}

int ckpt_ledger_written(const ckpt_segment *seg, size_t n, uint64_t n_bytes, uint32_t *crc,
                        ckpt_err *err)
{
    assert((seg || n == 0) && crc);
    uint64_t at = 0;

    *crc = 0;
    for (size_t i = 0; i < n; i++) {
        if (seg[i].at < at || !ckpt_within(seg[i].at, seg[i].n, n_bytes))
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "the target's layout writes byte %" PRIu64 " of a record of %" PRIu64
                             " bytes twice, or beyond its end",
                             seg[i].at, n_bytes);
        *crc = led_zeros(*crc, seg[i].at - at);
        *crc = ckpt_crc32_join(*crc, seg[i].crc, seg[i].n);
        at = seg[i].at + seg[i].n;
    }
    *crc = led_zeros(*crc, n_bytes - at);
    return CKPT_OK;
}
