/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb.c: implements ckpt report: a checkpoint and its run as a page or a picture.
 *
 * All checks of options come before the first read, and the output gets its name when it is
 * complete.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ckpt/effects.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"
#include "tools/cli/progress.h"
#include "tools/report/draw.h"
#include "tools/report/page.h"

/* The fields of this command. */
typedef struct report_args {
    cli_args cli; /* first: the parser fills the whole */
    const char *output, *picture, *metrics;
    bool stats;
} report_args;

#define PICTURES "timeline|layers|map|curves|differences"

/* The contents of a report. */
typedef struct report_all {
    /* again: the source, opened a second time, with dequantized weights */
    ckpt_map *map, *other, *again;
    tags run;
    layers layers;
    parts parts;
    stats stats;
    differ differ;
    curves curves;
    sheet sheet;
} report_all;

/* The contents of each picture; a page has all of them. */
enum { SHOWS_TAGS = 1, SHOWS_TENSORS = 2, SHOWS_OTHER = 4, SHOWS_CURVES = 8, SHOWS_VALUES = 16 };

static unsigned verb_shows(const char *picture)
{
    if (!picture)
        return SHOWS_TAGS | SHOWS_TENSORS | SHOWS_OTHER | SHOWS_CURVES | SHOWS_VALUES;
    if (strcmp(picture, "timeline") == 0)
        return SHOWS_TAGS;
    if (strcmp(picture, "curves") == 0)
        return SHOWS_CURVES;
    return strcmp(picture, "differences") == 0 ? SHOWS_TENSORS | SHOWS_OTHER : SHOWS_TENSORS;
}

/* True if --svg names a picture. */
static bool verb_is_picture(const char *word)
{
    size_t n = strlen(word);

    for (const char *at = PICTURES; n > 0; at++) {
        size_t m = strcspn(at, "|");
        if (m == n && strncmp(at, word, n) == 0)
            return true;
        at += m;
        if (!*at)
            break;
    }
    return false;
}

/* Refuse options that would not affect the output. */
static int verb_check(const report_args *a, ckpt_err *err)
{
    static const struct {
        const char *option;
        unsigned of;
    } needs[] = {
        {"tag", SHOWS_TENSORS},         {"include", SHOWS_TENSORS},
        {"exclude", SHOWS_TENSORS},     {"with-optimizer", SHOWS_TENSORS},
        {"keep-slices", SHOWS_TENSORS}, {"slice-rules", SHOWS_TENSORS},
        {"metrics", SHOWS_CURVES},      {"stats", SHOWS_VALUES},
        {"jobs", SHOWS_VALUES},
    };

    if (!a->output)
        return fail(err, CKPT_EUSAGE,
                    "--output is missing: give the file to write, such as report.html");
    if (a->picture && !verb_is_picture(a->picture))
        return fail(err, CKPT_EUSAGE, "--svg: '%s' is not one of %s", a->picture, PICTURES);
    const unsigned shows = verb_shows(a->picture);
    for (size_t k = 0; k < sizeof needs / sizeof *needs; k++) {
        if (!(shows & needs[k].of) && cli_has(&a->cli.line, needs[k].option))
            return fail(err, CKPT_EUSAGE, "--%s has no effect on --svg %s", needs[k].option,
                        a->picture);
    }
    if (a->cli.n_operands == 2 && !(shows & SHOWS_OTHER))
        return fail(err, CKPT_EUSAGE, "%s: a second checkpoint has no effect on --svg %s",
                    a->cli.operand[1], a->picture);
    if (a->cli.n_operands < 2 && a->picture && (shows & SHOWS_OTHER))
        return fail(err, CKPT_EUSAGE, "--svg differences needs two checkpoints");
    if (a->cli.run.jobs && !a->stats)
        return fail(err, CKPT_EUSAGE, "--jobs has no effect without --stats");
    return CKPT_OK;
}

/* Open and filter a map; NULL after a failure. */
static int verb_map(ckpt_map **out, cli_args *a, const char *path, const char *which, ckpt_err *err)
{
    ckpt_open_opts opts = a->open;
    ckpt_filter filter;

    // the path of a shard means its complete checkpoint
    opts.whole_checkpoint = true;
    opts.tag = which;
    int rc = ckpt_open(out, path, &opts, err);
    if (rc == CKPT_OK && args_filter(&filter, a))
        rc = ckpt_map_select(*out, &filter, err);
    if (rc != CKPT_OK) {
        ckpt_map_free(*out);
        *out = NULL;
    }
    return rc;
}

