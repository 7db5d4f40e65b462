/* SPDX-License-Identifier: Apache-2.0 */
/*
 * left.h: the names that this library gives to what is not complete yet.
 *
 * ".NAME.ckpt-XXXXXX.tmp" is a file before its final rename (X: a digit or a small letter),
 * ".NAME.ckpt-partial" a folder of files with a journal.  Both are hidden, and stand beside the
 * final name.  ".ckpt-spool-XXXXXX" (capitals too) is a file of decoded records that lost its name
 * at once, if nothing interrupted that.
 */
#ifndef CKPT_COPY_LEFT_H
#define CKPT_COPY_LEFT_H

typedef enum ckpt_left_kind { CKPT_LEFT_NONE, CKPT_LEFT_FILE, CKPT_LEFT_FOLDER } ckpt_left_kind;

/* What a name says; it is ours only if it is a regular file or a folder accordingly. */
ckpt_left_kind ckpt_left_name(const char *name);

#endif
