/* SPDX-License-Identifier: Apache-2.0 */
/* ls.c: implements ckpt ls, which prints one line per tensor, from headers alone. */
#include <inttypes.h>
#include <stdio.h>

#include "ckpt_extra.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"

/* The fields of this command. */
typedef struct ls_args {
    cli_args cli;        /* first: the parser fills the whole */
    bool details, exact; /* exact: sizes in bytes */
} ls_args;

/* Column widths: the widest entry, up to a limit. */
typedef struct ls_widths {
    size_t name, dtype, shape;
} ls_widths;

enum { LS_MAX_NAME = 60, LS_MAX_SHAPE = 28 };

/* The larger of two widths, with the second limited to `most`. */
static size_t ls_wider(size_t a, size_t b, size_t most)
{
    b = b < most ? b : most;
    return a > b ? a : b;
}

/* A first pass over the map measures entries, so columns line up. */
static void ls_measure(ls_widths *w, const ckpt_map *map)
{
    char shape[SHAPE_ROOM];

    *w = (ls_widths){0};
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        w->name = ls_wider(w->name, text_width(t->name), LS_MAX_NAME);
        w->dtype = ls_wider(w->dtype, text_width(ckpt_dtype_name(t->dtype)), LS_MAX_NAME);
        w->shape = ls_wider(w->shape, text_width(shape_text(shape, t)), LS_MAX_SHAPE);
    }
}

/* Print "  weight  2 extents, first in FILE (RECORD) at 832". */
static void ls_where(const ckpt_map *map, const ckpt_tensor *t)
{
    const char *path, *record;
    char n[COUNT_ROOM];
    ckpt_box room;
    uint64_t at;

    out_printf("  %s", role_name(t->role));
    if (t->export_dtype != CKPT_DTYPE_NONE && t->export_dtype != t->dtype)
        out_printf(", exported as %s", ckpt_dtype_name(t->export_dtype));
    // tied and empty tensors have no location
    if (t->n_extents == 0 ||
        !ckpt_map_locate(map, ckpt_tensor_extent(t, 0, &room), &path, &record, &at))
        return;
    out_printf(", %s in ", count_text(n, t->n_extents, "extent"));
    out_text(path ? map_relative(map, path) : "memory");
    if (record) {
        out_printf(" (");
        out_text(record);
        out_printf(")");
    }
    // an offset inside a compressed record has no meaning in the file
    if (at != UINT64_MAX)
        out_printf(" at %" PRIu64, at);
    else if (path)
        out_printf(" compressed");
}

/* Print one tensor: name, dtype, shape, then size or owner, then details. */
static void ls_line(const ckpt_map *map, const ckpt_tensor *t, const ls_widths *w, const ls_args *a)
{
    char shape[SHAPE_ROOM], bytes[HUMAN_ROOM];

    out_padded(t->name, w->name);
    out_printf("  ");
    out_padded(ckpt_dtype_name(t->dtype), w->dtype);
    out_printf("  ");
    out_padded(shape_text(shape, t), w->shape);
    if (t->owner) {
        out_printf("  -> ");
        out_text(t->owner->name);
    } else if (a->exact) {
        out_printf("  %14" PRIu64, ckpt_tensor_bytes(t));
    } else {
        out_printf("  %7s", human_bytes(bytes, ckpt_tensor_bytes(t)));
    }
    if (a->details)
        ls_where(map, t);
    out_printf("\n");
}

/*
 * Print the location of each box of a tensor: its elements per axis, and the file and offset of the
 * first.
 */
