/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_out.h: a small writer of JSON to stdout: indented, correctly escaped, one value after
 * another.
 *
 * Keys are given inside objects and are NULL inside arrays.  Invalid UTF-8 becomes U+FFFD; integers
 * are exact; numbers JSON cannot say are the strings "NaN", "Infinity" and "-Infinity".
 */
#ifndef TOOLS_JSON_OUT_H
#define TOOLS_JSON_OUT_H

#include "ckpt.h"

enum { JSON_DEPTH = 16 };

typedef struct json_out {
    unsigned depth;
    unsigned flat_from;      /* containers at this depth and below stay on one line; 0: none */
    bool filled[JSON_DEPTH]; /* the container at each depth has a member already */
} json_out;

/* The document: an object that begins with "schema": 1. */
void json_begin(json_out *j);
void json_end(json_out *j);

/* Begin and end an object or array: bracket is '{' or '[', then '}' or ']'. */
void json_open(json_out *j, const char *key, char bracket);
void json_close(json_out *j, char bracket);

/* An array whose members share one line: shapes, boxes. */
void json_open_flat(json_out *j, const char *key, char bracket);

void json_text(json_out *j, const char *key, const char *text); /* NULL gives null */
void json_uint(json_out *j, const char *key, uint64_t n);
void json_int(json_out *j, const char *key, int64_t n);
void json_bool(json_out *j, const char *key, bool b);

/* A number already spelled as JSON spells it ("0.1"). */
void json_literal(json_out *j, const char *key, const char *text);
void json_real(json_out *j, const char *key, double x);

/* A key whose value the caller prints itself. */
void json_key(json_out *j, const char *key);

#endif
