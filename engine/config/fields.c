/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fields.c: reads the objects of a configuration by their tables: types, ranges, refusals.
 *
 * Values are converted as in pydantic, by which DeepSpeed checks its typed blocks: 2e8 and "2" are
 * integers, 980.1 is not; "yes" and 1 are true.  One difference: true and false given for a number
 * are refused here, while pydantic reads 1 and 0.
 */
#include "engine/config/fields.h"
#include "libckpt/base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FD_TOP 9223372036854775808.0 // 2^63

/* ---- messages ---- */

int ds_note(ds_context *x, const char *fmt, ...)
{
    char line[512];
    va_list ap;

    if (x->n_notes == DS_NOTES)
        return CKPT_OK;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    x->note[x->n_notes] = ckpt_arena_string(x->arena, line, strlen(line));
    if (!x->note[x->n_notes])
        return ckpt_fail_memory(x->err);
    x->n_notes++;
    return CKPT_OK;
}

const char *ds_show(const ckpt_value *v, char out[DS_SHOWN])
{
    if (v->kind == CKPT_V_BOOL)
        (void)snprintf(out, DS_SHOWN, "%s", v->as.i ? "true" : "false");
    else if (v->kind == CKPT_V_INT)
        (void)snprintf(out, DS_SHOWN, "%" PRId64, v->as.i);
    else if (v->kind == CKPT_V_FLOAT)
        (void)snprintf(out, DS_SHOWN, "%.12g", v->as.f);
    else if (v->kind == CKPT_V_STR)
        (void)snprintf(out, DS_SHOWN, "\"%.48s%s\"", v->as.text.at, v->as.text.n > 48 ? "..." : "");
    else if (v->kind == CKPT_V_NONE)
        (void)snprintf(out, DS_SHOWN, "null");
    else
        (void)snprintf(out, DS_SHOWN, v->kind == CKPT_V_LIST ? "a list" : "an object");
    return out;
}

/* The full name of a key, with its block: "zero_optimization.stage". */
enum { FD_PATH = 120 };
static const char *fd_path(const ds_block *b, const char *key, char out[FD_PATH])
{
    (void)snprintf(out, FD_PATH, "%s%s%.64s", b->name, b->name[0] != '\0' ? "." : "", key);
    return out;
}

bool ds_is_auto(const ckpt_value *v)
{
    return ckpt_value_is(v, "auto");
}

ckpt_value *ds_find(const ckpt_value *root, const char *path)
{
    char name[FD_PATH];
    const char *dot = strchr(path, '.');
    ckpt_value *v;

    while (dot && (size_t)(dot - path) < sizeof name) {
        memcpy(name, path, (size_t)(dot - path));
        name[dot - path] = '\0';
        v = ckpt_value_get(root, name);
        if (!v)
            return NULL;
        root = v;
        path = dot + 1;
        dot = strchr(path, '.');
    }
    return ckpt_value_get(root, path);
}

/* ---- unknown keys ---- */

enum { FD_WORD = 48 };

static size_t fd_least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;

    return ab < c ? ab : c;
}

/* Edit distance from a to b (insert, delete, change a letter); FD_WORD if a word is too long. */
static size_t fd_distance(const char *a, const char *b)
{
    size_t row[FD_WORD + 1], n = strlen(b);

    if (strlen(a) >= FD_WORD || n >= FD_WORD)
        return FD_WORD;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t up = row[j + 1];

            row[j + 1] = fd_least(up + 1, row[j] + 1, diagonal + (a[i] != b[j]));
            diagonal = up;
        }
    }
    return row[n];
}

/* The table's key that is nearest to an unknown one (at most a third may differ), or NULL. */
static const char *fd_nearest(const ds_block *b, const char *key)
{
    size_t best = strlen(key) / 3 + 1;
    const char *found = NULL;

    for (size_t i = 0; i < b->n; i++) {
        size_t d = fd_distance(key, b->key[i].name);

        if (d < best) {
            best = d;
            found = b->key[i].name;
        }
    }
    return found;
}

