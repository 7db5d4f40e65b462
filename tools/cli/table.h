/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h: declares command lines by table.  One table of options per command controls parsing,
 * --help and completion, for the verbs of ckpt, the drop-ins, and zerotrain.
 *
 *     words.c     numbers, sizes, dtypes: a word to a field
 *     parse.c     a command line to fields
 *     help.c      the text of --help
 *     complete.c  completion for shells
 *     args.h      the fields that ckpt's commands share
 *     write_args.h  those of the commands that write checkpoints
 *
 * Long options accept '-' and '_' alike.
 */
#ifndef TOOLS_TABLE_H
#define TOOLS_TABLE_H

#include "ckpt.h"

/* Values of a repeatable option; at is NULL-terminated, or NULL if none was given. */
typedef struct cli_list {
    const char **at;
    size_t n;
} cli_list;

typedef enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_FILE,    /* const char *: an input file */
    CLI_SOURCE,  /* const char *: an input checkpoint */
    CLI_OUTPUT,  /* const char *: an output file or folder */
    CLI_RESULT,  /* const char *: an output that gets its name when it is complete; never "-" */
    CLI_MORE,    /* a file of further options, read by the command's `more` */
    CLI_LIST,    /* cli_list; repeatable */
    CLI_SOURCES, /* CLI_LIST of input checkpoints: "PATH" or "PATH:WEIGHT" */
    CLI_SIZE,    /* uint64_t: a size word */
    CLI_COUNT,   /* unsigned, at least 1 */
    CLI_COUNT64, /* uint64_t, at least 1 */
    CLI_MANY,    /* uint64_t, at least 1: a count, with K, M, B or T */
    CLI_WHOLE,   /* int64_t, not negative */
    CLI_INTEGER, /* int64_t */
    CLI_NUMBER,  /* double, not negative */
    CLI_REAL,    /* double */
    CLI_DTYPE,   /* ckpt_dtype */
    CLI_DTYPES,  /* const char *: a dtype, or DTYPE:GLOB,DTYPE:GLOB ... */
    CLI_FORMAT,  /* const char *: a format, replaced by its main name */
    CLI_STATE    /* CLI_FORMAT that training state can be written in */
} cli_kind;

typedef struct cli_option {
    const char *name; /* long form, words joined by '-' (drop-ins: '_', as in the scripts) */
    char letter;      /* short form, or 0 */
    cli_kind kind;
    size_t at; /* offset in the command's fields */
    /* name of the value in help texts; "a|b|c": the allowed values, which completion offers */
    const char *value;
    const char *help;
} cli_option;

/* Ends a table of options. */
#define CLI_END                                                                                    \
    {                                                                                              \
        NULL, 0, CLI_FLAG, 0, NULL, NULL                                                           \
    }

/*
 * An option that has no effect together with another one, or without it; one of the two names is
 * NULL.  Not for options that only permit something, set a limit, or require a condition that the
 * other option meets (effects.h).
 */
typedef struct cli_moot {
    const char *option, *with, *without;
} cli_moot;

/*
 * A heading of a long help text, and the names of its options, separated by spaces.  The first
 * heading has the options that most users need; --help shows only these.
 */
typedef struct cli_heading {
    const char *title, *options;
} cli_heading;

struct cli_args;
struct cli_line;

/* A command: a verb of ckpt, a drop-in, or zerotrain. */
typedef struct cli_verb {
    const char *name;
    const char *command;  /* as users type it: "ckpt ls" */
    const char *operands; /* "PATH [SUBPATH]"; "a|b|c": the allowed values, for completion */
    const char *summary;
    const char *notes;           /* help text after the options, or NULL */
    const cli_option *options;   /* ends with CLI_END; without --help and --version */
    const cli_moot *moot;        /* ends with a NULL option; or NULL */
    const cli_heading *headings; /* ends with a NULL title; NULL: --help shows all options */
    int min, max;                /* operands */
    /*
     * A letter for each operand, for sandbox and completion. 'r': input checkpoint; 'e': folder in
     * which files are replaced or removed; 'l': the same with --fix-latest; 'o': output (file or
     * folder, by format or suffix); 'd': output folder; 'm': mount point (nothing in it is read or
     * written).  Operands that are not paths: 't': tensor of the first operand; 'v': command; '-':
     * other.  For all operands: 'w': input checkpoints, with or without ":WEIGHT"; 'R': input
     * checkpoints.  NULL: no operand is a path.
     */
    const char *uses;
    int (*run)(struct cli_args *a, ckpt_err *err);
    /*
     * Bytes of the command's own struct of fields, which begins with cli_args; 0: it has cli_args
     * alone.  The program allocates it, zeroed.
     */
    size_t room;
    /* Reads the files of the command's own options before the sandbox hides them; or NULL. */
    int (*read)(struct cli_args *a, ckpt_err *err);
    /* Frees what `read` allocated; also called if `read` failed or was not called.  NULL: none. */
    void (*release)(struct cli_args *a);
    /* Calls fn for the checkpoints that the files of options name, until it returns non-zero. */
    int (*inputs)(const struct cli_args *a, int (*fn)(void *ctx, const char *path), void *ctx);
    /*
     * Runs before the sandbox, for steps that need privileges which `run` does not have; or NULL.
     */
    int (*before)(struct cli_args *a, ckpt_err *err);
    /* Store the options of a file (CLI_MORE), each by cli_take; NULL: the command has none. */
    int (*more)(struct cli_line *line, const char *path, ckpt_err *err);
    bool writes;      /* the command's own struct begins with write_args, not only cli_args */
    bool streams;     /* an output named "-" is stdout */
    bool takes_files; /* `run` receives descriptors from another process */
    bool compat;      /* a program of its own, and a verb of ckpt too */
    bool whole_names; /* prefixes of long options are not accepted */
} cli_verb;

enum { CLI_MAX_OPTIONS = 128, CLI_MAX_LISTS = 6 };

/* A parsed command line; zero it before cli_parse. */
typedef struct cli_line {
    const cli_verb *verb;
    void *values;         /* the command's fields */
    char *const *operand; /* operands in order; between verb->min and verb->max of them */
    int n_operands;
    bool help, version;
    bool help_all;               /* --help=all: options of all headings */
    bool given[CLI_MAX_OPTIONS]; /* indexed by the verb's own table of options */
    int argc;
    char **owned; /* rewritten copies of argv */
    const char **lists[CLI_MAX_LISTS];
} cli_line;

/*
 * Fill the fields at values from the command line; argv[0] is skipped.  The line owns the texts.
 *
 * Errors   CKPT_EUSAGE with a text; CKPT_ELIMIT
 */
int cli_parse(cli_line *line, const cli_verb *verb, void *values, int argc, char **argv,
              ckpt_err *err);
void cli_free(cli_line *line);

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
