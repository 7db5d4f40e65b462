/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.h: bringing the elements of a region of a tensor together in a buffer.
 */
#ifndef CKPT_COPY_GATHER_H
#define CKPT_COPY_GATHER_H

#include "libckpt/copy/ledger.h"

/* Bytes that strided pieces are read through when the user of a gather does not say. */
#define CKPT_GATHER_STAGE (256u * 1024u)

/* One per thread.  Zeroed but for what the comments ask for. */
typedef struct ckpt_gather {
    ckpt_feed *feed;         /* to be set */
    ckpt_segments *segments; /* where CRCs of what was read go; NULL: not wanted */
    int (*touch)(void *ctx, uint32_t source,
                 ckpt_err *err); /* called before a source is used, or NULL */
    void *touch_ctx;
    /*
     * Reads n bytes from offset `at` of a nested source (map/nest.h); values.h sets it.  NULL:
     * there are none
     */
    int (*nested)(void *ctx, const ckpt_source *s, void *to, uint64_t n, uint64_t at,
                  ckpt_err *err);
    void *nested_ctx;
    uint64_t n_read; /* bytes delivered so far, zeros not counted */
    uint8_t *stage;  /* made when first needed; ckpt_gather_free */
    size_t n_stage;  /* bytes of it; 0: CKPT_GATHER_STAGE */
} ckpt_gather;

/*
 * Fill buf with the region's elements, row-major and dense, as they are stored (byte order
 * resolved).
 *
 * t       whose extents name the sources (not an alias)
 * region  as for ckpt_join
 * Errors  CKPT_EMISMATCH (hole or overlap), CKPT_EFORMAT (outside a source), CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_gather_region(ckpt_gather *g, const ckpt_tensor *t, const ckpt_axis *region,
                       unsigned n_axes, void *buf, ckpt_err *err);

/* Resolve the lazy bits of a tensor (conjugate, negate) in n gathered elements. */
void ckpt_gather_resolve(const ckpt_tensor *t, void *buf, uint64_t n_elems);

/* Release the stage; feed and segments belong to the user. */
void ckpt_gather_free(ckpt_gather *g);

#endif