/* Refuse an unknown key in a typed block; elsewhere DeepSpeed ignores it, so only add a note. */
static int fd_unknown(ds_context *x, const ds_block *b, const char *key)
{
    char path[FD_PATH];
    const char *near;

    // Do not search for similar keys once no more notes are kept: a text may have very many wrong
    // keys.
    if (!b->typed && x->n_notes == DS_NOTES)
        return CKPT_OK;
    near = fd_nearest(b, key);
    (void)fd_path(b, key, path);
    if (b->typed)
        return ckpt_fail(x->err, CKPT_EUNSUPPORTED, "%s: %s is not a known key%s%s%s", x->name,
                         path, near ? ": did you mean " : "", near ? near : "",
                         near ? "?" : "; remove it");
    x->loud[x->n_notes] = true;
    return ds_note(x, "%s is not a known key and is ignored%s%s%s", path,
                   near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
}

/* ---- values ---- */

static bool fd_as_bool(const ckpt_value *v, bool *out)
{
    static const char *const yes[] = {"true", "1", "yes", "on", "t", "y"};
    static const char *const no[] = {"false", "0", "no", "off", "f", "n"};
    double f = v->kind == CKPT_V_FLOAT ? v->as.f : 2.0;

    if (v->kind == CKPT_V_BOOL || v->kind == CKPT_V_INT)
        f = v->as.i == 0 ? 0.0 : v->as.i == 1 ? 1.0 : 2.0;
    for (size_t i = 0; v->kind == CKPT_V_STR && i < sizeof yes / sizeof yes[0]; i++) {
        f = strcasecmp(v->as.text.at, yes[i]) == 0 ? 1.0 : f;
        f = strcasecmp(v->as.text.at, no[i]) == 0 ? 0.0 : f;
    }
    *out = f == 1.0;
    return f == 0.0 || f == 1.0;
}

/* True for a text without zero bytes. */
static bool fd_is_text(const ckpt_value *v)
{
    return v->kind == CKPT_V_STR && strlen(v->as.text.at) == v->as.text.n;
}

static bool fd_as_int(const ckpt_value *v, bool typed, int64_t *out)
{
    if (v->kind == CKPT_V_INT) {
        *out = v->as.i;
        return true;
    }
    if (v->kind == CKPT_V_FLOAT && v->as.f == floor(v->as.f) && fabs(v->as.f) < FD_TOP) {
        *out = (int64_t)v->as.f;
        return true;
    }
    return typed && fd_is_text(v) && ckpt_parse_i64(v->as.text.at, out);
}

static bool fd_as_real(const ckpt_value *v, bool typed, double *out)
{
    if (v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT) {
        *out = v->kind == CKPT_V_INT ? (double)v->as.i : v->as.f;
        return isfinite(*out);
    }
    return typed && fd_is_text(v) && ckpt_parse_f64(v->as.text.at, out);
}

/* Describe the values that a key accepts, for messages. */
static const char *fd_expected(const ds_key *k, char *out, size_t room)
{
    static const char *const plain[] = {
        [DS_BOOL] = "true or false", [DS_INT] = "an integer", [DS_SIZE] = "an integer",
        [DS_REAL] = "a number",      [DS_TEXT] = "a string",  [DS_CHOICE] = "one of",
        [DS_TREE] = "an object",     [DS_ANY] = "anything",   [DS_SWITCH] = "an object",
        [DS_BLOCK] = "an object",
    };
    bool ranged = k->kind == DS_INT || k->kind == DS_SIZE || k->kind == DS_REAL;
    size_t n = (size_t)snprintf(out, room, "%s", plain[k->kind]);

    if (ranged && k->min > -FD_TOP)
        n += (size_t)snprintf(out + n, room - n, " from %.12g", k->min);
    if (ranged && k->max < FD_TOP)
        (void)snprintf(out + n, room - n, " to %.12g", k->max);
    for (size_t i = 0; k->kind == DS_CHOICE && k->choice[i] && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s %s", i > 0 ? "," : "", k->choice[i]);
    return out;
}

static int fd_wrong(const ds_context *x, const ds_block *b, const ds_key *k, const ckpt_value *v)
{
    char path[FD_PATH], shown[DS_SHOWN], expected[192];

    (void)fd_expected(k, expected, sizeof expected);
    return ckpt_fail(x->err, CKPT_EUSAGE, "%s: %s is %s; expected %s", x->name,
                     fd_path(b, k->name, path), ds_show(v, shown), expected);
}

static int fd_refused(const ds_context *x, const ds_block *b, const ds_key *k)
{
    char path[FD_PATH];

    return ckpt_fail(x->err, CKPT_EUNSUPPORTED, "%s: %s is not supported: %s", x->name,
                     fd_path(b, k->name, path), k->why);
}

/* Store a number in the key's range at `to`, as integer or double (NULL: only check it). */
static bool fd_put_number(const ds_key *k, bool typed, const ckpt_value *v, void *to)
{
    int64_t i = 0;
    double f = 0;
    bool ok = k->kind == DS_REAL ? fd_as_real(v, typed, &f) : fd_as_int(v, typed, &i);

    f = k->kind == DS_REAL ? f : (double)i;
    ok = ok && f >= k->min && f <= k->max;
    if (!ok || !to)
        return ok;
    if (k->kind == DS_REAL) {
        *(double *)to = f;
    } else if (k->kind == DS_SIZE) {
        *(uint64_t *)to = (uint64_t)i; // safe, because min is never below 0
    } else {
        *(int64_t *)to = i;
    }
    return true;
}

static bool fd_put_choice(const ds_key *k, const ckpt_value *v, void *to)
{
    for (int i = 0; v->kind == CKPT_V_STR && k->choice[i]; i++) {
        int order =
            k->fold ? strcasecmp(v->as.text.at, k->choice[i]) : strcmp(v->as.text.at, k->choice[i]);

        if (order == 0 && strlen(k->choice[i]) == v->as.text.n) {
            if (to)
                *(int *)to = i;
            return true;
        }
    }
    return false;
}

/* Check a value and store it at `to` (NULL: only check it); false: wrong kind or range. */
static bool fd_put(const ds_key *k, bool typed, const ckpt_value *v, void *to)
{
    bool b = false;

    switch (k->kind) {
    case DS_BOOL:
        if (!fd_as_bool(v, &b))
            return false;
        if (to)
            *(bool *)to = b;
        return true;
    case DS_INT:
    case DS_SIZE:
    case DS_REAL:
        return fd_put_number(k, typed, v, to);
    case DS_TEXT:
        if (v->kind == CKPT_V_STR && to)
            *(const char **)to = v->as.text.at;
        return v->kind == CKPT_V_STR && strlen(v->as.text.at) == v->as.text.n;
    case DS_CHOICE:
        return fd_put_choice(k, v, to);
    case DS_TREE:
        if (v->kind == CKPT_V_DICT && to)
            *(const ckpt_value **)to = v;
        return v->kind == CKPT_V_DICT;
    case DS_ANY:
        return true;
    case DS_SWITCH:
    case DS_BLOCK:
        break;
    }
    return v->kind == CKPT_V_DICT;
}

/* ---- keys that must be off ---- */

/*
 * True if the value switches nothing on: false, null, "auto", {}, or a number up to the key's max
 * (true instead of false if the key's min is above 0).
 */
static bool fd_is_off(const ds_key *k, const ckpt_value *v)
{
    bool b = false;

    if (v->kind == CKPT_V_NONE || ds_is_auto(v))
        return true;
    if (k->kind == DS_INT)
        return v->kind != CKPT_V_BOOL && fd_put_number(k, true, v, NULL);
    if (v->kind == CKPT_V_DICT)
        return v->as.map.n == 0;
    return fd_as_bool(v, &b) && b == (k->min > 0);
}

static int fd_read_off(ds_context *x, const ds_block *b, const ds_key *k, const ckpt_value *v)
{
    const ckpt_value *member = k->kind == DS_SWITCH ? ckpt_value_get(v, k->other) : v;
    char path[FD_PATH];
    bool on = false;

    if (k->kind == DS_SWITCH) {
        if (v->kind != CKPT_V_DICT && v->kind != CKPT_V_NONE)
            return fd_wrong(x, b, k, v);
        if (!member || member->kind == CKPT_V_NONE || ds_is_auto(member))
            return ds_note(x, "%s is switched off and ignored", fd_path(b, k->name, path));
        if (!fd_as_bool(member, &on))
            return ckpt_fail(x->err, CKPT_EUSAGE, "%s: %s.%s: expected true or false", x->name,
                             fd_path(b, k->name, path), k->other);
        if (on && k->fate == DS_IDLE)
            return ds_note(x, "%s has no effect here: %s", fd_path(b, k->name, path), k->why);
        if (on)
            return ckpt_fail(x->err, CKPT_EUNSUPPORTED, "%s: %s.%s is not supported: %s", x->name,
                             fd_path(b, k->name, path), k->other, k->why);
        return ds_note(x, "%s is switched off and ignored", fd_path(b, k->name, path));
    }
    return fd_is_off(k, v) ? CKPT_OK : fd_refused(x, b, k);
}

/* ---- one key, one block ---- */

static const ds_key *fd_lookup(const ds_block *b, const ckpt_value *key)
{
    for (size_t i = 0; i < b->n; i++) {
        const ds_key *k = &b->key[i];

        if (ckpt_value_is(key, k->name) ||
            (k->other && k->kind != DS_SWITCH && ckpt_value_is(key, k->other)))
            return k;
    }
    return NULL;
}

/*
 * Read a nested block.  A block with an offset of its own may also be true or false, stored as 1
 * and 0.
 */
static int fd_read_block(ds_context *x, const ds_key *k, const ckpt_value *v, ds_draft *d)
{
    if (k->at != 0 && v->kind == CKPT_V_BOOL) {
        *(int64_t *)((char *)d + k->at) = v->as.i;
        return ds_note(x, "%s: true and false are the old form; write an object with \"stage\"",
                       k->name);
    }
    return v->kind == CKPT_V_DICT ? ds_read(x, k->block, v, d) : fd_wrong(x, &ds_file, k, v);
}

/* Handle an "auto" that no argument filled: typed blocks take the default, others fail, because
 * DeepSpeed has no default for them. */
static int fd_read_auto(ds_context *x, const ds_block *b, const ds_key *k)
{
    char path[FD_PATH];

    (void)fd_path(b, k->name, path);
    if (b->typed || strcmp(path, "gradient_clipping") == 0)
        return ds_note(x, "%s is \"auto\": the default is taken", path);
    return ckpt_fail(x->err, CKPT_EUSAGE,
                     "%s: %s is \"auto\", but no option or default gives its value; write a value",
                     x->name, path);
}

static int fd_read_key(ds_context *x, const ds_block *b, const ds_key *k, const ckpt_value *v,
                       ds_draft *d)
{
    char path[FD_PATH];

    if (k->fate == DS_GONE)
        return fd_refused(x, b, k);
    if (k->fate == DS_OFF || k->kind == DS_SWITCH)
        return fd_read_off(x, b, k, v);
    if (ds_is_auto(v) && k->kind != DS_ANY)
        return fd_read_auto(x, b, k);
    if (v->kind == CKPT_V_NONE && (k->nullable || !b->typed))
        return CKPT_OK;
    if (k->kind == DS_BLOCK)
        return fd_read_block(x, k, v, d);
    if (!fd_put(k, b->typed, v, k->fate == DS_USED ? (char *)d + k->at : NULL))
        return fd_wrong(x, b, k, v);
    if (k->why)
        return ds_note(x, "%s has no effect here: %s", fd_path(b, k->name, path), k->why);
    return CKPT_OK;
}

int ds_read(ds_context *x, const ds_block *b, const ckpt_value *object, ds_draft *d)
{
    ckpt_dict map = ckpt_value_map(object);

    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *key = map.at[i].key;
        const ds_key *k = fd_lookup(b, key);
        int rc;

        if (!k)
            rc = fd_unknown(x, b, key->as.text.at);
        else if (k->other && k->kind != DS_SWITCH && ckpt_value_is(key, k->other) &&
                 ckpt_value_get(object, k->name))
            rc = ckpt_fail(x->err, CKPT_EUSAGE, "%s: %s and %s are one key; keep one", x->name,
                           k->name, k->other);
        else
            rc = fd_read_key(x, b, k, map.at[i].value, d);
        if (rc != CKPT_OK)
            return rc;
    }
    return CKPT_OK;
}
