/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.c: names of tensors with captures: matching them, and making names of what was captured.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/remap/rule.h"

/* Steps of one match, so that no pattern costs more than a name is worth. */
#define PAT_MAX_STEPS 20000u

static bool rpat_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool rpat_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "{layer}", "{name*}", "{rest...}" at s; n bytes with the braces, 0 if it is none of them. */
static size_t rpat_braces(ckpt_remap *r, const char *s, ckpt_rm_piece *out)
{
    size_t n = 1;

    while (rpat_word_char(s[n]))
        n++;
    if (n == 1 || rpat_digit(s[1]))
        return 0;
    out->kind = CKPT_RM_NUMBER;
    out->name = ckpt_rm_name(r, s + 1, n - 1);
    if (s[n] == '*') {
        out->kind = CKPT_RM_WORD;
        n++;
    } else if (strncmp(s + n, "...", 3) == 0) {
        out->kind = CKPT_RM_ANY;
        n += 3;
    }
    return s[n] == '}' && out->name != CKPT_RM_NO_NAME ? n + 1 : 0;
}

/* Is a name captured by one of the pieces so far? */
static bool rpat_has(const ckpt_rm_pieces *p, uint32_t name)
{
    for (size_t i = 0; i + 1 < p->n; i++) {
        if (p->at[i].kind != CKPT_RM_TEXT && p->at[i].name == name)
            return true;
    }
    return false;
}

/* The next piece; *at moves past it. */
static int rpat_piece(ckpt_remap *r, ckpt_rm_pieces *p, const char **at, unsigned *stars,
                      ckpt_err *err)
{
    ckpt_rm_piece *piece = ckpt_vec_push(p);
    const char *s = *at;
    size_t n = 0;

    if (!piece)
        return ckpt_fail_memory(err);
    if (*s == '*') {
        // stars have names of their own: the first of one side is the first of the other
        char name[16] = {'*', (char)('a' + (*stars)++)};
        piece->kind = CKPT_RM_ANY;
        piece->name = ckpt_rm_name(r, name, 2);
        n = 1;
    } else if (*s == '{') {
        n = rpat_braces(r, s, piece);
        if (n == 0)
            return ckpt_fail(err, CKPT_EUSAGE, "'%.60s': expected {name}, {name*} or {name...}", s);
    } else {
        n = strcspn(s, "*{");
        *piece = (ckpt_rm_piece){.kind = CKPT_RM_TEXT, .name = CKPT_RM_NO_NAME, .text = s, .n = n};
    }
    if (piece->kind != CKPT_RM_TEXT && rpat_has(p, piece->name))
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

/* What one piece may take at s: the least and the most bytes; false: it cannot be there. */
static bool rpat_range(const ckpt_rm_piece *p, const char *s, size_t *low, size_t *high)
{
    size_t n = 0;

    switch (p->kind) {
    case CKPT_RM_TEXT:
        *low = *high = p->n;
        return strncmp(s, p->text, p->n) == 0;
    case CKPT_RM_NUMBER:
        while (rpat_digit(s[n]))
            n++;
        *low = *high = n;
        return n > 0 && n < 10 && (n == 1 || s[0] != '0');
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
    const char *from[CKPT_RM_ATOMS], *to[CKPT_RM_ATOMS]; /* what each piece takes */
    const char *most[CKPT_RM_ATOMS];                     /* and may take */
} rpat_walk;

/* Enter piece i at s; false: it cannot begin there. */
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

/* Depth-first over the pieces, the shortest run of each first; *took: i pieces hold. */
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
            // go back to a piece that may take one byte more
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

    // most names fail at the text that a pattern begins with
    if (t->n_pieces > 0 && t->piece[0].kind == CKPT_RM_TEXT &&
        strncmp(name, t->piece[0].text, t->piece[0].n) != 0)
        return false;
    if (!rpat_search(&w, name))
        return false;
    out->n = 0;
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        if (t->piece[i].kind != CKPT_RM_TEXT)
            out->found[out->n++] =
                (ckpt_rm_found){t->piece[i].name, w.from[i], (size_t)(w.to[i] - w.from[i])};
    }
    return true;
}

/* What was captured under a name, or NULL. */
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
        if (t->piece[i].kind != CKPT_RM_TEXT && t->piece[i].name == name)
            return true;
    }
    return false;
}

bool ckpt_rm_make_name(const ckpt_rm_term *t, const ckpt_rm_capture *c, ckpt_bytes *b)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < t->n_pieces; i++) {
        const ckpt_rm_piece *p = &t->piece[i];
        const ckpt_rm_found *f = p->kind != CKPT_RM_TEXT ? rpat_captured(c, p->name) : NULL;

        if (p->kind == CKPT_RM_TEXT)
            ok = ckpt_bytes_add(b, p->text, p->n);
        else
            ok = f && ckpt_bytes_add(b, f->at, f->n);
    }
    return ok && ckpt_bytes_add(b, "", 1);
}
