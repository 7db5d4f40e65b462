/* SPDX-License-Identifier: Apache-2.0 */
/* maps.c: implements ckpt maps, which lists the layout maps, prints one, or checks one. */
#include "tools/cli/maps.h"

#include <string.h>

#include "tools/ckpt/maps_check.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"
#include "tools/cli/text.h"
#include <stdio.h>
#include <stdlib.h>

static void maps_json(const cli_maps *maps)
{
    json_out j;

    json_begin(&j);
    json_open(&j, "maps", '[');
    for (size_t i = 0; i < maps->n; i++) {
        json_open(&j, NULL, '{');
        json_text(&j, "left", ckpt_remap_side(maps->at[i].map, false));
        json_text(&j, "right", ckpt_remap_side(maps->at[i].map, true));
        json_text(&j, "about", ckpt_remap_description(maps->at[i].map));
        json_text(&j, "file", maps_base(maps->at[i].path));
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_end(&j);
}

/* True if "hf:gguf", "gguf:hf", "hf", or the name of its file selects this map. */
static bool maps_meant(const cli_map_text *t, const char *name)
{
    const char *left = ckpt_remap_side(t->map, false), *right = ckpt_remap_side(t->map, true);
    size_t n = strcspn(name, ":");

    if (!name[n])
        return strcmp(maps_base(t->path), name) == 0 || strcmp(left, name) == 0 ||
               strcmp(right, name) == 0;
    if (strlen(left) == n && strncmp(left, name, n) == 0 && strcmp(right, name + n + 1) == 0)
        return true;
    return strlen(right) == n && strncmp(right, name, n) == 0 && strcmp(left, name + n + 1) == 0;
}

/* Print the texts of the maps that a name selects, unchanged. */
static int maps_print(const cli_maps *maps, const char *name, ckpt_err *err)
{
    unsigned n = 0;

    for (size_t i = 0; i < maps->n; i++) {
        if (!maps_is_path(name) && !maps_meant(&maps->at[i], name))
            continue;
        out_printf("%s", n++ ? "\n" : "");
        out_printf("# ");
        out_text(maps_base(maps->at[i].path));
        out_printf("\n");
        out_lines(maps->at[i].text);
    }
    if (n == 0)
        return fail(err, CKPT_EUSAGE, "unknown layout map %s; `ckpt maps` lists the known ones",
                    name);
    return CKPT_OK;
}

/* The fields of this command. */
typedef struct maps_args {
    cli_args cli; /* first: the parser fills the whole */
    cli_maps maps;
    /* of `check` */
    const char *config;
    char *config_text;
    cli_list sizes;
    bool backwards;
} maps_args;

/* True for `ckpt maps check MAP PATH`. */
static bool maps_checks(const cli_args *cli)
{
    return cli->n_operands > 0 && strcmp(cli->operand[0], "check") == 0;
}

static int maps_read_all(cli_args *cli, ckpt_err *err)
{
    maps_args *a = (maps_args *)cli;
    const int at = maps_checks(cli) ? 1 : 0;

    if (maps_checks(cli) ? cli->n_operands != 3 : cli->n_operands > 1)
        return fail(err, CKPT_EUSAGE,
                    "expected `ckpt maps [NAME|FILE]` or `ckpt maps check MAP "
                    "PATH`");
    if (at == 0 && (a->config || a->sizes.n > 0 || a->backwards))
        return fail(err, CKPT_EUSAGE,
                    "--config, --size and --backwards are options of `ckpt maps "
                    "check MAP PATH`");
    int rc = maps_read(&a->maps, cli->n_operands > at ? cli->operand[at] : NULL, err);
    if (rc == CKPT_OK)
        rc = maps_use_all(&a->maps, err);
    return rc == CKPT_OK && a->config
               ? text_read(&a->config_text, a->config, "the configuration", err)
               : rc;
}

static void maps_release(cli_args *cli)
{
    maps_args *a = (maps_args *)cli;

    free(a->config_text);
    maps_free(&a->maps);
}

static int maps_run_check(const maps_args *a, ckpt_err *err)
{
    const maps_check_args check = {.cli = &a->cli,
                                   .maps = &a->maps,
                                   .name = a->cli.operand[1],
                                   .source = a->cli.operand[2],
                                   .config_text = a->config_text,
                                   .config_name = a->config,
                                   .sizes = a->sizes.n > 0 ? a->sizes.at : NULL,
                                   .backwards = a->backwards};

    return maps_check(&check, err);
}

static int maps_run(cli_args *cli, ckpt_err *err)
{
    const maps_args *a = (const maps_args *)cli;
    const char *name = cli->n_operands ? cli->operand[0] : NULL;

    if (maps_checks(cli))
        return maps_run_check(a, err);
    if (name)
        return maps_print(&a->maps, name, err);
    if (cli->json) {
        maps_json(&a->maps);
        return CKPT_OK;
    }
    for (size_t i = 0; i < a->maps.n; i++) {
        char pair[64];
        (void)snprintf(pair, sizeof pair, "%s:%s", ckpt_remap_side(a->maps.at[i].map, false),
                       ckpt_remap_side(a->maps.at[i].map, true));
        out_padded(pair, 20);
        out_printf(" ");
        out_text(ckpt_remap_description(a->maps.at[i].map));
        out_printf("\n");
    }
    return CKPT_OK;
}

static const cli_option maps_options[] = {
    {"config", 0, CLI_FILE, offsetof(maps_args, config), "FILE",
     "check: read config.json here instead of beside the checkpoint"},
    {"size", 0, CLI_LIST, offsetof(maps_args, sizes), "NAME=VALUE",
     "check: set a value that the map asks for (repeatable)"},
    {"backwards", 0, CLI_FLAG, offsetof(maps_args, backwards), NULL,
     "check: the checkpoint has the layout on the right"},
    {"json", 0, CLI_FLAG, offsetof(cli_args, json), NULL, "print the list, or the report, as JSON"},
    OPTION_QUIET,
    CLI_END,
};

const cli_verb verb_maps = {
    .name = "maps",
    .command = "ckpt maps",
    .operands = "[NAME|FILE] | check MAP PATH",
    .summary = "List the layout maps of convert --map, print one, or check one.",
    .options = maps_options,
    .min = 0,
    .max = 3,
    .uses = "--r",
    .run = maps_run,
    .room = sizeof(maps_args),
    .read = maps_read_all,
    .release = maps_release,
};
