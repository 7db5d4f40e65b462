/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same.h: declares the files and the state that must be equal on all ranks, as lines for
 * zt_comm_same.
 */
#ifndef ZT_SAVE_SAME_H
#define ZT_SAVE_SAME_H

#include "engine/save/save.h"
#include "libckpt/base/vec.h"
#include "libckpt/map/map.h"

/*
 * Add a line with a file's size and digest: of the whole file up to `whole` bytes, beyond that of
 * its ends and pieces between, at most 4 MiB.  Pieces suffice, because different files of weights
 * or tokens of that size differ nearly everywhere.  If it is not a regular file, the line states
 * that, and it is not read.
 *
 * Errors  CKPT_EIO, CKPT_EMISSING: the file cannot be read; CKPT_ELIMIT
 */
int zt_same_file(ckpt_bytes *lines, const char *name, const char *path, uint64_t whole,
                 ckpt_err *err);

/* Compare the files of an opened checkpoint, and the loaded tag and step. */
int zt_same_checkpoint(zt_comm *c, const ckpt_map *map, const zt_loaded *loaded, ckpt_err *err);

/* Compare counters, loss scale, schedule and groups: at the start, after a resume, in each save. */
int zt_same_state(const zt_zero *z, ckpt_err *err);

/* Compare lines, and free them.  rc: the result of collecting them. */
int zt_same(zt_comm *c, ckpt_bytes *lines, int rc, ckpt_err *err);

#endif
