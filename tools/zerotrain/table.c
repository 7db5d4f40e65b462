/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c: prints an evaluation: scikit-learn's classification report, or a JSON document with its
 * members (classification_report with output_dict).
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/codec/json/json.h"
#include "tools/zerotrain/zerotrain.h"

/* Characters of a text in UTF-8. */
static int table_width(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* Name of class i; room is for its number, if it has no name. */
static const char *table_name(const zt_score *s, size_t i, char room[24])
{
    (void)snprintf(room, 24, "%zu", i);
    return s->classes[i].name ? s->classes[i].name : room;
}

/* Print a name at the right of its column; control characters of a name become '?'. */
static void table_head(FILE *out, const char *name, int width)
{
    fprintf(out, "%*s", width > table_width(name) ? width - table_width(name) : 0, "");
    for (; *name; name++)
        (void)fputc((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name, out);
}

static void table_row(FILE *out, const char *name, int width, const zt_measures *m, double support)
{
    table_head(out, name, width);
    fprintf(out, "  %9.2f %9.2f %9.2f %9.0f\n", m->precision, m->recall, m->f1, support);
}

void table_print(FILE *out, const zt_score *s)
{
    const zt_measures macro = zt_measures_mean(s->classes, s->n_classes, false);
    const zt_measures weighted = zt_measures_mean(s->classes, s->n_classes, true);
    int width = (int)strlen("weighted avg");
    double all = 0;
    char room[24];

    for (size_t i = 0; i < s->n_classes; i++) {
        int n = table_width(table_name(s, i, room));
        width = n > width ? n : width;
        all += s->classes[i].support;
    }
    fprintf(out, "%*s  %9s %9s %9s %9s\n\n", width, "", "precision", "recall", "f1-score",
            "support");
    for (size_t i = 0; i < s->n_classes; i++) {
        const zt_measures m = zt_measures_of(&s->classes[i]);
        table_row(out, table_name(s, i, room), width, &m, s->classes[i].support);
    }
    (void)fputc('\n', out);
    table_head(out, "accuracy", width);
    fprintf(out, "  %9s %9s %9.2f %9.0f\n", "", "", s->accuracy, all);
    table_row(out, "macro avg", width, &macro, all);
    table_row(out, "weighted avg", width, &weighted, all);
}

/* Write a member of a JSON object; null if the number is not finite. */
static bool table_number(ckpt_bytes *to, const char *key, double v)
{
    if (!isfinite(v))
        return ckpt_bytes_printf(to, ", \"%s\": null", key);
    return ckpt_bytes_printf(to, ", \"%s\": %.17g", key, v);
}

static bool table_member(ckpt_bytes *to, const char *before, const char *name, const zt_measures *m,
                         double support)
{
    return ckpt_bytes_printf(to, "%s", before) && ckpt_json_string(to, name, strlen(name), false) &&
           ckpt_bytes_printf(to,
                             ": {\"precision\": %.17g, \"recall\": %.17g, \"f1-score\": %.17g, "
                             "\"support\": %.17g}",
                             m->precision, m->recall, m->f1, support);
}

/* The report: classes, accuracy, averages. */
static bool table_report(ckpt_bytes *to, const zt_score *s)
{
    const zt_measures macro = zt_measures_mean(s->classes, s->n_classes, false);
    const zt_measures weighted = zt_measures_mean(s->classes, s->n_classes, true);
    bool ok = ckpt_bytes_printf(to, ", \"report\": {");
    double all = 0;
    char room[24];

    for (size_t i = 0; ok && i < s->n_classes; i++) {
        const zt_measures m = zt_measures_of(&s->classes[i]);
        ok = table_member(to, i ? ", " : "", table_name(s, i, room), &m, s->classes[i].support);
        all += s->classes[i].support;
    }
    return ok && table_number(to, "accuracy", s->accuracy) &&
           table_member(to, ", ", "macro avg", &macro, all) &&
           table_member(to, ", ", "weighted avg", &weighted, all) && ckpt_bytes_add(to, "}", 1);
}

int table_json(FILE *out, const zt_score *s, int64_t step, ckpt_err *err)
{
    ckpt_bytes text = {0};
    bool ok = ckpt_bytes_printf(&text, "{\"step\": %" PRId64 ", \"samples\": %" PRIu64, step,
                                s->samples) &&
              table_number(&text, "loss", s->loss);

    if (isfinite(s->perplexity) || isinf(s->perplexity))
        ok = ok && table_number(&text, "perplexity", s->perplexity);
    if (s->n_classes > 0)
        ok = ok && table_number(&text, "accuracy", s->accuracy) && table_report(&text, s);
    ok = ok && ckpt_bytes_add(&text, "}\n", 2);
    if (ok)
        (void)fwrite(text.at, 1, text.n, out);
    ckpt_vec_free(&text);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}
