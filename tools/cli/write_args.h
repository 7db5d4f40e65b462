/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_args.h: declares the fields of commands that write a checkpoint, or show one in another
 * format: convert, mount, merge, reshard and the drop-ins.
 *
 * The struct of such a command begins with these fields, and these begin with cli_args.
 */
#ifndef TOOLS_WRITE_ARGS_H
#define TOOLS_WRITE_ARGS_H

#include "tools/cli/args.h"
#include "tools/cli/maps.h"

typedef struct write_args {
    cli_args cli; /* first: the parser fills the whole */
    ckpt_target target;
    bool skip_side_files, allow_overflow;
    bool manifest;       /* write a manifest of the output */
    bool join;           /* join the slices of model-parallel ranks in training state, too */
    ckpt_dtype moments;  /* --moments: output dtype of bitsandbytes' moments; NONE: unchanged */
    const char *rename;  /* a file of rules */
    const char *order;   /* a file of parameter names, or "stored" */
    const char *map;     /* the layout map to apply */
    const char *own_map; /* `map` if it is the default map, not the user's */
    bool backwards;      /* apply the map of a file from right to left */
    cli_list sizes;
    const char *config;     /* the model's config.json, or its folder */
    const char *attest;     /* the statement to write */
    const char *hub_layout; /* --layout; moved to target.layout if the format has layouts */
    /* sizes of layout maps with options of their own; 0: not given */
    uint32_t vocab_unit, tensor_parallel;
    char unit_text[64], parallel_text[64]; /* the same as members of `sizes` */

    cli_maps maps;     /* the map of --map, or all maps */
    char *config_text; /* contents of --config */
    char *order_text;  /* contents of --order; freed by training_free */
} write_args;

/* Values of --layout: for weights, then for dcp, then for megatron-legacy. */
#define CLI_LAYOUTS "hub|native|torch|torchtitan|accelerate|transformer_engine|local"

/*
 * Set the default shard size, and read the files of options: layout maps and the model's
 * configuration.  This is cli_verb.read of these commands.
 */
int write_read(cli_args *cli, ckpt_err *err);

/* Read --config: a config.json, or a model folder with its tokenizer and other files. */
int write_config(write_args *a, ckpt_err *err);

/* Free the memory of write_read and write_config. */
void write_release(cli_args *cli);

/* Members of the cli_verb of a command whose struct begins with write_args. */
#define WRITE_HOOKS .writes = true, .read = write_read, .release = write_release

/* The target of a command that writes a checkpoint; NULL for other commands. */
const ckpt_target *write_target(const cli_args *a);

/* True if the target is a folder, not one file. */
bool write_into_folder(const ckpt_target *target);

/* True with --layout native: the output keeps the names, experts and heads of training. */
bool write_native(const write_args *a);

/*
 * Reduce a map to the model, with the model's names (or its present names if `names` is false).
 *
 * others  keep the tensors that a program saved beside the model
 */
int write_model(ckpt_map *map, const write_args *a, bool names, bool others, ckpt_err *err);

#endif
