/* SPDX-License-Identifier: Apache-2.0 */
/* keep.h: declares the removal of a run's old checkpoints (--keep). */
#ifndef ZT_SAVE_KEEP_H
#define ZT_SAVE_KEEP_H

#include "engine/save/lineage.h"
#include "libckpt/base/err.h"

typedef struct zt_keep {
    const char *dir, *tag;
    const char *spare; /* another tag that is neither removed nor counted; "" or NULL: none */
    int64_t n;
    const zt_lineage *lineage;
} zt_keep;

enum { ZT_KEEP_GONE = 512 };

/*
 * Remove all tags of a series except the newest n, by modification time.  Tags of one series differ
 * from `tag` only in the number at the end ("global_step20").  Folders with other names, folders
 * without model states, and checkpoints of other runs (lineage.h) are kept.  `tag` itself is always
 * kept.
 *
 * gone    the names of the removed tags are appended to it; truncated if there are many
 * Errors  CKPT_EIO: a folder cannot be read or removed
 */
int zt_keep_newest(const zt_keep *k, char gone[ZT_KEEP_GONE], ckpt_err *err);

#endif
