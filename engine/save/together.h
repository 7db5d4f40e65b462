/* SPDX-License-Identifier: Apache-2.0 */
/* together.h: checks that all ranks that write into the folder of a run see the same folder. */
#ifndef ZT_SAVE_TOGETHER_H
#define ZT_SAVE_TOGETHER_H

#include "engine/comm/comm.h"
#include "libckpt/map/map.h"

/*
 * Seconds (5) that a network file system may need to show a file of another host; tests change it.
 */
extern double zt_together_patience;

/*
 * For each rank [world], the rank that creates and commits its folder: rank 0, or, if every node
 * has a folder of its own, the first rank of the node.  All ranks must call it.
 */
int zt_together_writers(zt_comm *c, bool node_local, int32_t *writer, ckpt_err *err);

/*
 * Before training, check that the folder is shared: every rank creates a file in its `dir` and
 * looks for its writer's, and the writer looks for all.  The files are removed.  All ranks must
 * call it; they agree on the outcome.
 *
 * Errors  CKPT_EMISMATCH: the rank that has another folder; CKPT_EIO: it cannot be written
 */
int zt_together_try(zt_comm *c, const char *dir, bool node_local, ckpt_err *err);

/*
 * Check, as the writer, a save that all ranks have reported as complete: its ranks' files must
 * exist below `path` and have the sizes of the layout.
 *
 * Errors  CKPT_EMISSING, CKPT_EMISMATCH: the file
 */
int zt_together_look(const zt_comm *c, const ckpt_map *to, const char *path, const int32_t *writer,
                     ckpt_err *err);

#endif
