/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sheet.h: declares the output file of a report, which escapes text, and which gets its name when
 * it is complete.
 */
#ifndef TOOLS_SHEET_H
#define TOOLS_SHEET_H

#include <stdio.h>

#include "ckpt.h"

typedef struct sheet {
    FILE *file;
    char *path, *temp; /* final name, and temporary name */
    bool force;
    int sys; /* errno of the first failed write */
    uint64_t n_bytes;
} sheet;

/*
 * Check that a file of this name may be created.  Refused: a file of the maps, the other path, a
 * folder, an existing file without force.  maps ends with NULL.
 *
 * Errors   CKPT_EUSAGE, CKPT_EIO
 */
int sheet_allowed(const char *path, bool force, const ckpt_map *const *maps, const char *other,
                  ckpt_err *err);

/* Create a temporary file beside path.  Errors: CKPT_EIO, CKPT_ELIMIT */
int sheet_open(sheet *s, const char *path, bool force, ckpt_err *err);

/*
 * Finish the file: sync it, and give it its name.
 *
 * Errors   CKPT_EIO; CKPT_EUSAGE: a file of that name exists now, and force is off
 */
int sheet_keep(sheet *s, ckpt_err *err);

/* Remove the file unless it was kept, and free the sheet; a zeroed one is fine. */
void sheet_drop(sheet *s);

/* Write text unchanged; must not contain text of a checkpoint. */
void sheet_printf(sheet *s, const char *fmt, ...) CKPT_PRINTF(2, 3);
void sheet_put(sheet *s, const char *text, size_t n);

/*
 * Write text of a checkpoint in HTML or SVG, between tags or in a quoted attribute.  Characters
 * that out_text hides become \xNN here too.  most: maximum characters before "..."; 0: no limit.
 */
void sheet_text(sheet *s, const char *text, size_t most);

/* Write the first n bytes of text as a JSON string that is safe in a script element. */
void sheet_string(sheet *s, const char *text, size_t n);

/* Write a JSON number with nine digits; null if it is not finite. */
void sheet_real(sheet *s, double x);

#endif
