/* SPDX-License-Identifier: Apache-2.0 */
/* args.c: fills the fields of ckpt's commands: defaults, files of options, the first operand. */
#include "tools/cli/args.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "tools/cli/out.h"
#include "tools/cli/text.h"

/* Defaults that help texts and plans mention. */
#define ARGS_SHARD_BYTES  UINT64_C(5000000000)
#define ARGS_MEMORY_BYTES (UINT64_C(256) << 20)

/* Read CKPT_CACHE from the environment: the treatment of pages in the page cache. */
static int args_cache(ckpt_cache *out, ckpt_err *err)
{
    const char *said = getenv("CKPT_CACHE");

    if (!said || !*said || strcmp(said, "auto") == 0)
        *out = CKPT_CACHE_AUTO;
    else if (strcmp(said, "keep") == 0)
        *out = CKPT_CACHE_KEEP;
    else if (strcmp(said, "let-go") == 0)
        *out = CKPT_CACHE_DROP;
    else
        return fail(err, CKPT_EUSAGE,
                    "CKPT_CACHE=%.100s in the environment: expected auto, keep or let-go", said);
    return CKPT_OK;
}

int args_parse(cli_args *a, const cli_verb *verb, int argc, char **argv, ckpt_err *err)
{
    a->target.max_shard_size = ARGS_SHARD_BYTES;
    a->run.memory = ARGS_MEMORY_BYTES;
    int rc = args_cache(&a->run.cache, err);
    if (rc == CKPT_OK)
        rc = cli_parse(&a->line, verb, a, argc, argv, err);
    a->operand = a->line.operand;
    a->n_operands = a->line.n_operands;
    return rc;
}

void args_free(cli_args *a)
{
    cli_free(&a->line);
    free(a->rules_text);
    a->rules_text = NULL;
    a->open.slice_rules = NULL;
    maps_free(&a->maps);
    free(a->config_text);
    a->config_text = NULL;
    if (a->line.verb && a->line.verb->release)
        a->line.verb->release(a);
}

int args_open(ckpt_map **out, cli_args *a, ckpt_err *err)
{
    int rc = ckpt_open(out, a->operand[0], &a->open, err);

    if (rc == CKPT_OK && a->model_folder)
        rc = ckpt_map_set_model_folder(*out, a->model_folder, err);
    return rc;
}

/* Read --config: a config.json, or a model folder with its tokenizer and other files. */
static int args_config(cli_args *a, ckpt_err *err)
{
    char path[PATH_MAX];
    struct stat st;

    if (stat(a->config, &st) != 0 || !S_ISDIR(st.st_mode))
        return text_read(&a->config_text, a->config, "a config.json", err);
    a->model_folder = a->config;
    if (snprintf(path, sizeof path, "%s/config.json", a->config) >= (int)sizeof path ||
        access(path, R_OK) != 0)
        return fail(err, CKPT_EMISSING, "--config: %s has no config.json", a->config);
    return CKPT_OK;
}

bool args_native(const cli_args *a)
{
    return a->hub_layout && strcmp(a->hub_layout, "native") == 0;
}

int args_rules(cli_args *a, ckpt_err *err)
{
    int rc =
        a->slice_rules ? text_read(&a->rules_text, a->slice_rules, "slice rules", err) : CKPT_OK;

    a->open.slice_rules = a->rules_text;
    // training state has its own layouts
    if (a->hub_layout && (ckpt_format_caps(a->target.format) & CKPT_WRITES_STATE)) {
        a->target.layout = a->hub_layout;
        a->hub_layout = NULL;
    }
    if (rc == CKPT_OK && a->hub_layout && strcmp(a->hub_layout, "hub") != 0 && !args_native(a))
        rc = fail(err, CKPT_EUSAGE, "--layout: expected hub or native, found '%s'", a->hub_layout);
    if (!a->map && !args_native(a) && a->n_operands == 2 && strpbrk(a->line.verb->uses, "om"))
        a->map = a->own_map = maps_default(a->target.format, a->operand[1]);
    if (a->map && strcmp(a->map, "none") == 0)
        a->map = NULL;
    if (rc == CKPT_OK && a->map)
        rc = maps_read(&a->maps, a->own_map ? NULL : a->map, err);
    if (rc == CKPT_EMISSING && a->own_map && strcmp(a->own_map, "hf") == 0) {
        // without installed maps, tensors keep their names
        a->map = a->own_map = NULL;
        *err = (ckpt_err){0};
        rc = CKPT_OK;
    }
    if (rc == CKPT_OK && a->config)
        rc = args_config(a, err);
    return rc == CKPT_OK && a->line.verb->read ? a->line.verb->read(a, err) : rc;
}

bool args_filter(ckpt_filter *out, const cli_args *a)
{
    *out = (ckpt_filter){
        .include = a->include.n ? a->include.at : NULL,
        .exclude = a->exclude.n ? a->exclude.at : NULL,
    };
    return a->include.n || a->exclude.n || a->rename;
}

int args_model(ckpt_map *map, const cli_args *a, bool names, bool others, ckpt_err *err)
{
    const ckpt_model_opts opts = {.size = sizeof opts,
                                  .keep_names = a->keep_names || !names,
                                  .run =
                                      (ckpt_format_caps(a->target.format) & CKPT_WRITES_STATE) != 0,
                                  .config_text = a->config_text,
                                  .config_name = a->config,
                                  .keep_others = others};

    return ckpt_map_keep_model(map, &opts, err);
}

bool args_into_folder(const ckpt_target *target)
{
    return ckpt_format_caps(target->format) & CKPT_IS_FOLDER;
}

bool args_to_stdout(const cli_args *a)
{
    return a->line.verb->streams && a->n_operands > 1 && strcmp(a->operand[1], "-") == 0;
}
