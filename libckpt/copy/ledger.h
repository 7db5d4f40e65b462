/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h: CRCs of the stretches that workers have read or written, and what they say of whole
 * records.
 */
#ifndef CKPT_COPY_LEDGER_H
#define CKPT_COPY_LEDGER_H

#include "libckpt/copy/feed.h"

/* One contiguous stretch of a source.  Kept small: a large run has millions. */
typedef struct ckpt_segment {
    uint64_t at, n;  /* bytes; n == 0: used in a way that no stretch describes, the record must be
                        read whole */
    uint32_t source; /* index in the map's sources */
    uint32_t crc;    /* of these n bytes */
} ckpt_segment;

CKPT_VEC(ckpt_segments, ckpt_segment);

/* Add one segment; a mark (n == 0) equal to the last entry is not repeated. */
int ckpt_ledger_add(ckpt_segments *s, uint32_t source, uint64_t at, uint64_t n, uint32_t crc,
                    ckpt_err *err);

/* Move what is in `from` to the end of `all`; from is then empty. */
int ckpt_ledger_move(ckpt_segments *all, ckpt_segments *from, ckpt_err *err);

/* Sort by source and offset, drop exact duplicates. */
void ckpt_ledger_sort(ckpt_segments *all);

/* The segments of one source in a sorted ledger: from entry first on, at most up to n. */
size_t ckpt_ledger_group(const ckpt_segments *all, size_t first);

/* True if n sorted segments of a record of n_bytes touch no byte twice, and none stands for "read
 * it whole". */
bool ckpt_ledger_disjoint(const ckpt_segment *seg, size_t n, uint64_t n_bytes);

/*
 * CRC-32 of a whole record from n sorted segments of it: joined when they are disjoint, gaps being
 * read; else the record is read once more.  n_read is added to.
 */
int ckpt_ledger_record(ckpt_feed *feed, const ckpt_segment *seg, size_t n, uint32_t *crc,
                       uint64_t *n_read, ckpt_err *err);

/*
 * CRC-32 of n_bytes written in n sorted segments; what nobody wrote is zeros.
 *
 * Errors   CKPT_EMISMATCH: written twice
 */
int ckpt_ledger_written(const ckpt_segment *seg, size_t n, uint64_t n_bytes, uint32_t *crc,
                        ckpt_err *err);

#endif
