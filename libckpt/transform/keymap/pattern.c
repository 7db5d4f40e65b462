/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.c: matches names of tensors with captures, and makes names from captures.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/transform/keymap/rule.h"

/* Limit of steps of one match, so that a pattern cannot cost too much. */
#define PAT_MAX_STEPS 20000u

static bool rpat_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool rpat_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Parse the number after a sign, "+2" or ":2"; returns its bytes, 0: there is none. */
static size_t rpat_number(const char *s, char sign, uint32_t *out)
{
    size_t n = 1;

    if (*s != sign || !rpat_digit(s[1]))
        return 0;
    for (*out = 0; n < 6 && rpat_digit(s[n]); n++)
        *out = *out * 10 + (uint32_t)(s[n] - '0');
    return n;
}

/* Parse the text in braces at s; returns its bytes with the braces, 0: it is malformed. */
static size_t rpat_braces(ckpt_remap *r, const char *s, ckpt_rm_piece *out)
{
    size_t n = 1;

    if (s[1] == '=') {
        const char *stop = strchr(s, '}');
        out->kind = CKPT_RM_EXPR;
        out->name = CKPT_RM_NO_NAME;
        out->from = stop ? ckpt_arena_string(r->arena, s + 2, (size_t)(stop - s) - 2) : NULL;
        return out->from ? (size_t)(stop - s) + 1 : 0;
    }
    while (rpat_word_char(s[n]))
        n++;
    if (n == 1 || rpat_digit(s[1]))
        return 0;
    out->kind = CKPT_RM_NUMBER;
    out->name = ckpt_rm_name(r, s + 1, n - 1);
    out->width = 1;
    if (s[n] == '*') {
        out->kind = CKPT_RM_WORD;
        n++;
    } else if (strncmp(s + n, "...", 3) == 0) {
        out->kind = CKPT_RM_ANY;
        n += 3;
    } else {
        n += rpat_number(s + n, '+', &out->plus);
        n += rpat_number(s + n, ':', &out->width);
    }
    return s[n] == '}' && out->name != CKPT_RM_NO_NAME && out->width < 20 ? n + 1 : 0;
}

bool ckpt_rm_takes(const ckpt_rm_piece *p)
{
    return p->kind != CKPT_RM_TEXT && p->kind != CKPT_RM_EXPR;
}

/* True if an earlier piece captures a name. */
static bool rpat_has(const ckpt_rm_pieces *p, uint32_t name)
{
    for (size_t i = 0; i + 1 < p->n; i++) {
        if (ckpt_rm_takes(&p->at[i]) && p->at[i].name == name)
            return true;
    }
    return false;
}

/* Parse the next piece; *at moves past it. */
static int rpat_piece(ckpt_remap *r, ckpt_rm_pieces *p, const char **at, unsigned *stars,
                      ckpt_err *err)
{
    ckpt_rm_piece *piece = ckpt_vec_push(p);
    const char *s = *at;
    size_t n = 0;

    if (!piece)
        return ckpt_fail_memory(err);
    if (*s == '*') {
        // stars get names by position: the first of one side has the name of the first of the other
        char name[16] = {'*', (char)('a' + (*stars)++)};
        piece->kind = CKPT_RM_ANY;
        piece->name = ckpt_rm_name(r, name, 2);
        n = 1;
    } else if (*s == '{') {
        n = rpat_braces(r, s, piece);
        if (n == 0)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "'%.60s': expected {name}, {name+1}, {name:2}, {name*}, "
                             "{name...} or {=expression}",
                             s);
    } else {
        n = strcspn(s, "*{");
        *piece = (ckpt_rm_piece){.kind = CKPT_RM_TEXT, .name = CKPT_RM_NO_NAME, .text = s, .n = n};
    }
    if (ckpt_rm_takes(piece) && rpat_has(p, piece->name))
        return ckpt_fail(err, CKPT_EUSAGE, "'%.60s': captured twice", s);
    *at = s + n;
    return CKPT_OK;
}

int ckpt_rm_pattern(ckpt_remap *r, ckpt_rm_term *out, const char *text, unsigned line,
                    ckpt_err *err)
{
    ckpt_rm_pieces p = {0};
    const char *at = text;
    unsigned stars = 0;
    ckpt_err why = {0};
    int rc = CKPT_OK;

    out->text = text;
    while (rc == CKPT_OK && *at) {
        if (p.n >= CKPT_RM_ATOMS)
            rc = ckpt_fail(&why, CKPT_EUSAGE, "'%.60s': more than %d captures and stars", text,
                           CKPT_RM_ATOMS / 2);
        else
            rc = rpat_piece(r, &p, &at, &stars, &why);
    }
    out->piece = rc == CKPT_OK ? ckpt_arena_copy(r->arena, p.at, p.n * sizeof *p.at) : NULL;
    out->n_pieces = (uint32_t)p.n;
    ckpt_vec_free(&p);
    if (rc != CKPT_OK)
        return ckpt_fail(err, rc, "%s:%u: %s", r->name, line, why.text);
    return out->piece ? CKPT_OK : ckpt_fail_memory(err);
}

