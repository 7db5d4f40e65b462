/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near.h: which of some words a misspelt one was probably meant to be.
 */
#ifndef TOOLS_NEAR_H
#define TOOLS_NEAR_H

#include <stddef.h>

typedef struct near_word {
    const char *word, *best; /* best: the nearest candidate so far, or NULL */
    size_t length, limit;    /* of word; edits that a better candidate may take */
} near_word;

/* Look for the first n bytes of word: one edit, and one more for each three bytes. */
void near_begin(near_word *w, const char *word, size_t n);

/* Offer a candidate, which must outlive w. */
void near_try(near_word *w, const char *candidate);

#endif
