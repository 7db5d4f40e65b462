/* SPDX-License-Identifier: Apache-2.0 */
/*
 * temp_names.h: recognises the temporary names of this library.
 *
 * ".NAME.ckpt-XXXXXX.tmp" is a file before its final rename (X: a digit or a small letter),
 * ".NAME.ckpt-partial" a folder of files with a journal. Both are hidden, in the folder of the
 * final name. ".ckpt-spool-XXXXXX" (capitals too) is a file of decoded records, which is unlinked
 * at once unless the run is interrupted there.
 */
#ifndef CKPT_COMMIT_TEMP_NAMES_H
#define CKPT_COMMIT_TEMP_NAMES_H

typedef enum ckpt_left_kind { CKPT_LEFT_NONE, CKPT_LEFT_FILE, CKPT_LEFT_FOLDER } ckpt_left_kind;

/* The kind by the name alone; the caller must check that it is a regular file or a folder. */
ckpt_left_kind ckpt_left_name(const char *name);

#endif
