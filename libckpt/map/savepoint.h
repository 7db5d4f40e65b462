/* SPDX-License-Identifier: Apache-2.0 */
/*
 * savepoint.h: undoes the changes of a function that fails after it has changed a map.
 *
 *     ckpt_savepoint *saved;
 *     int rc = ckpt_savepoint_new(&saved, map, err);
 *     if (rc == CKPT_OK)
 *         rc = ckpt_savepoint_end(saved, change(map, err));
 *
 * Every public function that changes a map in place works between these two calls, so that a caller
 * can go on with the map after a failure. What such a function puts into the map's arena stays
 * there, unreachable, until the map is freed.
 */
#ifndef CKPT_MAP_SAVEPOINT_H
#define CKPT_MAP_SAVEPOINT_H

#include "libckpt/map/map.h"

typedef struct ckpt_savepoint ckpt_savepoint;

/*
 * Remember a map: its lists, its tensors with their copies and addends, its states, its facts and
 * findings. Values, and files and sources that the map has already, must not be changed after this;
 * a change appends or replaces them.
 *
 * Errors   CKPT_ELIMIT; *out is then NULL
 */
int ckpt_savepoint_new(ckpt_savepoint **out, ckpt_map *map, ckpt_err *err);

/*
 * Free a savepoint. rc is the result of the change: unless it is CKPT_OK, the map first becomes
 * what it was. This needs no memory, so it cannot fail.
 *
 * Returns  rc
 */
int ckpt_savepoint_end(ckpt_savepoint *saved, int rc);

#endif
