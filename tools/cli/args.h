/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.h: what the commands of ckpt are told: the fields that their tables of options fill.
 *
 * Most fields are the library's own option structs, so that a verb hands them on as they are.
 */
#ifndef TOOLS_ARGS_H
#define TOOLS_ARGS_H

#include "tools/cli/maps.h"
#include "tools/cli/out.h"
#include "tools/cli/table.h"

typedef struct cli_args {
    const cli_verb *const *commands; /* all there are: verbs, then drop-ins, then NULL */
    cli_line line;
    char *const *operand; /* the line's; ds_to_universal has its own */
    int n_operands;

    bool json, quiet, no_sandbox, local, local_target;
    const char *hostfile;                 /* where the ranks of what is written are */
    bool all, details, exact;             /* ls, info, doctor */
    bool whole, raw, stats, no_crc;       /* cat */
    bool dry_run, as_file, no_side_files; /* convert */
    bool ignore_dtype;                    /* diff */
    const char *tag_a, *tag_b;            /* diff */
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
    uint64_t accumulation, micro_batch, tokens;   /* mem */
    uint64_t layers, hidden, heads;               /* mem */
    uint64_t tensor, pipeline, interleave;        /* mem */
    bool sequence, flash;                         /* mem */
    double link, node_link;                       /* mem: GB/s */
    ckpt_dtype train_dtype, comm_dtype;           /* mem */
    double tolerance;                             /* diff */
    const char *map, *config; /* convert: a layout map, and the model's config.json */
    const char *hub_layout;   /* convert: --layout; of training state it becomes target.layout */
    const char *own_map;      /* convert: map, where the target and not the user asks for it */
    bool backwards;
    cli_list include, exclude, sizes;
    bool keep_names; /* names and wrappers' prefixes stay as the source has them */
    const char *method, *base, *recipe; /* merge */
    unsigned last;
    double density, lambda, slerp_t;
    bool no_normalize;
    uint64_t seed;
    cli_list adapters;                         /* convert */
    bool untie, adapter_only;                  /* convert */
    const char *tie;                           /* convert */
    uint64_t vocab_size;                       /* convert */
    cli_list vocab_tensors;                    /* convert */
    const char *quantize;                      /* convert */
    cli_list quantize_skip;                    /* convert */
    const char *adapter_config, *adapter_name; /* convert */
    const char *picture, *metrics;             /* report */
    bool allow_other, daemon, check_first;     /* mount */
    const char *name;                          /* mount */
    struct mounter *mounter;                   /* mount: from its `before` on */

    ckpt_open_opts open;
    ckpt_target target;
    ckpt_run_opts run;

    char *rules_text;         /* what --slice-rules names; freed by args_free */
    char *order_text;         /* what --order names; freed by training_free */
    cli_maps maps;            /* what --map names, or all there are; freed by args_free */
    char *config_text;        /* of --config: freed by args_free */
    char *recipe_text;        /* of merge's --config: freed by args_free */
    const char *model_folder; /* the folder that --config names, or NULL */
} cli_args;

/* The option of commands that several processes carry out (ckpt-mpi(7)). */
#define CLI_LOCAL                                                                                  \
    {                                                                                              \
        "local", 0, CLI_FLAG, offsetof(cli_args, local), NULL,                                     \
            "under mpirun: read inputs from each machine's own disk"                               \
    }

/* Those of commands that write what several machines may get on disks of their own. */
#define CLI_SPREAD                                                                                 \
    {"local-target", 0,                                                                            \
     CLI_FLAG,       offsetof(cli_args, local_target),                                             \
     NULL,           "under mpirun: write each machine its ranks' files"},                         \
    {                                                                                              \
        "hostfile", 0, CLI_FILE, offsetof(cli_args, hostfile), "FILE",                             \
            "with --local-target: assign ranks to hosts ('host slots=N')"                          \
    }

/* What --layout takes: of weights, then of dcp. */
#define CLI_LAYOUTS "hub|native|torch|torchtitan|accelerate"

/* The option of every command that reads what somebody else wrote. */
#define CLI_NO_SANDBOX                                                                             \
    {                                                                                              \
        "no-sandbox", 0, CLI_FLAG, offsetof(cli_args, no_sandbox), NULL,                           \
            "read without the sandbox, see ckpt(1)"                                                \
    }

/*
 * Fill zeroed args (but for commands) from the command line of a verb; argv[0] is skipped.  Shard
 * size and memory get their defaults; the file of --slice-rules is not read yet (args_rules).
 *
 * Errors   CKPT_EUSAGE with a text; CKPT_ELIMIT
 */
int args_parse(cli_args *a, const cli_verb *verb, int argc, char **argv, ckpt_err *err);
void args_free(cli_args *a);

/* --layout native: what is written keeps the names, experts and heads of training. */
bool args_native(const cli_args *a);

/* Open the first operand as --tag, --slice-rules and the others say. */
int args_open(ckpt_map **out, cli_args *a, ckpt_err *err);

/*
 * Read the files that options name and that a sandbox would hide: the slice rules, for all that is
 * opened with a->open; layout maps and the configuration that goes with them.
 */
int args_rules(cli_args *a, ckpt_err *err);

/* The filter that --include, --exclude and --rename make; true when they ask for anything. */
bool args_filter(ckpt_filter *out, const cli_args *a);

/* The model alone of what was opened, under its names; `names` false: these stay. */
int args_model(ckpt_map *map, const cli_args *a, bool names, ckpt_err *err);

/* A target that is a folder, not one file. */
bool args_into_folder(const ckpt_target *target);

/* True if the output of this command line is standard output. */
bool args_to_stdout(const cli_args *a);

#endif
