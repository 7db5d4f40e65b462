/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info.c: implements ckpt info, which prints a checkpoint's format, facts, files, tensors by role
 * and dtype, findings.
 */
#include <inttypes.h>

#include "tools/ckpt/effects.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"

/* Sums over the tensors of one role and one dtype. */
typedef struct info_class {
    uint64_t n_tensors, n_elems, n_bytes;
} info_class;

enum { INFO_ROLES = CKPT_ROLE_OTHER + 1, INFO_COLUMN = 18, INFO_FILES = 16 };

/* Callback for each class that has tensors, by role, then dtype. */
typedef void (*info_class_fn)(json_out *j, uint32_t role, int dtype, const info_class *c);

/* Count all tensors first, then report: a checkpoint has few classes. */
static void info_classes(const ckpt_map *map, info_class_fn fn, json_out *j)
{
    info_class classes[INFO_ROLES][CKPT_N_DTYPES] = {0};

    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        // the total includes tied names, the classes do not
        if (t->owner || t->role >= INFO_ROLES || t->dtype >= CKPT_N_DTYPES)
            continue;
        info_class *c = &classes[t->role][t->dtype];
        c->n_tensors++;
        c->n_elems += t->n_elems;
        c->n_bytes += ckpt_tensor_bytes(t);
    }
    for (uint32_t role = 0; role < INFO_ROLES; role++) {
        for (int d = 0; d < CKPT_N_DTYPES; d++) {
            if (classes[role][d].n_tensors)
                fn(j, role, d, &classes[role][d]);
        }
    }
}

/* Bytes of all files, headers included. */
static uint64_t info_file_bytes(const ckpt_map *map)
{
    uint64_t n = 0;

    for (size_t i = 0; i < ckpt_map_file_count(map); i++)
        n += ckpt_map_file_size(map, i);
    return n;
}

/* ---- JSON ---- */

/* Print one class as an object. */
static void info_json_class(json_out *j, uint32_t role, int dtype, const info_class *c)
{
    json_open(j, NULL, '{');
    json_text(j, "role", role_name(role));
    json_text(j, "dtype", ckpt_dtype_name((ckpt_dtype)dtype));
    json_uint(j, "tensors", c->n_tensors);
    json_uint(j, "elements", c->n_elems);
    json_uint(j, "bytes", c->n_bytes);
    json_close(j, '}');
}

