/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc_ledger.h: collects CRCs of the stretches that workers have read or written, and joins them to
 * CRCs of complete records.
 */
#ifndef CKPT_COPY_CRC_LEDGER_H
#define CKPT_COPY_CRC_LEDGER_H

#include "libckpt/copy/source_reader.h"

/* One contiguous stretch of a source. Kept small, because a large run has millions. */
typedef struct ckpt_segment {
    /* bytes; n == 0: a mark: bytes were used without a CRC, so the complete record must be read */
    uint64_t at, n;
    uint32_t source; /* index in the map's sources */
    uint32_t crc;    /* CRC of these n bytes */
} ckpt_segment;

CKPT_VEC(ckpt_segments, ckpt_segment);

/* Add one segment; a mark (n == 0) equal to the last entry is not repeated. */
int ckpt_ledger_add(ckpt_segments *s, uint32_t source, uint64_t at, uint64_t n, uint32_t crc,
                    ckpt_err *err);

/* Append the segments in `from` to `all`; `from` is then empty. */
int ckpt_ledger_move(ckpt_segments *all, ckpt_segments *from, ckpt_err *err);

/* Sort by source and offset, drop exact duplicates. */
void ckpt_ledger_sort(ckpt_segments *all);

/* The number of segments of one source in a sorted ledger, starting at entry first. */
size_t ckpt_ledger_group(const ckpt_segments *all, size_t first);

/* True if n sorted segments of a record of n_bytes do not overlap, and none is a mark. */
bool ckpt_ledger_disjoint(const ckpt_segment *seg, size_t n, uint64_t n_bytes);

/*
 * CRC-32 of a complete record from n sorted segments of it: if they are disjoint, it reads only the
 * gaps and joins the CRCs; else it reads the record again. Adds to n_read.
 */
int ckpt_ledger_record(ckpt_feed *feed, const ckpt_segment *seg, size_t n, uint32_t *crc,
                       uint64_t *n_read, ckpt_err *err);

/*
 * CRC-32 of n_bytes from n sorted segments that were written; gaps count as zeros.
 *
 * Errors   CKPT_EMISMATCH: a byte was written twice
 */
int ckpt_ledger_written(const ckpt_segment *seg, size_t n, uint64_t n_bytes, uint32_t *crc,
                        ckpt_err *err);

#endif
