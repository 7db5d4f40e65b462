/* SPDX-License-Identifier: Apache-2.0 */
/* near.h: declares the search for the word that a misspelt one probably means. */
#ifndef TOOLS_NEAR_H
#define TOOLS_NEAR_H

#include <stddef.h>

typedef struct near_word {
    const char *word, *best; /* best: the nearest candidate so far, or NULL */
    size_t length, limit;    /* length of word; maximum edits of a better candidate */
} near_word;

/*
 * Begin for the first n bytes of word.  A candidate may differ by one edit, plus one per three
 * bytes.
 */
void near_begin(near_word *w, const char *word, size_t n);

/* Try a candidate, which must outlive w. */
void near_try(near_word *w, const char *candidate);

#endif
