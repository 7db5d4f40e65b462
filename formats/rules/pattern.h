/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.h: declares matching of Python regular expressions from checkpoints, with the semantics
 * of re.match.
 *
 * Most patterns are plain names ("^model\.norm\.weight$") and are compared as text.  PCRE2 matches
 * the others.  Patterns are untrusted, so length, depth, memory and steps are limited for each
 * match and for all together.
 */
#ifndef CKPT_FORMATS_UNI_PATTERN_H
#define CKPT_FORMATS_UNI_PATTERN_H

#include "libckpt/base/err.h"

typedef struct ckpt_uni_patterns ckpt_uni_patterns;

/* Make an empty list of patterns.  Errors: CKPT_ELIMIT (memory). */
int ckpt_uni_patterns_new(ckpt_uni_patterns **out, ckpt_err *err);
void ckpt_uni_patterns_free(ckpt_uni_patterns *p); /* NULL is fine */

/*
 * Add a pattern of n bytes; equal texts get the same number.
 *
 * Errors   CKPT_EUNSUPPORTED: PCRE2 rejects it, or would read it in another way than Python;
 *          CKPT_ELIMIT: too long, too many, or too large once compiled
 */
int ckpt_uni_patterns_add(ckpt_uni_patterns *p, const char *text, uint64_t n, uint32_t *number,
                          ckpt_err *err);

/*
 * Set *yes if the pattern matches at the beginning of the name (n bytes of UTF-8).
 *
 * Errors   CKPT_ELIMIT: this match, or all of p's matches together, need too many steps
 */
int ckpt_uni_patterns_match(ckpt_uni_patterns *p, uint32_t number, const char *name, uint64_t n,
                            bool *yes, ckpt_err *err);

/* The only name that a plain pattern matches, or NULL for other patterns. */
const char *ckpt_uni_patterns_exact(const ckpt_uni_patterns *p, uint32_t number, uint64_t *n);

/* The pattern's original text, NUL-terminated. */
const char *ckpt_uni_patterns_text(const ckpt_uni_patterns *p, uint32_t number);

#endif