/* The fewest and the most bytes that a piece can match at s; false: it cannot match. */
static bool rpat_range(const ckpt_rm_piece *p, const char *s, size_t *low, size_t *high)
{
    size_t n = 0;
    uint64_t number = 0;

    switch (p->kind) {
    case CKPT_RM_TEXT:
    case CKPT_RM_EXPR:
        *low = *high = p->n;
        return p->text && strncmp(s, p->text, p->n) == 0;
    case CKPT_RM_NUMBER:
        while (rpat_digit(s[n]))
            n++;
        *low = *high = n;
        return n >= p->width && n < 10 && (n == p->width || s[0] != '0') &&
               ckpt_scan_u64(s, &number) && number >= p->plus;
    case CKPT_RM_WORD:
        *low = 1;
        *high = strcspn(s, ".");
        return *high > 0;
    case CKPT_RM_ANY:
    default:
        *low = 0;
        *high = strlen(s);
        return true;
    }
}

typedef struct rpat_walk {
    const ckpt_rm_term *t;
    const char *from[CKPT_RM_ATOMS], *to[CKPT_RM_ATOMS]; /* the match of each piece */
    const char *most[CKPT_RM_ATOMS];                     /* and its longest possible match */
} rpat_walk;

/* Start piece i at s; false: it cannot match there. */
static bool rpat_enter(rpat_walk *w, uint32_t i, const char *s)
{
    size_t low, high;

    if (!rpat_range(&w->t->piece[i], s, &low, &high))
        return false;
    w->from[i] = s;
    w->to[i] = s + low;
    w->most[i] = s + high;
    return true;
}

/* Search depth-first over the pieces, the shortest match of each first. */
static bool rpat_search(rpat_walk *w, const char *name)
{
    uint32_t i = 0;
    bool ok = true;
    const char *s = name;

    for (unsigned steps = 0; steps < PAT_MAX_STEPS; steps++) {
        if (ok && i == w->t->n_pieces) {
            if (*s == 0)
                return true;
            ok = false;
        } else if (ok) {
            ok = rpat_enter(w, i, s);
            s = ok ? w->to[i] : s;
            i += ok;
        } else {
            // go back to a piece that can match one byte more
            while (i > 0 && w->to[i - 1] >= w->most[i - 1])
                i--;
            if (i == 0)
                return false;
            s = ++w->to[i - 1];
            ok = true;
        }
    }
    return false;
}

bool ckpt_rm_match(const ckpt_rm_term *t, const char *name, ckpt_rm_capture *out)
{
    rpat_walk w = {.t = t};

    // fast path, because most names differ from the text at the start of a pattern
    if (t->n_pieces > 0 && t->piece[0].kind == CKPT_RM_TEXT &&
        strncmp(name, t->piece[0].text, t->piece[0].n) != 0)
        return false;
    if (!rpat_search(&w, name))
        return false;
    out->n = 0;
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        const ckpt_rm_piece *p = &t->piece[i];
        ckpt_rm_found *f = &out->found[out->n];

        if (!ckpt_rm_takes(p))
            continue;
        *f = (ckpt_rm_found){p->name, w.from[i], (size_t)(w.to[i] - w.from[i]), 0};
        if (p->kind == CKPT_RM_NUMBER) {
            uint64_t number = 0;
            (void)ckpt_scan_u64(w.from[i], &number); // a number, as rpat_range has checked
            *f = (ckpt_rm_found){p->name, NULL, 0, number - p->plus};
        }
        out->n++;
    }
    return true;
}

/* The capture with a name, or NULL. */
static const ckpt_rm_found *rpat_captured(const ckpt_rm_capture *c, uint32_t name)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->found[i].name == name)
            return &c->found[i];
    }
    return NULL;
}

bool ckpt_rm_captures(const ckpt_rm_term *t, uint32_t name)
{
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        if (ckpt_rm_takes(&t->piece[i]) && t->piece[i].name == name)
            return true;
    }
    return false;
}

bool ckpt_rm_make_name(const ckpt_rm_term *t, const ckpt_rm_capture *c, ckpt_bytes *b)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < t->n_pieces; i++) {
        const ckpt_rm_piece *p = &t->piece[i];
        const ckpt_rm_found *f = ckpt_rm_takes(p) ? rpat_captured(c, p->name) : NULL;

        if (!ckpt_rm_takes(p))
            ok = p->text && ckpt_bytes_add(b, p->text, p->n);
        else if (f && !f->at)
            ok = ckpt_bytes_printf(b, "%0*" PRIu64, (int)p->width, f->number + p->plus);
        else
            ok = f && ckpt_bytes_add(b, f->at, f->n);
    }
    return ok && ckpt_bytes_add(b, "", 1);
}
