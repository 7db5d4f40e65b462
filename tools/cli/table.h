/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h: declares command lines by table.  One table of options per command controls parsing,
 * --help and completion, for the verbs of ckpt, the drop-ins, and zerotrain.
 *
 *     words.c     numbers, sizes, dtypes: a word to a field
 *     parse.c     a command line to fields
 *     help.c      the text of --help
 *     complete.c  completion for shells
 *     verb.h      a command, its options and its fields
 *     args.h      the options that several commands share
 *     write_args.h  those of the commands that write checkpoints
 *
 * Long options accept '-' and '_' alike.
 */
#ifndef TOOLS_TABLE_H
#define TOOLS_TABLE_H

#include "tools/cli/verb.h"

/*
 * Fill the fields at values from the command line; argv[0] is skipped.  The line owns the texts.
 *
 * Errors   CKPT_EUSAGE with a text; CKPT_ELIMIT
 */
int cli_parse(cli_line *line, const cli_verb *verb, void *values, int argc, char **argv,
              ckpt_err *err);
void cli_free(cli_line *line);

/* Add a word to a list, which has room for all words of the command line. */
int cli_add(cli_line *line, cli_list *list, const char *word, ckpt_err *err);

/* Store one value like "--name=word" on the command line.  word must outlive the fields. */
int cli_take(cli_line *line, const cli_option *o, const char *word, ckpt_err *err);

/* The i-th option of a verb: first its own, then the common ones; NULL past the end. */
const cli_option *cli_option_at(const cli_verb *verb, size_t i);

/* The verb's own option with this name ('-' and '_' are equal); NULL: none. */
const cli_option *cli_option_named(const cli_verb *verb, const char *name);

enum { CLI_HELP_ROOM = 160 };

/* List the formats that can be written and have all these capabilities (CKPT_TAKES_SHARD_SIZE ...):
 * "torch, safetensors or hf"; returns text. */
const char *cli_formats(char text[CLI_HELP_ROOM], unsigned caps);

/*
 * Capabilities that an option's format must have (CKPT_CAN_WRITE ...); 0: the value is not a
 * format.
 */
unsigned cli_format_caps(cli_kind kind);

/* An option's help text; room is for text made from the library's table of formats. */
const char *cli_option_help(const cli_option *o, char room[CLI_HELP_ROOM]);

/* True if an option of this name was given. */
bool cli_has(const cli_line *line, const char *name);

/* The name of the option for the field at this offset, if it was given, or NULL. */
const char *cli_given(const cli_line *line, size_t at);

/* The command with this name in a table that ends with NULL; NULL: none. */
const cli_verb *cli_find(const cli_verb *const *commands, const char *name);

/* Print the help of a command to stdout; all: every option of a command that has headings. */
void cli_help(const cli_verb *verb, bool all);

/*
 * Print a script to stdout that makes a shell ("bash", "zsh", "fish") complete the options, values
 * and operands of a program and of its drop-ins.
 *
 * program   the program that takes a command as its first argument; NULL: each command (the table
 *           ends with NULL) is a program
 *
 * Errors   CKPT_EUSAGE: another shell
 */
int cli_complete(const char *shell, const char *program, const cli_verb *const *commands,
                 ckpt_err *err);
#define CLI_SHELLS "bash|zsh|fish"

#endif
