/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h: command lines by table.  One table of options per command drives parsing, --help and
 * completion: of the verbs of ckpt, of the drop-ins, and of zerotrain.
 *
 *     words.c     numbers, sizes, dtypes: a word to a field
 *     parse.c     a command line to fields
 *     help.c      the text of --help
 *     complete.c  completion for shells
 *     args.h      the fields of ckpt's commands
 *
 * Long options take '-' and '_' alike.
 */
#ifndef TOOLS_TABLE_H
#define TOOLS_TABLE_H

#include "ckpt.h"

/* Strings given one by one; at is NULL-terminated, or NULL when none was given. */
typedef struct cli_list {
    const char **at;
    size_t n;
} cli_list;

typedef enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_FILE,    /* const char *: a file that is read */
    CLI_SOURCE,  /* const char *: a checkpoint that is read */
    CLI_OUTPUT,  /* const char *: a folder that is made beside others */
    CLI_RESULT,  /* const char *: what gets its name when it is complete: never "-" */
    CLI_MORE,    /* a file of further options: the command's `more` reads it */
    CLI_LIST,    /* cli_list; may be given again */
    CLI_SOURCES, /* the same, of checkpoints that are read: "PATH" or "PATH:WEIGHT" */
    CLI_SIZE,    /* uint64_t: a size word */
    CLI_COUNT,   /* unsigned, at least 1 */
    CLI_COUNT64, /* uint64_t, at least 1 */
    CLI_MANY,    /* uint64_t, at least 1: a count that may end in K, M, B or T */
    CLI_WHOLE,   /* int64_t, not negative */
    CLI_INTEGER, /* int64_t */
    CLI_NUMBER,  /* double, not negative */
    CLI_REAL,    /* double */
    CLI_DTYPE,   /* ckpt_dtype */
    CLI_DTYPES,  /* const char *: a dtype, or DTYPE:GLOB,DTYPE:GLOB ... */
    CLI_FORMAT,  /* const char *: a format, by its own name where it has several */
    CLI_STATE    /* the same: one that training state is written in */
} cli_kind;

typedef struct cli_option {
    const char *name; /* long form, words joined by '-' (drop-ins: '_', as their users know them) */
    char letter;      /* short form, or 0 */
    cli_kind kind;
    size_t at; /* offset in the command's fields */
    /* name of the value in help texts; "a|b|c": one of these, which completion offers */
    const char *value;
    const char *help;
} cli_option;

/* The end of a table of options. */
#define CLI_END                                                                                    \
    {                                                                                              \
        NULL, 0, CLI_FLAG, 0, NULL, NULL                                                           \
    }

/*
 * An option that has no effect beside another one, or without it: one of the two names is NULL.
 * Options that only allow something, or set a limit, and demands that the other one meets, are not
 * meant (effects.h).
 */
typedef struct cli_moot {
    const char *option, *with, *without;
} cli_moot;

/*
 * A heading of a long help text and the names of its options, divided by spaces.  The first heading
 * of a command has the options that most users need: --help shows these alone.
 */
typedef struct cli_heading {
    const char *title, *options;
} cli_heading;

struct cli_args;
struct cli_line;

