/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cat.c: implements ckpt cat, which prints the values of one tensor as text, JSON, bytes or
 * statistics, in constant memory.
 */
#include <inttypes.h>
#include <math.h>

#include "ckpt_extra.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/elements.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/values.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"

/* The fields of this command. */
typedef struct cat_args {
    cli_args cli; /* first: the parser fills the whole */
    bool whole, raw, stats, no_crc;
    ckpt_dtype dtype;
    const char *range;
} cat_args;

enum { CAT_DEFAULT_COUNT = 1000 };

/* Print the bytes of the buffer; a block of packed elements fills whole bytes. */
static bool cat_raw(void *ctx, const elements *r, const void *buf, size_t n)
{
    unsigned bytes, per = ckpt_dtype_block(r->dtype, &bytes);

    (void)ctx;
    out_bytes(buf, (n + per - 1) / per * bytes);
    return true;
}

/* Print elements as nested text; ctx is the values_text. */
static bool cat_text(void *ctx, const elements *r, const void *buf, size_t n)
{
    scalar s;

    for (size_t i = 0; i < n && !out_broken(); i++) {
        scalar_get(&s, r->dtype, buf, i);
        values_text_add(ctx, &s);
    }
    return true;
}

/* Print elements as an array; ctx is the json_out. */
static bool cat_json(void *ctx, const elements *r, const void *buf, size_t n)
{
    scalar s;

    for (size_t i = 0; i < n && !out_broken(); i++) {
        scalar_get(&s, r->dtype, buf, i);
        values_json_add(ctx, &s);
    }
    return true;
}

/* Add elements to the statistics; ctx is the values_stats. */
static bool cat_stats(void *ctx, const elements *r, const void *buf, size_t n)
{
    scalar s;

    for (size_t i = 0; i < n; i++) {
        scalar_get(&s, r->dtype, buf, i);
        values_stats_add(ctx, scalar_real(&s));
    }
    return true;
}

/* ---- text, JSON, bytes, statistics ---- */

/* Print the head line: "name: F32 [29, 13]". */
static void cat_head(const elements *r)
{
    char shape[SHAPE_ROOM];

    out_text(r->t->name);
    out_printf(": %s %s", ckpt_dtype_name(r->t->dtype), shape_text(shape, r->t));
    if (r->dtype != r->t->dtype)
        out_printf(" as %s", ckpt_dtype_name(r->dtype));
    out_printf("\n");
}

/* Print text: only the first thousand elements by default, to fit a screen. */
static int cat_print_text(elements *r, const cat_args *a, ckpt_err *err)
{
    bool whole = !a->range;
    values_text v;

    if (whole && !a->whole && r->count > CAT_DEFAULT_COUNT)
        r->count = CAT_DEFAULT_COUNT;
    if (!a->cli.quiet)
        cat_head(r);
    // print a range without row brackets, because its position in the rows has little meaning
    if (whole)
        values_text_begin(&v, r->t->ndim, r->t->shape, r->t->n_elems);
    else
        values_text_begin(&v, 1, &r->count, r->count);
    int rc = elements_each(r, cat_text, &v, err);
    values_text_end(&v);
    if (rc == CKPT_OK && whole && r->count < r->t->n_elems && !a->cli.quiet)
        out_printf("... %" PRIu64 " more of %" PRIu64
                   " elements (--all prints them, --range a part)\n",
                   r->t->n_elems - r->count, r->t->n_elems);
    return rc;
}

/* Print the JSON members before values or statistics. */
static void cat_json_head(json_out *j, const elements *r)
{
    json_begin(j);
    json_text(j, "name", r->t->name);
    json_text(j, "dtype", ckpt_dtype_name(r->dtype));
    json_shape(j, "shape", r->t);
    json_uint(j, "first", r->first);
    json_uint(j, "count", r->count);
}

/* Print all requested elements, because programs read this output. */
static int cat_print_json(const elements *r, ckpt_err *err)
{
    json_out j;

    cat_json_head(&j, r);
    json_open_flat(&j, "values", '[');
    int rc = elements_each(r, cat_json, &j, err);
    json_close(&j, ']');
    json_end(&j);
    return rc;
}

/* Compute and print statistics in one pass; only the sums are kept. */
static int cat_print_stats(const elements *r, const cli_args *a, ckpt_err *err)
{
    scalar_class is = scalar_class_of(r->dtype);
    values_stats v = {0};
    json_out j;

    if (is == SCALAR_COMPLEX || is == SCALAR_BITS)
        return fail(err, CKPT_EUSAGE, "%s: --stats needs real numbers, not %s", r->t->name,
                    ckpt_dtype_name(r->dtype));
    int rc = elements_each(r, cat_stats, &v, err);
    if (rc != CKPT_OK)
        return rc;
    // without a finite element there is no minimum and no maximum
    if (v.n == v.n_nan + v.n_inf)
        v.min = v.max = v.mean = (double)NAN;
    if (a->json) {
        cat_json_head(&j, r);
        json_open(&j, "stats", '{');
        json_real(&j, "min", v.min);
        json_real(&j, "max", v.max);
        json_real(&j, "mean", v.mean);
        json_real(&j, "std", values_stats_std(&v));
        json_uint(&j, "nan", v.n_nan);
        json_uint(&j, "inf", v.n_inf);
        json_uint(&j, "zero", v.n_zero);
        json_close(&j, '}');
        json_end(&j);
        return CKPT_OK;
    }
    if (!a->quiet)
        cat_head(r);
    out_printf("min %.9g  max %.9g  mean %.9g  std %.9g\n", v.min, v.max, v.mean,
               values_stats_std(&v));
    out_printf("%" PRIu64 " elements: %" PRIu64 " zero, %" PRIu64 " NaN, %" PRIu64 " infinite\n",
               v.n, v.n_zero, v.n_nan, v.n_inf);
    return CKPT_OK;
}

