/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: ckpt tree: everything in a checkpoint that is not tensor bytes, printed, never run.
 */
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"

/* What the callback needs: JSON gets an envelope around the library's text. */
typedef struct tree_out {
    const ckpt_map *map;
    bool json, begun;
    json_out j;
} tree_out;

/* Passes the library's text on; stops it when nobody reads any more. */
static int tree_write(void *ctx, const char *text, size_t n)
{
    tree_out *out = ctx;

    // only now is it sure that there is something to print: an unknown subpath leaves stdout empty
    if (out->json && !out->begun) {
        json_begin(&out->j);
        json_text(&out->j, "path", ckpt_map_path(out->map));
        json_text(&out->j, "format", ckpt_map_format(out->map));
        json_key(&out->j, "tree");
    }
    out->begun = true;
    // strings have no raw newlines: the one that may end the text would only leave an empty line
    if (out->json && n > 0 && text[n - 1] == '\n')
        n--;
    out_bytes(text, n);
    return out_broken();
}

/*
 * Values are worth seeing where tensors are of a kind that is not read: then the reason is a
 * warning.  What else is wrong with the file ends it.
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
        else if (severity == 2)
            say_warning("%s", text);
    }
    return rc;
}

/* The library prints; JSON gets the members that all our documents have. */
static int tree_run(cli_args *a, ckpt_err *err)
{
    ckpt_tree_opts opts = {
        .format = a->json ? CKPT_TREE_JSON : CKPT_TREE_TEXT,
        .path = a->n_operands > 1 ? a->operand[1] : NULL,
        .max_depth = a->depth,
        .max_items = a->max_items,
    };
    tree_out out = {.json = a->json};
    ckpt_map *map = NULL;

    int rc = tree_open(&map, a, err);
    out.map = map;
    if (rc == CKPT_OK)
        rc = ckpt_tree_print(map, &opts, tree_write, &out, err);
    if (rc == CKPT_OK && out.json && out.begun)
        json_end(&out.j);
    ckpt_map_free(map);
    return rc;
}

static const cli_option tree_options[] = {
    {"depth", 'd', CLI_COUNT, offsetof(cli_args, depth), "N", "print N levels (default: 100)"},
    {"max-items", 'n', CLI_COUNT64, offsetof(cli_args, max_items), "N",
     "print N items of each container (default: all)"},
    {"tag", 't', CLI_TEXT, offsetof(cli_args, open.tag), "TAG",
     "read this tag (default: the latest)"},
    {"json", 0, CLI_FLAG, offsetof(cli_args, json), NULL, "print JSON"},
    CLI_LOCAL,
    CLI_NO_SANDBOX,
    CLI_END,
};

const cli_verb verb_tree = {
    .name = "tree",
    .command = "ckpt tree",
    .operands = "PATH [SUBPATH]",
    .summary = "Print the values beside the tensors, nothing being executed.",
    .options = tree_options,
    .min = 1,
    .max = 2,
    .uses = "r-",
    .run = tree_run,
};
