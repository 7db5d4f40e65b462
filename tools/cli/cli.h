/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h: command lines.  One table of options per verb drives parsing, usage and help.
 *
 * Long options take '-' and '_' alike.  Values go straight into cli_args, where most fields are the
 * library's own option structs, so that a verb hands them on as they are.
 */
#ifndef TOOLS_CLI_H
#define TOOLS_CLI_H

#include "ckpt.h"
#include "tools/cli/out.h"

/* Strings given one by one; at is NULL-terminated, or NULL when none was given. */
typedef struct cli_list {
    const char **at;
    size_t n;
} cli_list;

struct cli_verb;

typedef struct cli_args {
    const struct cli_verb *verb;
    const struct cli_verb *const *commands; /* all there are: verbs, then drop-ins, then NULL */
    char *const *operand; /* what is not an option, in order; verb->min..max of them */
    int n_operands;

    bool help, version, json, quiet, no_sandbox;
    bool all, details, exact;             /* ls, info, doctor */
    bool whole, raw, stats, no_crc;       /* cat */
    bool dry_run, as_file, no_side_files; /* convert */
    bool ignore_dtype;                    /* diff */
    bool deep, fix_latest;                /* doctor */
    bool debug, safe;                     /* drop-ins */
    bool keep_temp, no_strict, inject;    /* ds_to_universal */
    unsigned n_extract, n_merge;
    const char *input, *output;
    bool join;                       /* reshard */
    const char *rename, *range;      /* convert; cat */
    const char *slice_rules, *order; /* files; the first of all that open checkpoints */
    bool strict, allow_overflow;     /* warnings are errors; values may be lost */
    unsigned depth;                  /* tree */
    uint64_t max_items;              /* tree */
    uint64_t params, largest, gpus, nodes, stage; /* mem */
    double tolerance;                             /* diff */
    cli_list include, exclude;

    ckpt_open_opts open;
    ckpt_target target;
    ckpt_run_opts run;

    char *rules_text; /* what --slice-rules names; freed by cli_free */
    uint64_t given;   /* bit i: the verb's i-th option stands on the command line */
    char *order_text; /* what --order names; freed by training_free */
    char **owned;     /* rewritten copies of argv; freed by cli_free */
    const char **lists;
} cli_args;

/* The option of every command that reads what somebody else wrote. */
#define CLI_NO_SANDBOX                                                                             \
    {                                                                                              \
        "no-sandbox", 0, CLI_FLAG, offsetof(cli_args, no_sandbox), NULL,                           \
            "keep all rights while reading: see ckpt(1)"                                           \
    }

typedef enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_FILE,    /* const char *: a file that is read */
    CLI_SOURCE,  /* const char *: a checkpoint that is read */
    CLI_OUTPUT,  /* const char *: a folder that is made beside others */
    CLI_LIST,    /* cli_list; may be given again */
    CLI_SIZE,    /* uint64_t: a size word */
    CLI_COUNT,   /* unsigned, at least 1 */
    CLI_COUNT64, /* uint64_t, at least 1 */
    CLI_MANY,    /* uint64_t, at least 1: a count that may end in K, M, B or T */
    CLI_NUMBER,  /* double, not negative */
    CLI_DTYPE,   /* ckpt_dtype */
    CLI_FORMAT   /* const char *: a format that is written; help lists them */
} cli_kind;

typedef struct cli_option {
    const char *name; /* long form, words joined by '-' (drop-ins: '_', as their users know them) */
    char letter;      /* short form, or 0 */
    cli_kind kind;
    size_t at;         /* offset in cli_args */
    const char *value; /* name of the value in help texts */
    const char *help;
} cli_option;

/*
 * An option that has no effect beside another one, or without it: one of the two names is NULL.
 * Options that only allow something, or set a limit, and demands that the other one meets, are not
 * meant (effects.h).
 */
typedef struct cli_moot {
    const char *option, *with, *without;
} cli_moot;

/* One command: a verb of ckpt, or a drop-in. */
typedef struct cli_verb {
    const char *name;
    const char *command;  /* as users type it: "ckpt ls" */
    const char *operands; /* "PATH [SUBPATH]" */
    const char *summary;
    const cli_option *options; /* ends with a NULL name; --help and --version need no entry */
    const cli_moot *moot;      /* ends with a NULL option, or NULL */
    int min, max;              /* operands */
    /*
     * A letter for each operand, for the sandbox: 'r' a checkpoint that is read, 'e' a folder in
     * which files are replaced or removed, 'l' the same with --fix-latest, 'o' an output (file or
     * folder, by format or suffix), 'd' an output folder, '-' no path.  NULL: no path at all.
     */
    const char *uses;
    int (*run)(cli_args *a, ckpt_err *err);
    bool compat; /* a drop-in: a program of its own too */
} cli_verb;

/*
 * Fill a zeroed a from the command line; argv[0] is skipped.  Shard size and memory get their
 * defaults.
 *
 * Errors   CKPT_EUSAGE with a text; CKPT_ELIMIT
 */
int cli_parse(cli_args *a, const cli_verb *verb, int argc, char **argv, ckpt_err *err);
void cli_free(cli_args *a);

/* An option of this name was given. */
bool cli_has(const cli_args *a, const char *name);

/*
 * The name of the option that sets the field at this offset of cli_args, if it was given, or NULL.
 */
const char *cli_given(const cli_args *a, size_t at);

/* Print the help of a verb to stdout. */
void cli_help(const cli_verb *verb);

/* The command of this name in a table that ends with NULL; NULL when there is none. */
const cli_verb *cli_find(const cli_verb *const *commands, const char *name);

/* A decimal number without sign or blanks; false when it is none or does not fit. */
bool cli_uint(uint64_t *out, const char *text, size_t n);

/* The text of a file that an option names, terminated; the caller frees it.  what: "the order". */
int cli_file(char **out, const char *path, const char *what, ckpt_err *err);

/* Open the first operand as --tag, --slice-rules and the others say. */
int cli_open(ckpt_map **out, cli_args *a, ckpt_err *err);

/* Read the file that --slice-rules names, for all that is opened with a->open. */
int cli_rules(cli_args *a, ckpt_err *err);

/* The filter that --include, --exclude and --rename make; true when they ask for anything. */
bool cli_filter(ckpt_filter *out, const cli_args *a);

/* A target that is a folder, not one file. */
bool cli_into_folder(const ckpt_target *target);

#endif
