/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.h: declares reading JSON token by token from a file of any length: one document, or one per
 * line.
 *
 * cJSON cannot be used, because it keeps whole documents in memory, and refuses the NaN and
 * Infinity that Python writes.
 */
#ifndef TOOLS_SCAN_H
#define TOOLS_SCAN_H

#include <stdio.h>

#include "ckpt.h"

enum { SCAN_TEXT = 64, SCAN_DEPTH = 64 };

typedef enum scan_is {
    SCAN_END, /* end of the file, between documents */
    SCAN_OBJECT,
    SCAN_LIST,
    SCAN_CLOSED, /* end of an object or list */
    SCAN_KEY,    /* text is the key's beginning; the value is the next token */
    SCAN_STRING, /* text is the beginning of the string */
    SCAN_NUMBER,
    SCAN_TRUE,
    SCAN_FALSE,
    SCAN_NULL
} scan_is;

/* Zero it except for file, path (for messages) and line (1). */
typedef struct scan {
    FILE *file;
    const char *path;
    size_t line;
    scan_is is;           /* the last token */
    double number;        /* NaN and infinities too */
    char text[SCAN_TEXT]; /* truncated if longer; escapes stay unchanged */
    unsigned depth;
    char open[SCAN_DEPTH]; /* '{' or '[' */
    bool value;            /* a value must follow, after a key's colon */
    bool member;           /* the innermost container has a member; the next one needs a comma */
} scan;

/* Read the next token.  Errors: CKPT_EFORMAT, with the line; CKPT_EIO */
int scan_next(scan *s, ckpt_err *err);

/* If the last token opened a container, skip all of it. */
int scan_rest(scan *s, ckpt_err *err);

/* Name a token in a message: "a string", "an object". */
const char *scan_name(scan_is is);

#endif
