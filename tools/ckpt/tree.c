/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: implements ckpt tree, which prints all values of a checkpoint except tensor bytes, and
 * never executes any.
 */
#include "ckpt_extra.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"

/* The fields of this command. */
typedef struct tree_args {
    cli_args cli; /* first: the parser fills the whole */
    unsigned depth;
    uint64_t max_items;
} tree_args;

/* Context of the callback.  JSON output wraps the library's text in an object. */
typedef struct tree_out {
    const ckpt_map *map;
    bool json, begun;
    json_out j;
} tree_out;

/* Print the library's text; stop it when the reader of stdout has gone. */
static int tree_write(void *ctx, const char *text, size_t n)
{
    tree_out *out = ctx;

    // begin only now, because stdout must stay empty for an unknown subpath
    if (out->json && !out->begun) {
        json_begin(&out->j);
        json_text(&out->j, "path", ckpt_map_path(out->map));
        json_text(&out->j, "format", ckpt_map_format(out->map));
        json_key(&out->j, "tree");
    }
    out->begun = true;
    // drop the final newline; strings contain no raw ones
    if (out->json && n > 0 && text[n - 1] == '\n')
        n--;
    out_bytes(text, n);
    return out_broken();
}

/*
 * Open the source, and print warnings.  If tensors are of an unsupported kind, that is only a
 * warning, because the values can still be printed; other errors end the command.
 */
static int tree_open(ckpt_map **map, cli_args *a, ckpt_err *err)
{
    const char *text;
    int severity, code;

    a->open.collect = true;
    int rc = ckpt_open(map, a->operand[0], &a->open, err);
    for (size_t i = 0; rc == CKPT_OK && ckpt_map_finding_at(*map, i, &severity, &code, &text);
         i++) {
        if (severity == 2 && code != CKPT_EUNSUPPORTED)
            rc = fail(err, code, "%s", text);
        else if (severity > 0)
            say_warning("%s", text);
    }
    return rc;
}

/* The library prints the tree; JSON gets the members that all our documents have. */
static int tree_run(cli_args *cli, ckpt_err *err)
{
    tree_args *a = (tree_args *)cli;
    ckpt_tree_opts opts = {
        .format = a->cli.json ? CKPT_TREE_JSON : CKPT_TREE_TEXT,
        .path = a->cli.n_operands > 1 ? a->cli.operand[1] : NULL,
        .max_depth = a->depth,
        .max_items = a->max_items,
    };
    tree_out out = {.json = a->cli.json};
    ckpt_map *map = NULL;

    int rc = tree_open(&map, &a->cli, err);
    out.map = map;
    if (rc == CKPT_OK)
        rc = ckpt_tree_print(map, &opts, tree_write, &out, err);
    if (rc == CKPT_OK && out.json && out.begun)
        json_end(&out.j);
    ckpt_map_free(map);
    return rc;
}

static const cli_option tree_options[] = {
    {"depth", 'd', CLI_COUNT, offsetof(tree_args, depth), "N", "print N levels (default: 100)"},
    {"max-items", 'n', CLI_COUNT64, offsetof(tree_args, max_items), "N",
     "print N items of each container (default: all)"},
    OPTION_TAG,
    OPTION_PRINT_JSON,
    CLI_LOCAL,
    CLI_NO_SANDBOX,
    CLI_END,
};

const cli_verb verb_tree = {
    .name = "tree",
    .command = "ckpt tree",
    .operands = "PATH [SUBPATH]",
    .summary = "Print the values that are not tensors, without running code.",
    .options = tree_options,
    .min = 1,
    .max = 2,
    .uses = "r-",
    .run = tree_run,
    .room = sizeof(tree_args),
};
