/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h: reads one version of a file on another machine, through a cache of its blocks.
 *
 * Headers are read in small pieces at many offsets, therefore such a read fetches a complete block,
 * which stays in a cache shared by all files. Tensors are read in long pieces, which go straight to
 * the caller's buffer.
 */
#ifndef CKPT_REMOTE_FILE_H
#define CKPT_REMOTE_FILE_H

#include "libckpt/remote/fetch.h"

#define CKPT_REMOTE_HEAD (64u << 10) /* bytes that an opening fetches */

typedef struct ckpt_remote_file ckpt_remote_file;

/* name: the address for messages; url: the URL to fetch.  Both are copied; key is borrowed. */
int ckpt_remote_file_new(ckpt_remote_file **out, const char *name, const char *url,
                         const ckpt_fetch_key *key, ckpt_err *err);
void ckpt_remote_file_free(ckpt_remote_file *o);

/* The address given to ckpt_remote_file_new. */
const char *ckpt_remote_file_name(const ckpt_remote_file *o);

/*
 * Fetch the first bytes of the file, which gives its size and version.
 *
 * A second call sends no request, even if the first one failed: to try again, open the address
 * anew, which makes a new site.  Thread safe.
 *
 * until   as in ckpt_fetch_from
 * Errors  those of ckpt_fetch_range
 */
int ckpt_remote_file_open(ckpt_remote_file *o, int64_t until, ckpt_err *err);

/*
 * For an opened file: true if its server gives an ETag or Last-Modified, by which changes are
 * noticed.
 */
bool ckpt_remote_file_marked(ckpt_remote_file *o);

/* For an opened file: its size in bytes. */
uint64_t ckpt_remote_file_size(ckpt_remote_file *o);

/*
 * For an opened file: a number that differs for another file and for another version of this one.
 */
uint64_t ckpt_remote_file_identity(ckpt_remote_file *o);

/* Read n bytes at offset at, inside an opened file.  Thread safe. */
int ckpt_remote_file_read(ckpt_remote_file *o, void *buf, uint64_t n, uint64_t at, ckpt_err *err);

/*
 * Open many files at once, up to the first failure other than CKPT_EMISSING.  A file that failed
 * reports its error when the caller opens it alone.
 */
void ckpt_remote_file_open_all(ckpt_remote_file *const *o, size_t n, int64_t until);

#endif
