/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latest.h: writes `latest`, the small file of a run that names the checkpoint to resume from
 * (DeepSpeed's `latest`, `latest_universal`).
 *
 * It writes and syncs the text under another name and then renames the file, because a resume reads
 * it first: either the old text or the new one is there at any time. publish.c makes that rename
 * together with the checkpoint's own; the doctor, which writes nothing else, calls
 * ckpt_latest_replace. Manifests, signatures and statements are written in the same way.
 */
#ifndef CKPT_COMMIT_LATEST_H
#define CKPT_COMMIT_LATEST_H

#include <stdbool.h>

#include "libckpt/base/err.h"

/*
 * Create a file with `text` in an open folder.
 *
 * name     must not exist (EEXIST)
 * sync     wait until it is on the disk
 * Returns  0, or an errno; then the file does not exist
 */
int ckpt_latest_write(int folder, const char *name, const char *text, bool sync);

/*
 * Check that a file can be written: it does not exist, or is an older one of the same kind that may
 * be replaced.
 *
 * old      gets whether it exists
 * kind     for messages: "a signature"
 * is_kind  true for a file of that kind
 * Errors   CKPT_EUSAGE: another file is there, or force is false
 */
int ckpt_latest_check(bool *old, const char *file, bool force, const char *kind,
                      bool (*is_kind)(const char *file), ckpt_err *err);

/*
 * Replace the text of the file `name` in a folder and keep its permissions; create it if absent.
 *
 * Errors   CKPT_EIO: the old text is still there, unless the message reports that only the sync of
 *          the folder failed
 */
int ckpt_latest_replace(const char *folder, const char *name, const char *text, ckpt_err *err);

/* The same for a file that must not exist (CKPT_EUSAGE). */
int ckpt_latest_create(const char *folder, const char *name, const char *text, ckpt_err *err);

#endif