/* Open the checkpoint, and find its layers and its distribution over files. */
static int verb_open(report_all *r, cli_args *a, ckpt_err *err)
{
    int rc = verb_map(&r->map, a, a->operand[0], a->open.tag, err);

    if (rc != CKPT_OK)
        return rc;
    map_say_findings(r->map, false);
    effects_of_source(a, r->map);
    rc = layers_make(&r->layers, r->map, err);
    return rc == CKPT_OK ? parts_make(&r->parts, r->map, err) : rc;
}

/*
 * Compare with the other checkpoint.  If only one is quantized, its dequantized weights are
 * compared.  If that is the first one, it is opened again for this, because the page describes its
 * stored form.
 */
static int verb_differ(report_all *r, cli_args *a, ckpt_err *err)
{
    int rc = verb_map(&r->other, a, a->operand[1], NULL, err);
    ckpt_map *first = r->map;

    if (rc != CKPT_OK)
        return rc;
    map_say_findings(r->other, false);
    bool qa = ckpt_map_is_quantized(r->map), qb = ckpt_map_is_quantized(r->other);
    if (qb && !qa)
        rc = ckpt_map_dequantize(r->other, true, err);
    if (qa && !qb) {
        rc = verb_map(&r->again, a, a->operand[0], a->open.tag, err);
        if (rc == CKPT_OK)
            rc = ckpt_map_dequantize(r->again, true, err);
        first = r->again;
    }
    if (rc == CKPT_OK && qa != qb && !a->quiet)
        say_note("%s: is quantized; its dequantized weights are compared",
                 ckpt_map_path(qa ? r->map : r->other));
    return rc == CKPT_OK ? differ_make(&r->differ, first, r->other, &a->run, err) : rc;
}

/* Read the metrics file that the user named, or one beside the checkpoint. */
static int verb_curves(report_all *r, const report_args *a, ckpt_err *err)
{
    char *found = a->metrics ? NULL : curves_beside(a->cli.operand[0]);
    int rc = CKPT_OK;

    if (a->metrics || found)
        rc = curves_read(&r->curves, a->metrics ? a->metrics : found, err);
    free(found);
    if (a->picture && !r->curves.path)
        return fail(
            err, CKPT_EMISSING,
            "%s: has neither trainer_state.json nor metrics.jsonl: name a file with --metrics",
            a->cli.operand[0]);
    // the user did not name the file, so a failure is only a warning
    if (rc != CKPT_OK && !a->metrics && !a->picture && rc != CKPT_ELIMIT) {
        say_warning("%s; no curves are shown", err->text);
        *err = (ckpt_err){0};
        curves_free(&r->curves);
        rc = CKPT_OK;
    }
    return rc;
}

/* Number of checkpoints of the run that are damaged or incomplete. */
static size_t verb_n_ill(const tags *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += t->at[i].health != CKPT_TAG_WHOLE;
    return n;
}

/* True if a checkpoint of the run is damaged: then a page is more useful than an error. */
static bool verb_ill(const tags *t)
{
    bool ill = verb_n_ill(t) > 0;

    for (size_t i = 0; i < t->run.n; i++)
        ill = ill || !t->run.at[i].good;
    return ill && t->n > 0;
}

/* Write the page or the picture. */
static void verb_write(report_all *r, const report_args *a, const char *trouble)
{
    const page p = {.path = a->cli.operand[0],
                    .trouble = trouble,
                    .map = r->map,
                    .run = &r->run,
                    .layers = &r->layers,
                    .parts = &r->parts,
                    .stats = r->stats.at ? &r->stats : NULL,
                    .other = a->cli.n_operands == 2 ? a->cli.operand[1] : NULL,
                    .differ = r->differ.at ? &r->differ : NULL,
                    .curves = r->curves.path ? &r->curves : NULL};

    if (!a->picture)
        page_write(&r->sheet, &p);
    else if (strcmp(a->picture, "timeline") == 0)
        draw_timeline(&r->sheet, &r->run, true);
    else if (strcmp(a->picture, "layers") == 0)
        draw_layers(&r->sheet, &r->layers, true);
    else if (strcmp(a->picture, "curves") == 0)
        draw_curves(&r->sheet, &r->curves, true);
    else if (strcmp(a->picture, "differences") == 0)
        draw_heat(&r->sheet, &r->differ, true);
    else
        draw_map(&r->sheet, &r->parts, &r->layers, true);
}

