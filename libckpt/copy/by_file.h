/* SPDX-License-Identifier: Apache-2.0 */
/*
 * by_file.h: groups the sources of a map by file.
 */
#ifndef CKPT_COPY_BY_FILE_H
#define CKPT_COPY_BY_FILE_H

#include "libckpt/map/map.h"

/*
 * source   gets the indexes of all sources in files, each group ascending
 * first    gets the start of each file's group, and the end of the last group
 *
 * The caller frees both, also on failure.
 */
int ckpt_by_file(uint32_t **source, size_t **first, const ckpt_map *map, ckpt_err *err);

#endif
