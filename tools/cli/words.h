/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.h: one word of a command line to the field that it sets.
 */
#ifndef TOOLS_WORDS_H
#define TOOLS_WORDS_H

#include "tools/cli/table.h"

/* A decimal number without sign or blanks; false when it is none or does not fit. */
bool word_uint(uint64_t *out, const char *text, size_t n);

/* Store a word in the field of its kind (table.h); false when the word is not of that kind. */
bool word_store(void *field, cli_kind kind, const char *word);

/* What a refused word should have been, for messages: "a whole number from 1 on". */
const char *word_expected(cli_kind kind);

/*
 * Take "PATH:WEIGHT" apart; what is there under the whole word, or ends in no number, is a path of
 * weight 1.  False: no path, or none that fits.
 */
bool word_weighted(char *path, size_t room, const char *word, double *weight);

#endif
