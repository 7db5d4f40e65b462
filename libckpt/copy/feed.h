/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feed.h: the decoded bytes of a map's sources, wherever they are kept.
 *
 * Files through the pool, memory, what a function reads, zeros; deflated records from a spool that
 * ckpt_feed_decode filled.
 */
#ifndef CKPT_COPY_FEED_H
#define CKPT_COPY_FEED_H

#include <inttypes.h>

#include "libckpt/copy/io.h"
#include "libckpt/copy/spool.h"

typedef struct ckpt_feed {
    const ckpt_map *map;
    ckpt_io_pool *pool;
    ckpt_spool *spool; /* deflated records decoded so far */
} ckpt_feed;

/* folder: where the spool may put its file (NULL: TMPDIR); memory: bytes the spool may keep on the
 * heap. */
int ckpt_feed_open(ckpt_feed *out, const ckpt_map *map, const char *folder, uint64_t memory,
                   ckpt_err *err);

/*
 * Decode a deflated source and check its size and CRC; nothing to do for others, or the second
 * time. Thread safe for different sources.
 */
int ckpt_feed_decode(ckpt_feed *s, uint32_t source, ckpt_err *err);

/*
 * n decoded bytes from offset at.  Thread safe.
 *
 * Errors   CKPT_EFORMAT: outside the source or its file; CKPT_EIO; those of a far source's function
 */
int ckpt_feed_read(ckpt_feed *s, uint32_t source, void *buf, uint64_t n, uint64_t at,
                   ckpt_err *err);

/*
 * CRC-32 of n decoded bytes from offset at of a source, in *crc.  A deflated source that is not
 * decoded yet is decoded on the fly, kept nowhere, and must be wanted whole.  Thread safe.
 */
int ckpt_feed_crc(ckpt_feed *s, uint32_t source, uint64_t at, uint64_t n, uint32_t *crc,
                  ckpt_err *err);

/*
 * A record's bytes are not those that were written: CKPT_EFORMAT, which is exit status 3.
 *
 * into   the map that collects problems (ckpt_map_problem), or NULL: it fails at once
 * found  CRC-32 of the bytes that were read
 */
int ckpt_feed_bad_crc(ckpt_map *into, const ckpt_map *map, uint32_t source, uint32_t found,
                      ckpt_err *err);

/* Closes what ckpt_feed_open opened, whether it succeeded or not; zeroed feeds are fine. */
void ckpt_feed_close(ckpt_feed *s);

#endif
