/* SPDX-License-Identifier: Apache-2.0 */
/* data.c: writes tensors and their parts as JSON. */
#include "tools/report/data.h"

#include <inttypes.h>
#include <string.h>

#include "tools/ckpt/report.h"

enum { DATA_RUNS = 2048 }; /* maximum number of runs of a tensor; further runs are only counted */

typedef struct data_parts {
    sheet *s;
    bool any, box;
} data_parts;

static void data_run(void *ctx, const part_run *run)
{
    data_parts *d = ctx;
    int64_t file = run->file == PARTS_NO_FILE ? -1 : (int64_t)run->file;

    if (!d->any)
        sheet_printf(d->s, ",\"%c\":[", run->box ? 'b' : 'p');
    else
        sheet_printf(d->s, ",");
    d->any = true;
    if (!run->box) {
        sheet_printf(d->s, "%" PRId64 ",%" PRIu64 ",%" PRIu64, file, run->count, run->n);
        return;
    }
    sheet_printf(d->s, "[%" PRId64, file);
    for (uint32_t k = 0; k < run->box->ndim; k++)
        sheet_printf(d->s, ",%" PRIu64 ",%" PRIu64, run->box->axis[k].start,
                     run->box->axis[k].count);
    sheet_printf(d->s, "]");
}

/* Write the statistics of the values. */
static void data_stats(sheet *s, const tensor_stats *t)
{
    const double of[] = {t->min, t->max, t->mean, t->std, t->norm};

    sheet_printf(s, ",\"t\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, t->n_nan, t->n_above,
                 t->n_below, t->n_zero);
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        sheet_printf(s, ",");
        sheet_real(s, of[k]);
    }
    sheet_printf(s, ",%u,[", t->first);
    for (unsigned k = 0; k < t->n_bins; k++)
        sheet_printf(s, "%s%" PRIu64, k ? "," : "", t->bin[k]);
    sheet_printf(s, "]]");
}

/* Write the difference to the other checkpoint's tensor of that name. */
static void data_difference(sheet *s, const difference *d)
{
    sheet_printf(s, ",\"x\":[\"%s%s\",%" PRIu64 ",",
                 d->what & DIFFER_ONLY_A  ? "only in the first"
                 : d->what & DIFFER_SHAPE ? "shape"
                 : d->what & DIFFER_DTYPE ? "dtype"
                                          : "values",
                 d->what == (DIFFER_DTYPE | DIFFER_VALUES) ? " and values" : "", d->n_different);
    if (d->what & DIFFER_VALUES && d->max_abs >= 0)
        sheet_real(s, d->max_abs);
    else
        sheet_printf(s, "null");
    sheet_printf(s, "]");
}

static void data_tensor(sheet *s, const page *p, size_t i)
{
    const ckpt_tensor *t = ckpt_map_tensor_at(p->map, i);
    const char *rest = t->name + layer_of(t->name);
    data_parts d = {.s = s};

    sheet_printf(s, "%s{\"l\":%" PRIu32 ",\"n\":", i ? ",\n" : "", p->layers->of[i]);
    sheet_string(s, rest, strlen(rest));
    sheet_printf(s, ",\"d\":%d,\"s\":[", (int)t->dtype);
    for (uint32_t k = 0; k < t->ndim; k++)
        sheet_printf(s, "%s%" PRIu64, k ? "," : "", t->shape[k]);
    sheet_printf(s, "],\"r\":%" PRIu32 ",\"z\":%" PRIu64 ",\"k\":%" PRIu32, t->role,
                 ckpt_tensor_bytes(t), t->owner ? 0 : t->n_extents);
    if (t->owner) {
        sheet_printf(s, ",\"o\":");
        sheet_string(s, t->owner->name, strlen(t->owner->name));
    }
    uint64_t left = parts_each(p->parts, t, DATA_RUNS, data_run, &d);
    sheet_printf(s, "%s", d.any ? "]" : "");
    if (left)
        sheet_printf(s, ",\"m\":%" PRIu64, left);
    if (p->stats && p->stats->at[i].known)
        data_stats(s, &p->stats->at[i]);
    if (p->differ && p->differ->at[i].what)
        data_difference(s, &p->differ->at[i]);
    sheet_printf(s, "}");
}

void data_write(sheet *s, const page *p)
{
    sheet_printf(s, "<script type=\"application/json\" id=\"data\">{\"dtypes\":[");
    for (int d = 0; d < CKPT_N_DTYPES; d++)
        sheet_printf(s, "%s\"%s\"", d ? "," : "", ckpt_dtype_name((ckpt_dtype)d));
    sheet_printf(s, "],\"roles\":[");
    for (uint32_t r = 0; r <= CKPT_ROLE_OTHER; r++)
        sheet_printf(s, "%s\"%s\"", r ? "," : "", role_name(r));
    sheet_printf(s, "],\"layers\":[");
    for (size_t i = 0; i < p->layers->n; i++) {
        sheet_printf(s, "%s", i ? "," : "");
        sheet_string(s, p->layers->at[i].name, strlen(p->layers->at[i].name));
    }
    sheet_printf(s, "],\"stats\":%s,\"bins\":%d,\"exponent\":%d,\"other\":%s",
                 p->stats ? "true" : "false", STATS_HALF, STATS_EXPONENT,
                 p->differ ? "true" : "false");
    sheet_printf(s, ",\"used\":%zu,\n\"files\":[", p->parts->n_used);
    for (size_t i = 0; i < p->parts->n_used; i++) {
        const part_file *f = &p->parts->file[i];
        const char *name = map_relative(p->map, f->path);
        sheet_printf(s, "%s[", i ? ",\n" : "");
        sheet_string(s, name, strlen(name));
        sheet_printf(s, ",%" PRIu64 ",%" PRIu64 "]", f->n_bytes, f->held);
    }
    sheet_printf(s, "],\n\"tensors\":[");
    for (size_t i = 0; i < ckpt_map_tensor_count(p->map); i++)
        data_tensor(s, p, i);
    sheet_printf(s, "]}</script>\n");
}