static void ls_json_extents(json_out *j, const ckpt_map *map, const ckpt_tensor *t)
{
    const char *path, *record;
    uint64_t at;

    json_open(j, "extents", '[');
    for (uint32_t i = 0; i < t->n_extents; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_tensor_extent(t, i, &room);
        if (!ckpt_map_locate(map, e, &path, &record, &at))
            continue;
        json_open(j, NULL, '{');
        json_text(j, "file", path);
        json_text(j, "record", record);
        if (at == UINT64_MAX)
            json_text(j, "offset", NULL);
        else
            json_uint(j, "offset", at);
        json_open_flat(j, "box", '[');
        for (uint32_t k = 0; k < e->ndim; k++) {
            json_open(j, NULL, '[');
            json_uint(j, NULL, e->axis[k].start);
            json_uint(j, NULL, e->axis[k].count);
            json_int(j, NULL, e->axis[k].stride);
            json_close(j, ']');
        }
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* Print one tensor as an object. */
static void ls_json_tensor(json_out *j, const ckpt_map *map, const ckpt_tensor *t, bool details)
{
    // NONE: an export keeps the dtype
    ckpt_dtype out = t->export_dtype != CKPT_DTYPE_NONE ? t->export_dtype : t->dtype;

    json_open(j, NULL, '{');
    json_text(j, "name", t->name);
    json_text(j, "dtype", ckpt_dtype_name(t->dtype));
    json_text(j, "export_dtype", ckpt_dtype_name(out));
    json_shape(j, "shape", t);
    json_uint(j, "elements", t->n_elems);
    json_uint(j, "bytes", ckpt_tensor_bytes(t));
    json_text(j, "role", role_name(t->role));
    json_text(j, "owner", t->owner ? t->owner->name : NULL);
    if (details)
        ls_json_extents(j, map, t);
    json_close(j, '}');
}

/* Print the map as one document. */
static void ls_json(const ckpt_map *map, bool details)
{
    map_totals sum;
    json_out j;

    map_count(&sum, map);
    json_begin(&j);
    json_text(&j, "path", ckpt_map_path(map));
    json_text(&j, "format", ckpt_map_format(map));
    json_uint(&j, "n_tensors", sum.n_tensors);
    json_uint(&j, "n_tied", sum.n_tied);
    json_uint(&j, "n_elements", sum.n_elems);
    json_uint(&j, "n_bytes", sum.n_bytes);
    json_open(&j, "tensors", '[');
    for (size_t i = 0; i < sum.n_tensors && !out_broken(); i++)
        ls_json_tensor(&j, map, ckpt_map_tensor_at(map, i), details);
    json_close(&j, ']');
    json_end(&j);
}

/* Print the table and its last line, or only names. */
static void ls_text(const ckpt_map *map, const ls_args *a)
{
    ls_widths w;

    ls_measure(&w, map);
    for (size_t i = 0; i < ckpt_map_tensor_count(map) && !out_broken(); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        if (!a->cli.quiet) {
            ls_line(map, t, &w, a);
            continue;
        }
        out_text(t->name);
        out_printf("\n");
    }
    if (!a->cli.quiet)
        map_summary(map);
    if (!a->cli.quiet && map_fact(map, "moments"))
        out_printf("%s\n", map_fact(map, "moments"));
}

static int ls_run(cli_args *cli, ckpt_err *err)
{
    ls_args *a = (ls_args *)cli;
    ckpt_map *map = NULL;
    ckpt_filter filter;

    a->cli.open.outline = !a->details; // which shows where tensors are
    int rc = args_open(&map, &a->cli, err);
    if (rc == CKPT_OK && args_filter(&filter, &a->cli))
        rc = ckpt_map_select(map, &filter, err);
    if (rc == CKPT_OK) {
        map_say_findings(map, false);
        effects_of_source(&a->cli, map);
        if (a->cli.json)
            ls_json(map, a->details);
        else
            ls_text(map, a);
    }
    ckpt_map_free(map);
    return rc;
}

static const cli_option ls_options[] = {
    {"long", 'l', CLI_FLAG, offsetof(ls_args, details), NULL,
     "show role and location of each tensor"},
    {"all", 'a', CLI_FLAG, offsetof(cli_args, open.with_optimizer), NULL,
     "include optimizer state"},
    {"bytes", 'b', CLI_FLAG, offsetof(ls_args, exact), NULL, "print sizes in bytes"},
    OPTION_INCLUDE,
    OPTION_EXCLUDE,
    OPTION_TAG,
    {"keep-slices", 0, CLI_FLAG, offsetof(cli_args, open.keep_slices), NULL,
     "show tensor-parallel slices separately"},
    OPTION_SLICE_RULES,
    OPTION_PRINT_JSON,
    {"quiet", 'q', CLI_FLAG, offsetof(cli_args, quiet), NULL, "print names only"},
    CLI_LOCAL,
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot ls_moot[] = {
    {"long", "quiet", NULL},
    {"bytes", "quiet", NULL},
    {"quiet", "json", NULL},
    {NULL, NULL, NULL},
};

const cli_verb verb_ls = {
    .name = "ls",
    .command = "ckpt ls",
    .operands = "PATH",
    .summary = "List the tensors of a checkpoint.",
    .options = ls_options,
    .moot = ls_moot,
    .min = 1,
    .max = 1,
    .uses = "r",
    .run = ls_run,
    .room = sizeof(ls_args),
};
