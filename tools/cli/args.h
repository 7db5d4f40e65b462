/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.h: declares the fields that the option tables of several commands fill.
 *
 * Most fields are the library's own option structs, so a verb can pass them on unchanged.  A
 * command with options of its own has a struct that begins with these fields (cli_verb.room).
 */
#ifndef TOOLS_ARGS_H
#define TOOLS_ARGS_H

#include "tools/cli/maps.h"
#include "tools/cli/out.h"
#include "tools/cli/table.h"

typedef struct cli_args {
    const cli_verb *const *commands; /* all commands: verbs, then drop-ins, then NULL */
    cli_line line;
    char *const *operand; /* operands of the command line, or those that ds_to_universal sets */
    int n_operands;

    bool json, quiet, no_sandbox, local, local_target;
    const char *hostfile; /* file with the hosts of the ranks of the output */
    bool dry_run, skip_side_files;
    bool join;          /* reshard */
    const char *rename; /* convert */
    const char *slice_rules,
        *order; /* file names; all commands that open checkpoints have --slice-rules */
    bool strict, allow_overflow; /* --strict: warnings are errors; --allow-overflow */
    const char *map, *config;    /* convert: a layout map, and the model's config.json */
    const char *hub_layout;      /* convert: --layout; for training state, moved to target.layout */
    const char *own_map;         /* convert: `map` if it is the default map, not the user's */
    bool backwards;
    cli_list include, exclude, sizes;
    ckpt_dtype moments; /* --moments: output dtype of bitsandbytes' moments; NONE: unchanged */
    bool keep_names;    /* keep the source's names and wrappers' prefixes */

    ckpt_open_opts open;
    ckpt_target target;
    ckpt_run_opts run;

    char *rules_text;         /* contents of --slice-rules; freed by args_free */
    char *order_text;         /* contents of --order; freed by training_free */
    cli_maps maps;            /* the map of --map, or all maps; freed by args_free */
    char *config_text;        /* contents of --config; freed by args_free */
    const char *model_folder; /* the folder of --config, or NULL */
} cli_args;

/* The option of commands that several processes run together (ckpt-mpi(7)). */
#define CLI_LOCAL                                                                                  \
    {                                                                                              \
        "local", 0, CLI_FLAG, offsetof(cli_args, local), NULL,                                     \
            "under mpirun: read inputs from each machine's own disk"                               \
    }

/* The options of commands that may write to local disks of several machines. */
#define CLI_SPREAD                                                                                 \
    {"local-target", 0,                                                                            \
     CLI_FLAG,       offsetof(cli_args, local_target),                                             \
     NULL,           "under mpirun: write each machine its ranks' files"},                         \
    {                                                                                              \
        "hostfile", 0, CLI_FILE, offsetof(cli_args, hostfile), "FILE",                             \
            "with --local-target: assign ranks to hosts ('host slots=N')"                          \
    }

/* Values of --layout: for weights, then for dcp. */
#define CLI_LAYOUTS "hub|native|torch|torchtitan|accelerate"

/* The option of every command that reads files of others. */
#define CLI_NO_SANDBOX                                                                             \
    {                                                                                              \
        "no-sandbox", 0, CLI_FLAG, offsetof(cli_args, no_sandbox), NULL,                           \
            "read without the sandbox, see ckpt(1)"                                                \
    }

/*
 * Fill args from the command line of a verb; they must be zeroed except for commands.  argv[0] is
 * skipped.  Shard size and memory get their defaults; args_rules reads the file of --slice-rules
 * later.
 *
 * Errors   CKPT_EUSAGE with a text; CKPT_ELIMIT
 */
int args_parse(cli_args *a, const cli_verb *verb, int argc, char **argv, ckpt_err *err);
void args_free(cli_args *a);

/* True with --layout native: the output keeps the names, experts and heads of training. */
bool args_native(const cli_args *a);

/* Open the first operand with --tag, --slice-rules and the other options. */
int args_open(ckpt_map **out, cli_args *a, ckpt_err *err);

/*
 * Read the files of options before the sandbox hides them: the slice rules for a->open, layout
 * maps, and the model's configuration.
 */
int args_rules(cli_args *a, ckpt_err *err);

/* Make a filter from --include, --exclude and --rename; false: none of them was given. */
bool args_filter(ckpt_filter *out, const cli_args *a);

/*
 * Reduce a map to the model, with the model's names (or its present names if `names` is false).
 *
 * others  keep the tensors that a program saved beside the model
 */
int args_model(ckpt_map *map, const cli_args *a, bool names, bool others, ckpt_err *err);

/* True if the target is a folder, not one file. */
bool args_into_folder(const ckpt_target *target);

/* True if this command line writes its output to stdout. */
bool args_to_stdout(const cli_args *a);

#endif