/* One command: a verb of ckpt, a drop-in, zerotrain. */
typedef struct cli_verb {
    const char *name;
    const char *command;  /* as users type it: "ckpt ls" */
    const char *operands; /* "PATH [SUBPATH]"; "a|b|c": one of these, which completion offers */
    const char *summary;
    const char *notes;           /* after the options in help texts, or NULL */
    const cli_option *options;   /* ends with CLI_END; --help and --version need no entry */
    const cli_moot *moot;        /* ends with a NULL option, or NULL */
    const cli_heading *headings; /* ends with a NULL title; NULL: --help shows all options */
    int min, max;                /* operands */
    /*
     * A letter for each operand, for the sandbox and completion: 'r' a checkpoint that is read,
     * 'e' a folder in which files are replaced or removed, 'l' the same with --fix-latest, 'o' an
     * output (file or folder, by format or suffix), 'd' an output folder, 'm' a folder that is
     * mounted on (nothing in it is read or written); no paths: 't' a tensor
     * of the first operand, 'v' a command, '-' anything; 'w' for all operands: checkpoints that are
     * read, each with ":WEIGHT" behind it or not; 'R' for all: checkpoints that are read.  NULL: no
     * path at all.
     */
    const char *uses;
    int (*run)(struct cli_args *a, ckpt_err *err);
    /* What needs rights that `run` has no more, or NULL. */
    int (*before)(struct cli_args *a, ckpt_err *err);
    /* Take the options that a file holds (CLI_MORE), each by cli_take; NULL: there is none such. */
    int (*more)(struct cli_line *line, const char *path, ckpt_err *err);
    bool streams;     /* an output named "-" is standard output */
    bool lists_maps;  /* layout maps are read before it runs */
    bool takes_files; /* `run` is handed descriptors by another process */
    bool compat;      /* a program of its own; a verb of ckpt too */
    bool whole_names; /* beginnings of long options are not enough */
} cli_verb;

enum { CLI_MAX_OPTIONS = 128, CLI_MAX_LISTS = 6 };

/* A command line, parsed; zeroed before cli_parse. */
typedef struct cli_line {
    const cli_verb *verb;
    void *values;         /* the command's fields */
    char *const *operand; /* what is not an option, in order; verb->min..max of them */
    int n_operands;
    bool help, version;
    bool help_all;               /* --help=all: the options of every heading */
    bool given[CLI_MAX_OPTIONS]; /* by the verb's own table of options */
    int argc;
    char **owned; /* rewritten copies of argv */
    const char **lists[CLI_MAX_LISTS];
} cli_line;

/*
 * Fill the fields at values from the command line; argv[0] is skipped.  Texts belong to the line.
 *
 * Errors   CKPT_EUSAGE with a text; CKPT_ELIMIT
 */
int cli_parse(cli_line *line, const cli_verb *verb, void *values, int argc, char **argv,
              ckpt_err *err);
void cli_free(cli_line *line);

/* Store one value, as if "--name=word" stood on the command line.  word must outlive the fields. */
int cli_take(cli_line *line, const cli_option *o, const char *word, ckpt_err *err);

/* The i-th option of a verb, its own first, then those that all have; NULL past the end. */
const cli_option *cli_option_at(const cli_verb *verb, size_t i);

/* The verb's own option of this name, '-' and '_' alike; NULL: there is none. */
const cli_option *cli_option_named(const cli_verb *verb, const char *name);

enum { CLI_HELP_ROOM = 160 };

/* "torch, safetensors or hf": the formats that are written and can all of this (CKPT_TAKES_LIMIT
 * ...); returns text. */
const char *cli_formats(char text[CLI_HELP_ROOM], unsigned caps);

/* What of a format an option's value must have: CKPT_CAN_WRITE and the like; 0: it is no format. */
unsigned cli_format_caps(cli_kind kind);

/* What an option's help says; room is for a text made from the library's table of formats. */
const char *cli_option_help(const cli_option *o, char room[CLI_HELP_ROOM]);

/* An option of this name was given. */
bool cli_has(const cli_line *line, const char *name);

/* The name of the option that sets the field at this offset, if it was given, or NULL. */
const char *cli_given(const cli_line *line, size_t at);

/* The command of this name in a table that ends with NULL; NULL when there is none. */
const cli_verb *cli_find(const cli_verb *const *commands, const char *name);

/* Print the help of a command to stdout; all: every option of a command that has headings. */
void cli_help(const cli_verb *verb, bool all);

/*
 * Print to stdout what makes a shell ("bash", "zsh", "fish") complete the options, values and
 * operands of a program and of its drop-ins.
 *
 * program   whose first argument is one of the commands, which end with NULL; NULL: the commands
 *           are programs, all of them
 *
 * Errors   CKPT_EUSAGE: another shell
 */
int cli_complete(const char *shell, const char *program, const cli_verb *const *commands,
                 ckpt_err *err);
#define CLI_SHELLS "bash|zsh|fish"

#endif
