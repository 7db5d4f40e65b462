/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h: defines the contract of a format driver: bytes <-> map, and nothing else.
 *
 * A driver never reads payload, never opens a path by itself and never prints. It does not call its
 * callers: the caller hands it a function that reads one file of a folder (ckpt_listing.read). File
 * formats handle one file; directory formats arrange files that file formats read and write.
 */
#ifndef CKPT_FORMAT_H
#define CKPT_FORMAT_H

#include "ckpt.h"
#include "libckpt/commit/recompress.h"
#include "libckpt/copy/runs.h"
#include "libckpt/io/io.h"
#include "libckpt/io/listing.h"
#include "libckpt/map/file_format.h"
#include "libckpt/map/map.h"

typedef struct ckpt_directory {
    ckpt_format_info is; /* the same; CKPT_IS_FOLDER is set */

    /* How likely it is that the folder has this format, 0..100, judged by names alone. */
    int (*probe)(const ckpt_listing *list);

    /* Read all files' headers (with list->read) and make one map of logical tensors. */
    int (*gather)(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                  ckpt_err *err);

    /*
     * Distribute the tensors of `to` (already named, typed, in order) over files: set .file, add
     * files and literals. With CKPT_WRITES_STATE or CKPT_TAKES_GRID `to` comes without tensors,
     * because the driver makes them as its files need them. The driver marks files that it has
     * placed itself.
     */
    int (*scatter)(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

    /*
     * Check that a target of another format has all of the model that a configuration of this
     * format describes; folder: it is a folder. NULL: the format has none.
     */
    int (*whole)(ckpt_map *to, const ckpt_map *from, bool folder, ckpt_err *err);

    /*
     * Whether a file of this name is part of such a folder: 0 no; 1 yes, and the folder is opened
     * when the caller asks for the whole checkpoint; 2 yes, and the file is useless alone (an
     * index). NULL: no.
     */
    int (*part)(const char *file_name);

    /*
     * Whether a single file with these values (or NULL) holds a run that this driver reads when the
     * caller wants one. NULL: no.
     */
    bool (*holds)(const ckpt_value *values);

    /*
     * Whether a folder, of which another driver reads the weights, holds a run that this driver
     * reads when the caller wants one. NULL: no.
     */
    bool (*holds_run)(const ckpt_listing *list);

    /* Read such a run; weights: the map of the other driver, which the caller frees. */
    int (*gather_run)(ckpt_map *map, ckpt_map *weights, const ckpt_listing *list,
                      const ckpt_open_opts *opts, ckpt_err *err);

    /*
     * the layouts of runs, each with another pointer, NULL after the last; NULL: the format has
     * none, or runs of DeepSpeed with its `latest`
     */
    const ckpt_run_layout *const *runs;
} ckpt_directory;

#endif