/* Report the written file on stdout: one line, or JSON with --json. */
static void verb_say(const report_all *r, const report_args *a)
{
    char bytes[HUMAN_ROOM], n[COUNT_ROOM];
    size_t tensors = ckpt_map_tensor_count(r->map);
    json_out j;

    if (a->cli.json) {
        json_begin(&j);
        json_text(&j, "path", a->cli.operand[0]);
        json_text(&j, "output", a->output);
        json_text(&j, "picture", a->picture);
        json_uint(&j, "bytes", r->sheet.n_bytes);
        json_uint(&j, "tags", r->run.n);
        json_uint(&j, "tags_damaged", verb_n_ill(&r->run));
        json_uint(&j, "tensors", tensors);
        json_uint(&j, "layers", r->layers.n);
        json_uint(&j, "files", r->parts.n_files);
        json_uint(&j, "files_with_tensors", r->parts.n_used);
        if (r->stats.at) {
            json_uint(&j, "nan", r->stats.n_nan);
            json_uint(&j, "inf", r->stats.n_inf);
        }
        if (r->differ.at)
            json_uint(&j, "tensors_different", r->differ.n_different);
        json_text(&j, "metrics", r->curves.path);
        if (r->curves.path)
            json_uint(&j, "records", r->curves.n_records);
        json_end(&j);
    } else if (!a->cli.quiet) {
        out_text(a->output);
        out_printf(": %s", human_bytes(bytes, r->sheet.n_bytes));
        if (r->map)
            out_printf("; %s", count_text(n, tensors, "tensor"));
        if (r->map)
            out_printf(" in %s", count_text(n, r->layers.n, "layer"));
        if (r->map)
            out_printf(" and %s", count_text(n, r->parts.n_used, "file"));
        if (verb_shows(a->picture) & SHOWS_TAGS)
            out_printf("; %s of the run", count_text(n, r->run.n, "checkpoint"));
        if ((verb_shows(a->picture) & SHOWS_TAGS) && verb_n_ill(&r->run) > 0)
            out_printf(" (%zu damaged or incomplete)", verb_n_ill(&r->run));
        if (r->stats.n_nan || r->stats.n_inf)
            out_printf("; %" PRIu64 " NaN, %" PRIu64 " infinite", r->stats.n_nan, r->stats.n_inf);
        if (r->differ.at)
            out_printf("; %s", count_text(n, r->differ.n_different, "tensor"));
        if (r->differ.at)
            out_printf(" of %zu different", r->differ.n);
        if (r->curves.path)
            out_printf("; %s of training", count_text(n, r->curves.n_records, "record"));
        out_printf("\n");
    }
}

/* Gather the contents, or fail with the reason why there are none. */
static int verb_gather(report_all *r, report_args *a, ckpt_err *trouble, ckpt_err *err)
{
    unsigned shows = verb_shows(a->picture);
    int rc = CKPT_OK;

    if (shows & SHOWS_TAGS)
        rc = tags_make(&r->run, a->cli.operand[0], &a->cli.run, err);
    if (rc == CKPT_OK && (shows & SHOWS_TENSORS))
        rc = verb_open(r, &a->cli, trouble);
    else if (rc == CKPT_OK && (shows & SHOWS_TAGS) && r->run.n == 0)
        return fail(err, CKPT_EMISSING, "%s: no checkpoints of a run were found here",
                    a->cli.operand[0]);
    if (rc == CKPT_OK && (shows & SHOWS_CURVES))
        rc = verb_curves(r, a, err);
    // write a page even about a damaged run; the exit status reports the damage
    if (trouble->code == CKPT_OK || (!a->picture && verb_ill(&r->run) && rc != CKPT_ELIMIT))
        return err->code;
    *err = *trouble;
    return rc;
}

/* Read the values of one or both checkpoints; this takes most of the time. */
static int verb_values(report_all *r, report_args *a, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (a->stats)
        rc = stats_make(&r->stats, r->map, &a->cli.run, err);
    return rc == CKPT_OK && a->cli.n_operands == 2 ? verb_differ(r, &a->cli, err) : rc;
}

