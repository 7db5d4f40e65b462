/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_out.h: declares a JSON writer for stdout: indented, correctly escaped, one value after
 * another.
 *
 * Keys must be given inside objects and be NULL inside arrays.  Invalid UTF-8 becomes U+FFFD;
 * integers are exact; numbers that JSON lacks become the strings "NaN", "Infinity" and "-Infinity".
 */
#ifndef TOOLS_JSON_OUT_H
#define TOOLS_JSON_OUT_H

#include "ckpt.h"

enum { JSON_DEPTH = 16 };

typedef struct json_out {
    unsigned depth;
    unsigned flat_from;      /* containers at this depth and below are on one line; 0: none */
    bool filled[JSON_DEPTH]; /* per depth: the open container has a member already */
} json_out;

/* Begin and end the document, an object with "schema": 1. */
void json_begin(json_out *j);
void json_end(json_out *j);

/* Begin and end an object or array: bracket is '{' or '[', then '}' or ']'. */
void json_open(json_out *j, const char *key, char bracket);
void json_close(json_out *j, char bracket);

/* Begin an array with all members on one line: shapes, boxes. */
void json_open_flat(json_out *j, const char *key, char bracket);

void json_text(json_out *j, const char *key, const char *text); /* NULL gives null */
void json_uint(json_out *j, const char *key, uint64_t n);
void json_int(json_out *j, const char *key, int64_t n);
void json_bool(json_out *j, const char *key, bool b);

/* Add a number that is already valid JSON ("0.1"). */
void json_literal(json_out *j, const char *key, const char *text);
void json_real(json_out *j, const char *key, double x);

/* Print a key, before the caller prints its value. */
void json_key(json_out *j, const char *key);

#endif
