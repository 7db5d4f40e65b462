/* SPDX-License-Identifier: Apache-2.0 */
/* maps.c: implements ckpt maps, which lists the layout maps, or prints the text of one. */
#include "tools/cli/maps.h"

#include <string.h>

#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include <stdio.h>

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
} maps_args;

static int maps_read_all(cli_args *cli, ckpt_err *err)
{
    return maps_read(&((maps_args *)cli)->maps, cli->n_operands ? cli->operand[0] : NULL, err);
}

static void maps_release(cli_args *cli)
{
    maps_free(&((maps_args *)cli)->maps);
}

static int maps_run(cli_args *cli, ckpt_err *err)
{
    const maps_args *a = (const maps_args *)cli;
    const char *name = cli->n_operands ? cli->operand[0] : NULL;

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
    {"json", 0, CLI_FLAG, offsetof(cli_args, json), NULL, "print the list as JSON"},
    CLI_END,
};

const cli_verb verb_maps = {
    .name = "maps",
    .command = "ckpt maps",
    .operands = "[NAME|FILE]",
    .summary = "List the layout maps of convert --map, or print the text of one.",
    .options = maps_options,
    .min = 0,
    .max = 1,
    .uses = "-",
    .run = maps_run,
    .room = sizeof(maps_args),
    .read = maps_read_all,
    .release = maps_release,
};