/* The dtype to print: --dtype, or F32 for block-quantized elements, or the tensor's own. */
static ckpt_dtype cat_dtype(const cat_args *a, const elements *r)
{
    if (a->dtype != CKPT_DTYPE_NONE)
        return a->dtype;
    return !a->raw && ckpt_dtype_block(r->t->dtype, NULL) > 2 &&
                   ckpt_dtype_converts(CKPT_F32, r->t->dtype)
               ? CKPT_F32
               : r->t->dtype;
}

/* Find the tensor and the range, then print them in the requested way. */
static int cat_run(cli_args *cli, ckpt_err *err)
{
    cat_args *a = (cat_args *)cli;
    ckpt_map *map = NULL;
    elements r = {0};

    if (a->raw + a->cli.json > 1 || a->raw + a->stats > 1)
        return fail(err, CKPT_EUSAGE, "--raw cannot be combined with --json or --stats");
    int rc = elements_open(&map, &r, &a->cli, err);
    if (rc == CKPT_OK)
        rc = elements_set_range(&r, a->range, err);
    r.no_crc = a->no_crc;
    if (rc == CKPT_OK) {
        map_say_findings(map, false);
        effects_of_source(&a->cli, map);
    }
    if (rc == CKPT_OK)
        r.dtype = cat_dtype(a, &r);
    if (rc == CKPT_OK && !ckpt_dtype_converts(r.dtype, r.t->dtype))
        rc = fail(err, CKPT_EUSAGE, "--dtype: %s is %s, which cannot be converted to %s", r.t->name,
                  ckpt_dtype_name(r.t->dtype), ckpt_dtype_name(r.dtype));
    if (rc == CKPT_OK && !a->raw && scalar_class_of(r.dtype) == SCALAR_NONE)
        rc = fail(err, CKPT_EUNSUPPORTED, "%s: elements of %s can only be printed with --raw",
                  r.t->name, ckpt_dtype_name(r.dtype));
    if (rc == CKPT_OK && a->raw)
        rc = elements_each(&r, cat_raw, NULL, err);
    else if (rc == CKPT_OK && a->stats)
        rc = cat_print_stats(&r, &a->cli, err);
    else if (rc == CKPT_OK && a->cli.json)
        rc = cat_print_json(&r, err);
    else if (rc == CKPT_OK)
        rc = cat_print_text(&r, a, err);
    ckpt_map_free(map);
    return rc;
}

static const cli_option cat_options[] = {
    {"dtype", 0, CLI_DTYPE, offsetof(cat_args, dtype), "D", "convert to this dtype first"},
    {"range", 'r', CLI_TEXT, offsetof(cat_args, range), "FIRST:COUNT",
     "print COUNT elements from FIRST, row-major"},
    {"all", 'a', CLI_FLAG, offsetof(cat_args, whole), NULL,
     "print all elements (default: the first 1000)"},
    {"no-crc", 0, CLI_FLAG, offsetof(cat_args, no_crc), NULL,
     "read only these elements; check no CRC"},
    OPTION_IGNORE_COPIES,
    {"raw", 0, CLI_FLAG, offsetof(cat_args, raw), NULL, "write little-endian bytes"},
    {"stats", 's', CLI_FLAG, offsetof(cat_args, stats), NULL,
     "print min, max, mean, std, and counts of NaN and zero"},
    OPTION_TAG,
    {"keep-slices", 0, CLI_FLAG, offsetof(cli_args, open.keep_slices), NULL,
     "print a tensor-parallel slice: mp_rank_01/NAME"},
    OPTION_SLICE_RULES,
    OPTION_PRINT_JSON,
    {"quiet", 'q', CLI_FLAG, offsetof(cli_args, quiet), NULL, "print values only"},
    CLI_LOCAL,
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot cat_moot[] = {
    {"all", "range", NULL},
    {"quiet", "json", NULL},
    {NULL, NULL, NULL},
};

const cli_verb verb_cat = {
    .name = "cat",
    .command = "ckpt cat",
    .operands = "PATH TENSOR",
    .summary = "Print the values of a tensor.",
    .options = cat_options,
    .moot = cat_moot,
    .min = 2,
    .max = 2,
    .uses = "rt",
    .run = cat_run,
    .room = sizeof(cat_args),
};
