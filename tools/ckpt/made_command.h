/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made_command.h: declares the command that makes a checkpoint: its words from the options of the
 * command line, and those that are found in the checkpoint.
 */
#ifndef TOOLS_CKPT_MADE_COMMAND_H
#define TOOLS_CKPT_MADE_COMMAND_H

#include "libckpt/base/vec.h"
#include "tools/cli/json_out.h"
#include "tools/cli/write_args.h"

/* The words; it owns them. */
CKPT_VEC(made_command, char *);

/* Add a word, or an option and its value; false: no memory. */
bool made_command_word(made_command *c, const char *word);
bool made_command_option(made_command *c, const char *name, const char *value);

/*
 * Add the options of the command line that a conversion has, as they were given.
 *
 * but   the names of the other ones, separated and surrounded by spaces
 */
bool made_command_given(made_command *c, const cli_line *line, const char *but);

/* Print the words, quoted for a shell; or as an array. */
void made_command_text(const made_command *c);
void made_command_json(json_out *j, const char *key, const made_command *c);
void made_command_free(made_command *c);

/*
 * The format with which ckpt writes checkpoints like this one: "zero" for "deepspeed".
 *
 * Errors   CKPT_EUNSUPPORTED: none
 */
int made_format(const char **format, const ckpt_map *made, ckpt_err *err);

/* The number of ranks that wrote a checkpoint, by the names of its files; 0: they do not tell. */
unsigned made_world(const ckpt_map *made);

/*
 * The dtype in which a checkpoint was written, in the words of --dtype: that of most of its
 * floating tensors, or the type that a GGUF file names; NULL: it has none, or is quantized.
 */
const char *made_dtype(const ckpt_map *made);

/*
 * The dtypes of a checkpoint's tensors as rules of --dtype by exact names, the most frequent one
 * for all others.  Only tensors of `from` that can be converted count.  NULL: no memory, or no
 * rule.
 */
char *made_dtypes(const ckpt_map *made, const ckpt_map *from);

#endif
