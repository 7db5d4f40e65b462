/* SPDX-License-Identifier: Apache-2.0 */
/* write_args.c: fills the fields of commands that write checkpoints: defaults, files of options. */
#include "tools/cli/write_args.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/out.h"
#include "tools/cli/table.h"
#include "tools/cli/text.h"

/* The default that help texts and plans mention. */
#define WRITE_SHARD_BYTES UINT64_C(5000000000)

int write_config(write_args *a, ckpt_err *err)
{
    char path[PATH_MAX];
    struct stat st;

    if (stat(a->config, &st) != 0 || !S_ISDIR(st.st_mode))
        return text_read(&a->config_text, a->config, "a config.json", err);
    a->cli.model_folder = a->config;
    if (snprintf(path, sizeof path, "%s/config.json", a->config) >= (int)sizeof path ||
        access(path, R_OK) != 0)
        return fail(err, CKPT_EMISSING, "--config: %s has no config.json", a->config);
    return CKPT_OK;
}

/* Check --layout, and give it to the target if that has layouts of its own, or training state. */
static int write_layout(write_args *a, ckpt_err *err)
{
    unsigned own = CKPT_WRITES_STATE | CKPT_TAKES_LAYOUT;

    if (a->hub_layout && (ckpt_format_caps(a->target.format) & own)) {
        a->target.layout = a->hub_layout;
        a->hub_layout = NULL;
    }
    if (a->hub_layout && strcmp(a->hub_layout, "hub") != 0 && !write_native(a))
        return fail(err, CKPT_EUSAGE, "--layout: expected hub or native, found '%s'",
                    a->hub_layout);
    return CKPT_OK;
}

/* Read the map of --map, or choose the target's default map and read all maps. */
static int write_maps(write_args *a, ckpt_err *err)
{
    const cli_args *cli = &a->cli;
    // a run's folder has no suffix that names a format
    const char *outputs = a->target.format ? "omd" : "om";

    if (!a->map && !write_native(a) && cli->n_operands == 2 &&
        strpbrk(cli->line.verb->uses, outputs))
        a->map = a->own_map = maps_default(a->target.format, cli->operand[1]);
    if (a->map && strcmp(a->map, "none") == 0)
        a->map = NULL;
    if (!a->map)
        return CKPT_OK;
    int rc = maps_read(&a->maps, a->own_map ? NULL : a->map, err);
    if (rc == CKPT_EMISSING && a->own_map && strcmp(a->own_map, "hf") == 0) {
        // without installed maps, tensors keep their names
        a->map = a->own_map = NULL;
        *err = (ckpt_err){0};
        rc = CKPT_OK;
    }
    return rc;
}

/* Make options for sizes of layout maps members of the list of --size. */
static int write_sizes(write_args *a, ckpt_err *err)
{
    int rc = CKPT_OK;

    (void)snprintf(a->unit_text, sizeof a->unit_text, "make_vocab_size_divisible_by=%" PRIu32,
                   a->vocab_unit);
    (void)snprintf(a->parallel_text, sizeof a->parallel_text, "tensor_model_parallel_size=%" PRIu32,
                   a->tensor_parallel);
    if (a->vocab_unit > 0)
        rc = cli_add(&a->cli.line, &a->sizes, a->unit_text, err);
    if (rc == CKPT_OK && a->tensor_parallel > 0)
        rc = cli_add(&a->cli.line, &a->sizes, a->parallel_text, err);
    return rc;
}

int write_read(cli_args *cli, ckpt_err *err)
{
    write_args *a = (write_args *)cli;
    int rc;

    if (!cli_given(&cli->line, offsetof(write_args, target.max_shard_size)))
        a->target.max_shard_size = WRITE_SHARD_BYTES;
    if (ckpt_format_caps(a->target.format) & CKPT_TAKES_GRID)
        a->target.tp_size = a->tensor_parallel;
    rc = write_layout(a, err);
    if (rc == CKPT_OK)
        rc = write_sizes(a, err);
    if (rc == CKPT_OK)
        rc = write_maps(a, err);
    return rc == CKPT_OK && a->config ? write_config(a, err) : rc;
}

void write_release(cli_args *cli)
{
    write_args *a = (write_args *)cli;

    maps_free(&a->maps);
    free(a->config_text);
    a->config_text = NULL;
}

const ckpt_target *write_target(const cli_args *a)
{
    return a->line.verb->writes ? &((const write_args *)a)->target : NULL;
}

bool write_into_folder(const ckpt_target *target)
{
    return ckpt_format_caps(target->format) & CKPT_IS_FOLDER;
}

bool write_native(const write_args *a)
{
    return a->hub_layout && strcmp(a->hub_layout, "native") == 0;
}

int write_model(ckpt_map *map, const write_args *a, bool names, bool others, ckpt_err *err)
{
    const ckpt_model_opts opts = {.size = sizeof opts,
                                  .keep_names = a->cli.keep_names || !names,
                                  .run =
                                      (ckpt_format_caps(a->target.format) & CKPT_WRITES_STATE) != 0,
                                  .config_text = a->config_text,
                                  .config_name = a->config,
                                  .keep_others = others};

    return ckpt_map_keep_model(map, &opts, err);
}