static int verb_make(report_all *r, report_args *a, ckpt_err *err)
{
    ckpt_err trouble = {0};
    progress p;

    progress_begin(&p, "reading", a->cli.quiet || !(a->stats || a->cli.n_operands == 2),
                   &a->cli.run);
    int rc = verb_gather(r, a, &trouble, err);
    const ckpt_map *const maps[] = {r->map, NULL};
    if (rc == CKPT_OK)
        rc = sheet_allowed(a->output, a->cli.run.force, maps, a->metrics, err);
    if (rc == CKPT_OK && r->map)
        rc = verb_values(r, a, err);
    const ckpt_map *const others[] = {r->other, NULL};
    if (rc == CKPT_OK)
        rc = sheet_allowed(a->output, a->cli.run.force, others, r->curves.path, err);
    if (rc == CKPT_OK)
        rc = sheet_open(&r->sheet, a->output, a->cli.run.force, err);
    if (rc == CKPT_OK)
        verb_write(r, a, trouble.code ? trouble.text : NULL);
    if (rc == CKPT_OK && progress_signal())
        rc = fail(err, CKPT_ECANCELED, "interrupted");
    if (rc == CKPT_OK)
        rc = sheet_keep(&r->sheet, err);
    progress_end(&p);
    if (rc == CKPT_OK)
        verb_say(r, a);
    if (rc == CKPT_OK && trouble.code) {
        rc = trouble.code;
        *err = trouble;
    }
    return rc;
}

static int verb_run(cli_args *cli, ckpt_err *err)
{
    report_args *a = (report_args *)cli;
    report_all r = {0};
    int rc = verb_check(a, err);

    if (rc == CKPT_OK)
        rc = sheet_allowed(a->output, a->cli.run.force, (const ckpt_map *const[]){NULL},
                           a->cli.operand[0], err);
    if (rc == CKPT_OK && a->cli.n_operands == 2)
        rc = sheet_allowed(a->output, a->cli.run.force, (const ckpt_map *const[]){NULL},
                           a->cli.operand[1], err);
    if (rc == CKPT_OK)
        rc = verb_make(&r, a, err);
    sheet_drop(&r.sheet);
    curves_free(&r.curves);
    differ_free(&r.differ);
    stats_free(&r.stats);
    parts_free(&r.parts);
    layers_free(&r.layers);
    tags_free(&r.run);
    ckpt_map_free(r.map);
    ckpt_map_free(r.other);
    ckpt_map_free(r.again);
    return rc;
}

#define AT(field) offsetof(report_args, field)

static const cli_option report_options[] = {
    {"output", 'o', CLI_OUTPUT, AT(output), "FILE", "page or picture to write; required"},
    {"stats", 0, CLI_FLAG, AT(stats), NULL, "read all values: histograms, norms, NaN, zeros"},
    {"jobs", 'j', CLI_COUNT, AT(cli.run.jobs), "N",
     "threads of --stats (default: one per processor, at most 8)"},
    {"metrics", 0, CLI_FILE, AT(metrics), "FILE",
     "read curves from FILE (default: trainer_state.json or metrics.jsonl)"},
    {"svg", 0, CLI_TEXT, AT(picture), PICTURES, "write one picture as SVG instead of a page"},
    OPTION_TAG,
    OPTION_INCLUDE,
    OPTION_EXCLUDE,
    OPTION_WITH_OPTIMIZER,
    {"keep-slices", 0, CLI_FLAG, AT(cli.open.keep_slices), NULL,
     "show tensor-parallel slices separately"},
    OPTION_SLICE_RULES,
    OPTION_IGNORE_COPIES,
    {"force", 'f', CLI_FLAG, AT(cli.run.force), NULL, "replace an existing output"},
    {"json", 0, CLI_FLAG, AT(cli.json), NULL, "print a summary as JSON"},
    OPTION_QUIET,
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot report_moot[] = {
    {"quiet", "json", NULL},
    {NULL, NULL, NULL},
};

const cli_verb verb_report = {
    .name = "report",
    .command = "ckpt report",
    .operands = "PATH [PATH2]",
    .summary = "Show a checkpoint and its run as one page for a browser.",
    .options = report_options,
    .moot = report_moot,
    .min = 1,
    .max = 2,
    .uses = "rr",
    .run = verb_run,
    .room = sizeof(report_args),
};
