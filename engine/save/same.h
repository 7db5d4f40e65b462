/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same.h: what the ranks of a run must have equal, as the lines that zt_comm_same compares.
 */
#ifndef ZT_SAVE_SAME_H
#define ZT_SAVE_SAME_H

#include "engine/save/save.h"
#include "libckpt/base/vec.h"
#include "libckpt/map/map.h"

/*
 * A line with a file's size and digest: of all of it up to `whole` bytes, beyond that of its ends
 * and of pieces between them, 4 MiB at most (as large as they are, files of weights or tokens that
 * differ do so nearly everywhere).  What is no plain file has a line that says so, and is not read.
 *
 * Errors  CKPT_EIO, CKPT_EMISSING: the file cannot be read; CKPT_ELIMIT
 */
int zt_same_file(ckpt_bytes *lines, const char *name, const char *path, uint64_t whole,
                 ckpt_err *err);

/* The files of a checkpoint that was opened, and what became of them (tag, step). */
int zt_same_checkpoint(zt_comm *c, const ckpt_map *map, const zt_loaded *loaded, ckpt_err *err);

/* Counters, loss scale, schedule, groups: at the start, after a resume, in each save. */
int zt_same_state(const zt_zero *z, ckpt_err *err);

/* Compare lines, and free them.  rc: of making them. */
int zt_same(zt_comm *c, ckpt_bytes *lines, int rc, ckpt_err *err);

#endif
