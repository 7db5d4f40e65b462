/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h: lists the files of a model as they are on the disk, with their SHA-256.
 */
#ifndef CKPT_SIGN_FOLDER_H
#define CKPT_SIGN_FOLDER_H

#include "libckpt/sign/listed.h"

typedef struct ckpt_signed_counts {
    uint64_t n_files, n_bytes;
    ckpt_signed_paths left_out; /* files and folders that exist and are ignored */
} ckpt_signed_counts;

/*
 * Fill list->all with the files below path, or with "." if path is a file. list->shard, links,
 * no_leftover and ignored say how; list->arena gets the names. The caller frees counts->left_out.
 * It hashes no file before all were accepted.
 *
 * Errors   CKPT_EUNSUPPORTED: a symbolic link that must not be followed, a pipe or device, a
 *          temporary file, a name that is not UTF-8 or has a backslash; CKPT_EMISSING, CKPT_EIO,
 *          CKPT_ELIMIT, CKPT_ECANCELED
 */
int ckpt_signed_scan(ckpt_signed_list *list, const char *path, const ckpt_run_opts *run,
                     ckpt_signed_counts *counts, ckpt_err *err);

#endif
