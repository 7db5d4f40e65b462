/* SPDX-License-Identifier: Apache-2.0 */
/*
 * by_file.h: the sources of a map grouped by the files they lie in.
 */
#ifndef CKPT_COPY_BY_FILE_H
#define CKPT_COPY_BY_FILE_H

#include "libckpt/map/map.h"

/*
 * source  gets the indexes of all sources that lie in files, each group ascending
 * first   gets, per file and one more, where its group begins
 *
 * Both are the caller's to free, on failure too.
 */
int ckpt_by_file(uint32_t **source, size_t **first, const ckpt_map *map, ckpt_err *err);

#endif
