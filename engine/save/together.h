/* SPDX-License-Identifier: Apache-2.0 */
/*
 * together.h: whether the folder of a run is one folder for all the ranks that write into it.
 */
#ifndef ZT_SAVE_TOGETHER_H
#define ZT_SAVE_TOGETHER_H

#include "engine/comm/comm.h"
#include "libckpt/map/map.h"

/* Seconds (5) that a network's file system may take to show what another host wrote; for tests. */
extern double zt_together_patience;

/*
 * Who makes and commits the folder for each rank, [world]: rank 0, or, where every node has a
 * folder of its own, the first rank of the node.  All ranks call it.
 */
int zt_together_writers(zt_comm *c, bool node_local, int32_t *writer, ckpt_err *err);

/*
 * Before anything is trained: every rank leaves a file in its `dir`, sees its writer's, and the
 * writer sees all.  Nothing stays.  All ranks call it, and agree.
 *
 * Errors  CKPT_EMISMATCH: the rank whose folder is another one; CKPT_EIO: it cannot be written
 */
int zt_together_try(zt_comm *c, const char *dir, bool node_local, ckpt_err *err);

/*
 * The writer's own look at a save that all ranks have reported: the files of its ranks are below
 * `path`, as large as they were laid out.
 *
 * Errors  CKPT_EMISSING, CKPT_EMISMATCH: the file
 */
int zt_together_look(const zt_comm *c, const ckpt_map *to, const char *path, const int32_t *writer,
                     ckpt_err *err);

#endif
