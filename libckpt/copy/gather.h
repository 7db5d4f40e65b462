/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.h: collects the elements of a region of a tensor in a buffer.
 */
#ifndef CKPT_COPY_GATHER_H
#define CKPT_COPY_GATHER_H

#include "libckpt/copy/crc_ledger.h"

/* Default size of the buffer for strided reads. */
#define CKPT_GATHER_STAGE (256u * 1024u)

/* One per thread; zero it, then set the members marked below. */
typedef struct ckpt_gather {
    ckpt_feed *feed;         /* required */
    ckpt_segments *segments; /* receives the CRCs of the bytes read; NULL: no CRCs */
    int (*touch)(void *ctx, uint32_t source,
                 ckpt_err *err); /* called before the use of a source, or NULL */
    void *touch_ctx;
    /*
     * Reads n bytes from offset `at` of a nested source (map/nest.h); values.h sets it. NULL: the
     * map has none
     */
    int (*nested)(void *ctx, const ckpt_source *s, void *to, uint64_t n, uint64_t at,
                  ckpt_err *err);
    void *nested_ctx;
    uint64_t n_read; /* bytes delivered so far, zeros not counted */
    uint8_t *stage;  /* allocated at first use; ckpt_gather_free frees it */
    size_t n_stage;  /* size of the stage; 0: CKPT_GATHER_STAGE */
} ckpt_gather;

/*
 * Fill buf with the region's elements, row-major and dense, as stored (in this machine's byte
 * order).
 *
 * t        a tensor with extents (not an alias)
 * region   as for ckpt_join
 * Errors   CKPT_EMISMATCH (hole or overlap), CKPT_EFORMAT (outside a source), CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_gather_region(ckpt_gather *g, const ckpt_tensor *t, const ckpt_axis *region,
                       unsigned n_axes, void *buf, ckpt_err *err);

/* Resolve the lazy bits of a tensor (conjugate, negate) in n gathered elements. */
void ckpt_gather_resolve(const ckpt_tensor *t, void *buf, uint64_t n_elems);

/* Release the stage; feed and segments belong to the user. */
void ckpt_gather_free(ckpt_gather *g);

#endif
