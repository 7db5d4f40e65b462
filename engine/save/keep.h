/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.h: old checkpoints of a run make room for new ones.
 */
#ifndef ZT_SAVE_KEEP_H
#define ZT_SAVE_KEEP_H

#include "engine/save/lineage.h"
#include "libckpt/base/err.h"

typedef struct zt_keep {
    const char *dir, *tag;
    int64_t n;
    const zt_lineage *lineage;
} zt_keep;

enum { ZT_KEEP_GONE = 512 };

/*
 * Remove all tags of one series but the newest n, by the time they were written.  A series is what
 * differs from `tag` only in the number at its end ("global_step20"); tags with other names, what
 * holds no model states, and what belongs neither to this run nor to those it has grown from, stay.
 * `tag` itself always stays.
 *
 * gone    gets the names of what was removed, behind those that it has; cut where they are many
 * Errors  CKPT_EIO: a folder cannot be read or removed
 */
int zt_keep_newest(const zt_keep *k, char gone[ZT_KEEP_GONE], ckpt_err *err);

#endif
