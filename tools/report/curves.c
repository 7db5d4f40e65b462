/* SPDX-License-Identifier: Apache-2.0 */
/*
 * curves.c: reads the records of a metrics file into points.
 *
 * A record is an object of its own (JSON lines), or a member of the list "log_history" of an
 * object.  Records may have other members too, which are ignored.
 */
#include "tools/report/curves.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/vec.h"
#include "tools/cli/out.h"
#include "tools/report/scan.h"

/* Keys of both kinds of files; others are ignored. */
static const struct {
    const char *key;
    curve_kind kind;
} curves_keys[] = {
    {"loss", CURVE_LOSS},        {"eval_loss", CURVE_EVAL_LOSS}, {"lr", CURVE_LR},
    {"learning_rate", CURVE_LR}, {"grad_norm", CURVE_GRAD_NORM}, {"loss_scale", CURVE_LOSS_SCALE},
};

enum { CURVES_KEYS = sizeof curves_keys / sizeof *curves_keys };

/* A record during reading. */
typedef struct curves_record {
    size_t line;
    bool has_step, has[CURVE_KINDS], any, skipped;
    int64_t step;
    double value[CURVE_KINDS];
} curves_record;

const char *curve_title(curve_kind kind)
{
    static const char *const titles[] = {"loss", "evaluation loss", "learning rate",
                                         "gradient norm", "loss scale"};

    return titles[kind];
}

/* ---- points ---- */

static int curves_add(curves *c, curve_kind kind, int64_t step, double value, ckpt_err *err)
{
    curve *to = &c->of[kind];

    bool first = to->n == to->n_gaps;
    curve_point *point = ckpt_vec_push(to);

    if (!point)
        return fail(err, CKPT_ELIMIT, "%s: out of memory", c->path);
    if (isfinite(value)) {
        to->least = first || value < to->least ? value : to->least;
        to->most = first || value > to->most ? value : to->most;
    } else {
        to->n_gaps++;
    }
    *point = (curve_point){step, value};
    return CKPT_OK;
}

/* Add a record's known values as points. */
static int curves_take(curves *c, const curves_record *r, ckpt_err *err)
{
    static const char no_step[] =
        "%s: line %zu: a record has a %s, but no \"step\" that is a whole "
        "number";
    int rc = CKPT_OK;

    for (int k = 0; k < CURVE_KINDS; k++) {
        if (r->has[k] && !r->has_step)
            return fail(err, CKPT_EFORMAT, no_step, c->path, r->line, curve_title((curve_kind)k));
    }
    if (!r->any)
        return CKPT_OK;
    c->n_back += c->n_records > 0 && r->step < c->last && r->has[CURVE_LOSS];
    c->first = c->n_records == 0 || r->step < c->first ? r->step : c->first;
    c->last = c->n_records == 0 || r->step > c->last ? r->step : c->last;
    c->n_records++;
    c->n_skipped += r->skipped;
    for (int k = 0; rc == CKPT_OK && k < CURVE_KINDS; k++) {
        if (r->has[k])
            rc = curves_add(c, (curve_kind)k, r->step, r->value[k], err);
    }
    return rc;
}

/* ---- records ---- */

/* Read the value of a known key. */
static int curves_value(const curves *c, scan *s, curves_record *r, size_t k, ckpt_err *err)
{
    curve_kind kind = curves_keys[k].kind;
    size_t line = s->line;
    int rc = scan_next(s, err);

    if (rc != CKPT_OK)
        return rc;
    if (s->is != SCAN_NUMBER && s->is != SCAN_NULL)
        return fail(err, CKPT_EFORMAT, "%s: line %zu: the value of \"%s\" is %s, not a number",
                    c->path, line, curves_keys[k].key, scan_name(s->is));
    // zerotrain writes null for numbers that are not finite; Python writes NaN and Infinity
    r->value[kind] = s->is == SCAN_NULL ? (double)NAN : s->number;
    r->has[kind] = r->any = true;
    return CKPT_OK;
}

/* Read "step" or "skipped"; skip other values. */
static int curves_other(scan *s, curves_record *r, const char *key, ckpt_err *err)
{
    int rc = scan_next(s, err);

    if (rc == CKPT_OK && strcmp(key, "step") == 0 && s->is == SCAN_NUMBER &&
        fabs(s->number) < 9e15 && !(floor(s->number) < s->number)) {
        r->step = (int64_t)s->number;
        r->has_step = true;
    }
    if (rc == CKPT_OK && strcmp(key, "skipped") == 0)
        r->skipped = s->is == SCAN_TRUE;
    return rc == CKPT_OK ? scan_rest(s, err) : rc;
}

