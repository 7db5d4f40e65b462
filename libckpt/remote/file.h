/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h: one file on another machine: which one it is, and the blocks of it that are kept.
 *
 * Headers are read here and there in small pieces: a piece brings a block, which is kept, within a
 * limit for all files.  Tensors are read in long pieces, which go straight to who asked.
 */
#ifndef CKPT_REMOTE_FILE_H
#define CKPT_REMOTE_FILE_H

#include "libckpt/remote/fetch.h"

#define CKPT_REMOTE_HEAD (64u << 10) /* bytes that opening brings */

typedef struct ckpt_remote_file ckpt_remote_file;

/* name: the address; url: where it is; both are copied.  key is borrowed. */
int ckpt_remote_file_new(ckpt_remote_file **out, const char *name, const char *url,
                         const ckpt_fetch_key *key, ckpt_err *err);
void ckpt_remote_file_free(ckpt_remote_file *o);

/* The address it was made with. */
const char *ckpt_remote_file_name(const ckpt_remote_file *o);

/*
 * Learn which file it is, with its first bytes; nothing is asked where that is known, or where it
 * has failed before: a site is made anew when its address is opened again.  Thread safe.
 *
 * until   as in ckpt_fetch_from
 * Errors  those of ckpt_fetch_range
 */
int ckpt_remote_file_open(ckpt_remote_file *o, int64_t until, ckpt_err *err);

/* Of an opened one: its server says by ETag or Last-Modified that it has changed. */
bool ckpt_remote_file_marked(ckpt_remote_file *o);

/* Of an opened one: bytes. */
uint64_t ckpt_remote_file_size(ckpt_remote_file *o);

/* Of an opened one: a number that another file, or another state of it, has not. */
uint64_t ckpt_remote_file_identity(ckpt_remote_file *o);

/* n bytes at offset at, inside it, of an opened one.  Thread safe. */
int ckpt_remote_file_read(ckpt_remote_file *o, void *buf, uint64_t n, uint64_t at, ckpt_err *err);

/*
 * Open many at once, up to the first failure other than CKPT_EMISSING; one that failed says so when
 * it is opened alone.
 */
void ckpt_remote_file_open_all(ckpt_remote_file *const *o, size_t n, int64_t until);

#endif
