/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_reader.h: reads the decoded bytes of a map's sources from any kind of storage.
 *
 * Files are read through the pool; memory, functions and zeros directly; deflated records from a
 * spool that ckpt_feed_decode has filled.
 */
#ifndef CKPT_COPY_SOURCE_READER_H
#define CKPT_COPY_SOURCE_READER_H

#include <inttypes.h>

#include "libckpt/io/io.h"
#include "libckpt/io/spool.h"

typedef struct ckpt_feed {
    const ckpt_map *map;
    ckpt_io_pool *pool;
    ckpt_spool *spool; /* deflated records decoded so far */
} ckpt_feed;

/*
 * folder: for the spool's file (NULL: TMPDIR); memory: bytes that the spool may keep on the heap.
 */
int ckpt_feed_open(ckpt_feed *out, const ckpt_map *map, const char *folder, uint64_t memory,
                   ckpt_err *err);

/*
 * Decode a deflated source and check its size and CRC; other sources and a second call do nothing.
 * Thread safe for different sources.
 */
int ckpt_feed_decode(ckpt_feed *s, uint32_t source, ckpt_err *err);

/*
 * Read n decoded bytes from offset at. Thread safe.
 *
 * Errors   CKPT_EFORMAT: outside the source or its file; CKPT_EIO; those of a far source's function
 */
int ckpt_feed_read(ckpt_feed *s, uint32_t source, void *buf, uint64_t n, uint64_t at,
                   ckpt_err *err);

/*
 * Compute the CRC-32 of n decoded bytes from offset at of a source. A deflated source that is not
 * decoded yet is decoded for this call, without keeping its bytes; n must then cover all of it.
 * Thread safe.
 */
int ckpt_feed_crc(ckpt_feed *s, uint32_t source, uint64_t at, uint64_t n, uint32_t *crc,
                  ckpt_err *err);

/*
 * Report a record whose bytes have a wrong CRC: CKPT_EFORMAT, exit status 3.
 *
 * into     the map that collects problems (ckpt_map_problem), or NULL: fail at once
 * found    CRC-32 of the bytes that were read
 */
int ckpt_feed_bad_crc(ckpt_map *into, const ckpt_map *map, uint32_t source, uint32_t found,
                      ckpt_err *err);

/* Close a feed, also after ckpt_feed_open has failed; zeroed feeds are fine. */
void ckpt_feed_close(ckpt_feed *s);

#endif
