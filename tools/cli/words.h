/* SPDX-License-Identifier: Apache-2.0 */
/* words.h: declares the conversion of a word of a command line to the field that it sets. */
#ifndef TOOLS_WORDS_H
#define TOOLS_WORDS_H

#include "tools/cli/table.h"

/* Store a word in a field of its kind (table.h); false if the word is not of that kind. */
bool word_store(void *field, cli_kind kind, const char *word);

/* The description of valid words, for messages: "a whole number from 1 on". */
const char *word_expected(cli_kind kind);

/*
 * Split "PATH:WEIGHT".  A word that exists as a path, or does not end in a number, is a path with
 * weight 1.  False: no path, or it does not fit.
 */
bool word_weighted(char *path, size_t room, const char *word, double *weight);

#endif
