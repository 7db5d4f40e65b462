/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sheet.h: the one file that a report is written to: text that is escaped for where it stands, and
 * a name that it gets when it is complete.
 */
#ifndef TOOLS_SHEET_H
#define TOOLS_SHEET_H

#include <stdio.h>

#include "ckpt.h"

typedef struct sheet {
    FILE *file;
    char *path, *temp; /* the name that it gets, and the one that it has until then */
    bool force;
    int sys; /* errno of the first write that failed */
    uint64_t n_bytes;
} sheet;

/*
 * May a file of this name be made: not if it is one of the map's files or the other path, is a
 * folder, or is there already and force is off.  maps end with NULL.
 *
 * Errors   CKPT_EUSAGE, CKPT_EIO
 */
int sheet_allowed(const char *path, bool force, const ckpt_map *const *maps, const char *other,
                  ckpt_err *err);

/* Begin a temporary file beside path.  Errors: CKPT_EIO, CKPT_ELIMIT */
int sheet_open(sheet *s, const char *path, bool force, ckpt_err *err);

/*
 * It is complete: to the disk with it, and its name.
 *
 * Errors   CKPT_EIO; CKPT_EUSAGE: a file of that name has come meanwhile, and force is off
 */
int sheet_keep(sheet *s, ckpt_err *err);

/* Remove it if it was not kept; frees what belongs to it.  A zeroed one, too. */
void sheet_drop(sheet *s);

/* Text as it stands: nothing of a checkpoint's. */
void sheet_printf(sheet *s, const char *fmt, ...) CKPT_PRINTF(2, 3);
void sheet_put(sheet *s, const char *text, size_t n);

/*
 * Text of a checkpoint in HTML or SVG, between tags or in an attribute's quotes.  What a terminal
 * would not show (out_text) is \xNN here, too.  most: characters before "..."; 0: all.
 */
void sheet_text(sheet *s, const char *text, size_t most);

/* The first n bytes of text as a string of JSON, which may stand in a script element. */
void sheet_string(sheet *s, const char *text, size_t n);

/* A number of JSON, to nine digits; what is not finite is null. */
void sheet_real(sheet *s, double x);

#endif
