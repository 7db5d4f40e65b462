/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latest.h: the writer of `latest`, the small file of a run that names the checkpoint to resume
 * from (DeepSpeed's `latest`, `latest_universal`).
 *
 * A resume reads it first, so it is written whole and synced under another name, and gets its own
 * by a rename: the old text or the new one is there, always.  publish.c does that rename together
 * with the checkpoint's own; the doctor, who writes nothing else, by ckpt_latest_replace.
 */
#ifndef CKPT_COPY_LATEST_H
#define CKPT_COPY_LATEST_H

#include <stdbool.h>

#include "libckpt/base/err.h"

/*
 * Create a file of `text` in an open folder.
 *
 * name     not there yet (EEXIST)
 * sync     wait until it is on the disk
 * Returns  0, or an errno; then the file is not there
 */
int ckpt_latest_write(int folder, const char *name, const char *text, bool sync);

/*
 * Let the file `name` of a folder hold `text`, with the permissions it had; made if absent.
 *
 * Errors   CKPT_EIO, and the old text is still there - unless the message says that only the sync
 *          of the folder failed
 */
int ckpt_latest_replace(const char *folder, const char *name, const char *text, ckpt_err *err);

#endif
