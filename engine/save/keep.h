/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.h: old checkpoints of a run make room for new ones.
 */
#ifndef ZT_SAVE_KEEP_H
#define ZT_SAVE_KEEP_H

#include "libckpt/base/err.h"

/*
 * Remove all tags of one series but the newest n, by the time they were written.  A series is what
 * differs from `tag` only in the number at its end ("global_step20"); tags with other names, and
 * what holds no model states, stay.  `tag` itself always stays.
 *
 * Errors  CKPT_EIO: a folder cannot be read or removed
 */
int zt_keep_newest(const char *dir, const char *tag, int64_t n, ckpt_err *err);

#endif
