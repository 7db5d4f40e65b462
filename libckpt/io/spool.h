/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool.h: stores decoded records: in memory up to a limit, then in an unlinked temporary file.
 */
#ifndef CKPT_IO_SPOOL_H
#define CKPT_IO_SPOOL_H

#include "libckpt/base/mem.h"

typedef struct ckpt_spool ckpt_spool;

/*
 * n       number of records, numbered from 0
 * folder  for the file if one is needed; NULL: TMPDIR, else /tmp
 * heap    bytes that may stay in memory, all records together
 */
int ckpt_spool_new(ckpt_spool **out, size_t n, const char *folder, uint64_t heap, ckpt_err *err);

/* Reserve n_bytes for record i. Thread safe. */
int ckpt_spool_begin(ckpt_spool *s, size_t i, uint64_t n_bytes, ckpt_err *err);

/*
 * Write n bytes at offset at of record i, within the reserved size. Thread safe for different
 * records.
 */
int ckpt_spool_write(ckpt_spool *s, size_t i, const void *bytes, uint64_t n, uint64_t at,
                     ckpt_err *err);

/* Mark record i as complete: has() is true from now on. */
void ckpt_spool_end(ckpt_spool *s, size_t i);
bool ckpt_spool_has(ckpt_spool *s, size_t i);

/* Read n bytes at offset at of record i, which is complete. Thread safe. */
int ckpt_spool_read(ckpt_spool *s, size_t i, void *buf, uint64_t n, uint64_t at, ckpt_err *err);

/*
 * Open the file that all spools without a folder share from now on, for a process that cannot open
 * one later. Call it once, before other threads start.
 *
 * Errors   CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_spool_prepare(ckpt_err *err);

void ckpt_spool_free(ckpt_spool *s); /* NULL is fine */

#endif