/* Print all facts as one document, with every file. */
static void info_json(const ckpt_map *map)
{
    const char *key, *text;
    map_totals sum;
    json_out j;

    map_count(&sum, map);
    json_begin(&j);
    json_text(&j, "path", ckpt_map_path(map));
    json_text(&j, "format", ckpt_map_format(map));
    json_facts(&j, "facts", map);
    json_open(&j, "files", '[');
    for (size_t i = 0; i < ckpt_map_file_count(map); i++) {
        json_open(&j, NULL, '{');
        json_text(&j, "path", ckpt_map_file_path(map, i));
        json_uint(&j, "bytes", ckpt_map_file_size(map, i));
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_uint(&j, "n_tensors", sum.n_tensors);
    json_uint(&j, "n_tied", sum.n_tied);
    json_uint(&j, "n_elements", sum.n_elems);
    json_uint(&j, "n_bytes", sum.n_bytes);
    json_open(&j, "classes", '[');
    info_classes(map, info_json_class, &j);
    json_close(&j, ']');
    json_open(&j, "metadata", '{');
    for (size_t i = 0; ckpt_map_metadata_at(map, i, &key, &text); i++)
        json_text(&j, key, text);
    json_close(&j, '}');
    json_findings(&j, "findings", map);
    json_end(&j);
}

/* ---- text ---- */

/* Print a row of two columns. */
static void info_line(const char *key, const char *text)
{
    out_padded(key, INFO_COLUMN);
    out_text(text);
    out_printf("\n");
}

/* Print one class as a row under "tensors". */
static void info_text_class(json_out *j, uint32_t role, int dtype, const info_class *c)
{
    char elems[HUMAN_ROOM], bytes[HUMAN_ROOM], n[COUNT_ROOM];

    (void)j;
    out_printf("%*s%-8s%-12s%14s, %s elements, %s\n", (int)INFO_COLUMN, "", role_name(role),
               ckpt_dtype_name((ckpt_dtype)dtype), count_text(n, c->n_tensors, "tensor"),
               human_count(elems, c->n_elems), human_bytes(bytes, c->n_bytes));
}

/* Print files with their sizes; of very many, only the first. */
static void info_text_files(const ckpt_map *map, bool all)
{
    size_t n = ckpt_map_file_count(map), shown = all || n <= INFO_FILES ? n : INFO_FILES;
    char bytes[HUMAN_ROOM];

    out_padded("files", INFO_COLUMN);
    out_printf("%zu, %s\n", n, human_bytes(bytes, info_file_bytes(map)));
    for (size_t i = 0; i < shown && !out_broken(); i++) {
        out_printf("%*s%8s  ", (int)INFO_COLUMN, "",
                   human_bytes(bytes, ckpt_map_file_size(map, i)));
        out_text(map_relative(map, ckpt_map_file_path(map, i)));
        out_printf("\n");
    }
    if (shown < n)
        out_printf("%*s... and %zu more (--files lists them)\n", (int)INFO_COLUMN, "", n - shown);
}

/* Print the rows, from the path to the findings. */
static void info_text(const ckpt_map *map, bool all_files)
{
    const char *key, *text;
    int severity, code;
    bool number;

    info_line("path", ckpt_map_path(map));
    info_line("format", ckpt_map_format(map));
    for (size_t i = 0; ckpt_map_fact_at(map, i, &key, &text, &number); i++)
        info_line(key, text);
    info_text_files(map, all_files);
    out_padded("tensors", INFO_COLUMN);
    map_summary(map);
    info_classes(map, info_text_class, NULL);
    for (size_t i = 0; ckpt_map_metadata_at(map, i, &key, &text); i++) {
        out_padded(i ? "" : "metadata", INFO_COLUMN);
        out_text(key);
        out_printf(" = ");
        out_text(text);
        out_printf("\n");
    }
    for (size_t i = 0; ckpt_map_finding_at(map, i, &severity, &code, &text); i++)
        info_line(severity > 0 ? "warning" : "note", text);
}

/* The fields of this command. */
typedef struct info_args {
    cli_args cli; /* first: the parser fills the whole */
    bool all_files;
} info_args;

/* Read headers only, no tensor bytes. */
static int info_run(cli_args *cli, ckpt_err *err)
{
    ckpt_map *map = NULL;
    cli->open.outline = true;
    int rc = args_open(&map, cli, err);

    if (rc == CKPT_OK)
        effects_of_source(cli, map);
    if (rc == CKPT_OK && cli->json)
        info_json(map);
    else if (rc == CKPT_OK)
        info_text(map, ((info_args *)cli)->all_files);
    ckpt_map_free(map);
    return rc;
}

static const cli_option info_options[] = {
    {"all", 'a', CLI_FLAG, offsetof(cli_args, open.with_optimizer), NULL,
     "include optimizer state"},
    {"files", 'f', CLI_FLAG, offsetof(info_args, all_files), NULL, "list all files"},
    OPTION_TAG,
    {"keep-slices", 0, CLI_FLAG, offsetof(cli_args, open.keep_slices), NULL,
     "show tensor-parallel slices separately"},
    OPTION_SLICE_RULES,
    OPTION_PRINT_JSON,
    CLI_LOCAL,
    CLI_NO_SANDBOX,
    CLI_END,
};

const cli_verb verb_info = {
    .name = "info",
    .command = "ckpt info",
    .operands = "PATH",
    .summary = "Show format, training setup and contents of a checkpoint.",
    .options = info_options,
    .min = 1,
    .max = 1,
    .uses = "r",
    .run = info_run,
    .room = sizeof(info_args),
};
