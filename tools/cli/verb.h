/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb.h: defines a command and its options as tables, and what a command line becomes.
 *
 * Most fields of cli_args are the library's own option structs, so a verb can pass them on
 * unchanged.  A command with further options has a struct that begins with these fields
 * (cli_verb.room); for commands that write checkpoints, it begins with write_args.
 */
#ifndef TOOLS_VERB_H
#define TOOLS_VERB_H

#include "ckpt_extra.h"

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

typedef struct cli_args cli_args;
typedef struct cli_line cli_line;

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
    int (*run)(cli_args *a, ckpt_err *err);
    /*
     * Bytes of the command's own struct of fields, which begins with cli_args; 0: it has cli_args
     * alone.  The program allocates it, zeroed.
     */
    size_t room;
    /* Reads the files of the command's own options before the sandbox hides them; or NULL. */
    int (*read)(cli_args *a, ckpt_err *err);
    /* Frees what `read` allocated; also called if `read` failed or was not called.  NULL: none. */
    void (*release)(cli_args *a);
    /* Calls fn for the checkpoints that the files of options name, until it returns non-zero. */
    int (*inputs)(const cli_args *a, int (*fn)(void *ctx, const char *path), void *ctx);
    /*
     * Runs before the sandbox, for steps that need privileges which `run` does not have; or NULL.
     */
    int (*before)(cli_args *a, ckpt_err *err);
    /* Store the options of a file (CLI_MORE), each by cli_take; NULL: the command has none. */
    int (*more)(cli_line *line, const char *path, ckpt_err *err);
    bool writes;      /* the command's own struct begins with write_args, not only cli_args */
    bool streams;     /* an output named "-" is stdout */
    bool takes_files; /* `run` receives descriptors from another process */
    bool compat;      /* a program of its own, and a verb of ckpt too */
    bool whole_names; /* prefixes of long options are not accepted */
} cli_verb;

enum { CLI_MAX_OPTIONS = 128, CLI_MAX_LISTS = 8 };

/* A parsed command line; zero it before cli_parse. */
struct cli_line {
    const cli_verb *verb;
    void *values;         /* the command's fields */
    char *const *operand; /* operands in order; between verb->min and verb->max of them */
    int n_operands;
    bool help, version;
    bool help_all;               /* --help=all: options of all headings */
    bool given[CLI_MAX_OPTIONS]; /* indexed by the verb's own table of options */
    /* its value as it was written, if it has one; of a list the last */
    const char *said[CLI_MAX_OPTIONS];
    int argc;
    char **owned; /* rewritten copies of argv */
    const char **lists[CLI_MAX_LISTS];
};

/* The fields that the option tables of all kinds of commands fill. */
struct cli_args {
    const cli_verb *const *commands; /* all commands: verbs, then drop-ins, then NULL */
    cli_line line;
    char *const *operand; /* operands of the command line, or those that ds_to_universal sets */
    int n_operands;

    bool json, quiet, no_sandbox, local, local_target;
    const char *hostfile; /* file with the hosts of the ranks of the output */
    bool dry_run;
    bool strict;     /* warnings are errors */
    bool keep_names; /* keep the source's names and wrappers' prefixes */
    const char *slice_rules;
    cli_list include, exclude;

    ckpt_open_opts open;
    ckpt_run_opts run;

    char *rules_text;         /* contents of --slice-rules; freed by args_free */
    const char *model_folder; /* the folder of --config, or NULL */
};

#endif
