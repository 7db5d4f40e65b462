/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.h: Python regular expressions from checkpoints, tried as re.match tries them.
 *
 * Most patterns are plain names ("^model\.norm\.weight$"): those are compared as text.  The rest is
 * matched by PCRE2, under limits of length, depth, memory, and of steps: of each match, and of all
 * together.
 */
#ifndef CKPT_FORMATS_UNI_PATTERN_H
#define CKPT_FORMATS_UNI_PATTERN_H

#include "libckpt/base/err.h"

typedef struct ckpt_uni_patterns ckpt_uni_patterns;

/* An empty list of patterns.  Errors: CKPT_ELIMIT (memory). */
int ckpt_uni_patterns_new(ckpt_uni_patterns **out, ckpt_err *err);
void ckpt_uni_patterns_free(ckpt_uni_patterns *p); /* NULL is fine */

/*
 * Enter a pattern of n bytes; equal texts get one number.
 *
 * Errors   CKPT_EUNSUPPORTED: PCRE2 does not accept it, or reads it in another way than Python
 *          does; CKPT_ELIMIT: too long, too many, or too large once compiled
 */
int ckpt_uni_patterns_add(ckpt_uni_patterns *p, const char *text, uint64_t n, uint32_t *number,
                          ckpt_err *err);

/*
 * *yes: the pattern matches at the beginning of the name (n bytes of UTF-8).
 *
 * Errors   CKPT_ELIMIT: this match, or all of p's matches together, need too many steps
 */
int ckpt_uni_patterns_match(ckpt_uni_patterns *p, uint32_t number, const char *name, uint64_t n,
                            bool *yes, ckpt_err *err);

/* The one name that a pattern matches, or NULL if it is not of that kind. */
const char *ckpt_uni_patterns_exact(const ckpt_uni_patterns *p, uint32_t number, uint64_t *n);

/* The pattern as written, terminated. */
const char *ckpt_uni_patterns_text(const ckpt_uni_patterns *p, uint32_t number);

#endif