static int curves_object(curves *c, scan *s, bool top, ckpt_err *err);

/* Read the list "log_history", after its key. */
static int curves_history(curves *c, scan *s, ckpt_err *err)
{
    int rc = scan_next(s, err);

    if (rc == CKPT_OK && s->is != SCAN_LIST)
        return fail(err, CKPT_EFORMAT, "%s: line %zu: \"log_history\" is %s, not a list", c->path,
                    s->line, scan_name(s->is));
    while (rc == CKPT_OK) {
        rc = scan_next(s, err);
        if (rc != CKPT_OK || s->is == SCAN_CLOSED)
            break;
        rc = s->is == SCAN_OBJECT ? curves_object(c, s, false, err) : scan_rest(s, err);
    }
    return rc;
}

/* Read a record.  One at the top may be a trainer_state.json, with records in it. */
static int curves_object(curves *c, scan *s, bool top, ckpt_err *err)
{
    curves_record r = {.line = s->line};
    char key[SCAN_TEXT];
    int rc = CKPT_OK;

    while (rc == CKPT_OK) {
        size_t k = 0;
        rc = scan_next(s, err);
        if (rc != CKPT_OK || s->is == SCAN_CLOSED)
            break;
        memcpy(key, s->text, sizeof key);
        while (k < CURVES_KEYS && strcmp(key, curves_keys[k].key) != 0)
            k++;
        if (k < CURVES_KEYS)
            rc = curves_value(c, s, &r, k, err);
        else if (top && strcmp(key, "log_history") == 0)
            rc = curves_history(c, s, err);
        else
            rc = curves_other(s, &r, key, err);
    }
    return rc == CKPT_OK ? curves_take(c, &r, err) : rc;
}

int curves_read(curves *out, const char *path, ckpt_err *err)
{
    scan s = {.path = path, .line = 1};
    int rc = CKPT_OK;

    *out = (curves){.path = strdup(path)};
    s.file = fopen(path, "rb");
    if (!out->path || !s.file) {
        int sys = errno;
        if (s.file)
            (void)fclose(s.file);
        if (!out->path)
            return fail(err, CKPT_ELIMIT, "out of memory");
        return fail(err, sys == ENOENT || sys == ENOTDIR ? CKPT_EMISSING : CKPT_EIO,
                    "%s: cannot be opened: %s", path, strerror(sys));
    }
    while (rc == CKPT_OK) {
        rc = scan_next(&s, err);
        if (rc != CKPT_OK || s.is == SCAN_END)
            break;
        if (s.is != SCAN_OBJECT)
            rc = fail(err, CKPT_EFORMAT, "%s: line %zu: expected an object, found %s", path, s.line,
                      scan_name(s.is));
        else
            rc = curves_object(out, &s, true, err);
    }
    (void)fclose(s.file);
    if (rc == CKPT_OK && out->n_records == 0)
        rc = fail(err, CKPT_EFORMAT,
                  "%s: no record has a loss, eval_loss, lr, learning_rate, grad_norm or loss_scale",
                  path);
    return rc;
}

char *curves_beside(const char *path)
{
    static const char *const names[] = {"trainer_state.json", "metrics.jsonl",
                                        "../trainer_state.json", "../metrics.jsonl"};
    size_t room = strlen(path) + 32, n = strlen(path);
    char *at = malloc(room);
    struct stat st;

    // if the path is a file, use its folder
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        while (n > 0 && path[n - 1] != '/')
            n--;
    }
    for (size_t i = 0; at && i < sizeof names / sizeof *names; i++) {
        (void)snprintf(at, room, "%.*s%s%s", (int)n, path, n > 0 && path[n - 1] != '/' ? "/" : "",
                       names[i]);
        // the sandbox may hide the file; then treat it as missing
        FILE *file = fopen(at, "rb");
        if (file) {
            (void)fclose(file);
            return at;
        }
    }
    free(at);
    return NULL;
}

void curves_free(curves *c)
{
    for (int k = 0; k < CURVE_KINDS; k++)
        ckpt_vec_free(&c->of[k]);
    free(c->path);
    *c = (curves){0};
}
