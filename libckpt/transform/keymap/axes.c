/* SPDX-License-Identifier: Apache-2.0 */
/*
 * axes.c: parses "(group q|k|v d) in": the axes of a tensor, split into named atoms, in the
 * notation of einops.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/transform/keymap/rule.h"

/* State of the parser. */
typedef struct ax_text {
    ckpt_remap *r;
    const char *at;
    unsigned line;
    ckpt_err *err;
    uint32_t n_axes, n_atoms;
    ckpt_rm_atom atom[CKPT_RM_ATOMS];
} ax_text;

static int ax_fail(const ax_text *x, const char *what)
{
    return ckpt_fail(x->err, CKPT_EUSAGE, "%s:%u: axes: %s at '%.40s'", x->r->name, x->line, what,
                     x->at);
}

static void ax_blanks(ax_text *x)
{
    x->at += strspn(x->at, " \t");
}

static size_t ax_name_length(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");

    return *s >= '0' && *s <= '9' ? 0 : n;
}

/* True if the term already has this name, because each name may occur only once. */
static bool ax_taken(const ax_text *x, uint32_t name)
{
    for (uint32_t i = 0; i < x->n_atoms; i++) {
        for (uint32_t k = 0; k < x->atom[i].n_parts; k++) {
            if (x->atom[i].part[k] == name)
                return true;
        }
    }
    return false;
}

/* Parse a|b|c, or one name. */
static int ax_parts(ax_text *x, ckpt_rm_atom *atom)
{
    uint32_t part[CKPT_RM_PARTS], n = 0;

    for (;;) {
        size_t length = ax_name_length(x->at);
        if (length == 0)
            return ax_fail(x, "expected a name, a 1, '...' or a parenthesis");
        if (n == CKPT_RM_PARTS)
            return ax_fail(x, "too many parts");
        part[n] = ckpt_rm_name(x->r, x->at, length);
        if (part[n] == CKPT_RM_NO_NAME)
            return ax_fail(x, "the layout map has too many names");
        for (uint32_t k = 0; k < n; k++) {
            if (part[k] == part[n])
                return ax_fail(x, "the name appears twice");
        }
        if (ax_taken(x, part[n]))
            return ax_fail(x, "the name appears twice");
        n++;
        x->at += length;
        ax_blanks(x);
        if (*x->at != '|')
            break;
        x->at++;
        ax_blanks(x);
    }
    atom->n_parts = n;
    atom->part = ckpt_arena_copy(x->r->arena, part, n * sizeof *part);
    return atom->part ? CKPT_OK : ckpt_fail_memory(x->err);
}

static bool ax_has_rest(const ax_text *x)
{
    for (uint32_t i = 0; i < x->n_atoms; i++) {
        if (x->atom[i].rest)
            return true;
    }
    return false;
}

/* Parse one atom of the axis x->n_axes. */
static int ax_atom(ax_text *x, bool inside)
{
    ckpt_rm_atom atom = {.axis = x->n_axes};
    int rc = CKPT_OK;

    if (x->n_atoms == CKPT_RM_ATOMS)
        return ax_fail(x, "too many names");
    if (strncmp(x->at, "...", 3) == 0) {
        if (inside || ax_has_rest(x))
            return ax_fail(x, "'...' can appear only once, and not in parentheses");
        atom.rest = true;
        x->at += 3;
    } else if (*x->at == '1') {
        x->at++;
        if (*x->at && !strchr(" \t()", *x->at))
            return ax_fail(x, "1 is the only number allowed as an axis");
    } else {
        rc = ax_parts(x, &atom);
    }
    if (rc == CKPT_OK)
        x->atom[x->n_atoms++] = atom;
    ax_blanks(x);
    return rc;
}

/* Parse one axis: an atom, or several in parentheses. */
static int ax_axis(ax_text *x)
{
    int rc = CKPT_OK;

    if (*x->at != '(') {
        rc = ax_atom(x, false);
    } else {
        x->at++;
        ax_blanks(x);
        while (rc == CKPT_OK && *x->at != ')')
            rc = *x->at ? ax_atom(x, true) : ax_fail(x, "a parenthesis is not closed");
        x->at += rc == CKPT_OK;
        ax_blanks(x);
    }
    x->n_axes++;
    return rc;
}

/* Parse the axes up to the end or a ';' into the last term. */
static int ax_piece(ax_text *x, ckpt_rm_term *out)
{
    int rc = CKPT_OK;

    x->n_axes = x->n_atoms = 0;
    ax_blanks(x);
    while (rc == CKPT_OK && *x->at && *x->at != ';')
        rc = ax_axis(x);
    if (rc != CKPT_OK)
        return rc;
    if ((*x->at || out->follows) && (ax_has_rest(x) || x->n_axes == 0))
        return ax_fail(x, "rows need names for all axes");
    out->n_axes = x->n_axes;
    out->n_atoms = x->n_atoms;
    out->atom = ckpt_arena_copy(x->r->arena, x->atom, x->n_atoms * sizeof *x->atom);
    return out->atom ? CKPT_OK : ckpt_fail_memory(x->err);
}

int ckpt_rm_axes(ckpt_remap *r, ckpt_rm_terms *terms, const char *text, unsigned line,
                 ckpt_err *err)
{
    ax_text x = {.r = r, .at = text, .line = line, .err = err};
    int rc = ax_piece(&x, &terms->at[terms->n - 1]);

    while (rc == CKPT_OK && *x.at == ';') {
        ckpt_rm_term next = terms->at[terms->n - 1];
        ckpt_rm_term *slot = terms->n < CKPT_RM_TERMS ? ckpt_vec_push(terms) : NULL;

        if (!slot)
            return terms->n < CKPT_RM_TERMS ? ckpt_fail_memory(err)
                                            : ax_fail(&x, "too many tensors in one rule");
        next.follows = true;
        *slot = next;
        x.at++;
        rc = ax_piece(&x, slot);
        if (rc == CKPT_OK && slot->n_axes != terms->at[terms->n - 2].n_axes)
            rc = ax_fail(&x, "rows of one tensor have different numbers of axes");
    }
    return rc;
}

uint32_t ckpt_rm_part(const ckpt_rm_atom *a, uint32_t name)
{
    for (uint32_t i = 0; i < a->n_parts; i++) {
        if (a->part[i] == name)
            return i;
    }
    return UINT32_MAX;
}

/* ---- comparing the sides of a rule ---- */

/* True if a term has a name in its axes. */
static bool ax_in_axes(const ckpt_rm_term *t, uint32_t name)
{
    for (uint32_t i = 0; i < t->n_atoms; i++) {
        if (ckpt_rm_part(&t->atom[i], name) != UINT32_MAX)
            return true;
    }
    return false;
}

static bool ax_rest(const ckpt_rm_term *t)
{
    for (uint32_t i = 0; i < t->n_atoms; i++) {
        if (t->atom[i].rest)
            return true;
    }
    return false;
}

/* Find an atom of a term without a counterpart in another term; NULL: there is none. */
static const ckpt_rm_atom *ax_alone(const ckpt_rm_term *t, const ckpt_rm_term *other)
{
    for (uint32_t i = 0; i < t->n_atoms; i++) {
        const ckpt_rm_atom *a = &t->atom[i];
        bool met = a->n_parts == 0; // an axis of one element and `...` need no counterpart

        for (uint32_t k = 0; !met && k < a->n_parts; k++)
            met = ax_in_axes(other, a->part[k]) || ckpt_rm_captures(other, a->part[k]);
        if (!met)
            return a;
    }
    return NULL;
}

static bool ax_is_star(const ckpt_remap *r, uint32_t name)
{
    return r->names.at[name][0] == '*';
}

/* Refuse a capture that is neither a capture nor an axis in the other term. */
static int ax_check_captures(const ckpt_remap *r, const ckpt_rm_rule *rule, const ckpt_rm_term *t,
                             const ckpt_rm_term *other, ckpt_err *err)
{
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        const ckpt_rm_piece *p = &t->piece[i];
        bool takes = ckpt_rm_takes(p);
        bool star = takes && ax_is_star(r, p->name);

        if (!takes || (t->joins != CKPT_RM_APART && p->kind == CKPT_RM_NUMBER) ||
            ckpt_rm_captures(other, p->name) ||
            (p->kind == CKPT_RM_NUMBER && ax_in_axes(other, p->name)))
            continue;
        // the replacement may leave out a '*' of the pattern
        if (star && t == &rule->term[0].at[0])
            continue;
        if (star)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "%s:%u: the replacement has more '*' than the pattern", r->name,
                             rule->line);
        return ckpt_fail(err, CKPT_EUSAGE, "%s:%u: '%.100s' captures %.40s, which '%.100s' lacks",
                         r->name, rule->line, t->text, r->names.at[p->name], other->text);
    }
    return CKPT_OK;
}

static int ax_check_pair(const ckpt_remap *r, const ckpt_rm_rule *rule, const ckpt_rm_term *t,
                         const ckpt_rm_term *other, ckpt_err *err)
{
    const ckpt_rm_atom *alone = ax_alone(t, other);

    if (alone)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s:%u: '%.100s' has an axis %.40s, which '%.100s' lacks", r->name,
                         rule->line, t->text, r->names.at[alone->part[0]], other->text);
    if (ax_rest(t) != ax_rest(other))
        return ckpt_fail(err, CKPT_EUSAGE, "%s:%u: '...' appears in '%.100s', but not in '%.100s'",
                         r->name, rule->line, ax_rest(t) ? t->text : other->text,
                         ax_rest(t) ? other->text : t->text);
    return ax_check_captures(r, rule, t, other, err);
}

/* True if a capture is in all terms of the rule. */
static bool ax_in_all(const ckpt_rm_rule *rule, uint32_t name)
{
    bool all = true;

    for (unsigned side = 0; side < 2; side++) {
        for (size_t i = 0; i < rule->term[side].n; i++)
            all = all && ckpt_rm_captures(&rule->term[side].at[i], name);
    }
    return all;
}

/* Refuse rows of several numbered tensors. */
static int ax_check_rows(const ckpt_remap *r, const ckpt_rm_rule *rule, const ckpt_rm_term *t,
                         ckpt_err *err)
{
    for (uint32_t i = 0; t->follows && i < t->n_pieces; i++) {
        if (ckpt_rm_takes(&t->piece[i]) && !ax_in_all(rule, t->piece[i].name))
            return ckpt_fail(err, CKPT_EUSAGE,
                             "%s:%u: '%.100s' cannot be given in rows: other tensors of the rule "
                             "do not have its number %.40s",
                             r->name, rule->line, t->text, r->names.at[t->piece[i].name]);
    }
    return CKPT_OK;
}

int ckpt_rm_check_rule(const ckpt_remap *r, const ckpt_rm_rule *rule, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (unsigned side = 0; side < 2; side++) {
        for (size_t i = 0; rc == CKPT_OK && i < rule->term[side].n; i++)
            rc = ax_check_rows(r, rule, &rule->term[side].at[i], err);
    }

    for (size_t i = 0; rc == CKPT_OK && i < rule->term[0].n; i++) {
        for (size_t k = 0; rc == CKPT_OK && k < rule->term[1].n; k++) {
            const ckpt_rm_term *a = &rule->term[0].at[i], *b = &rule->term[1].at[k];
            rc = ax_check_pair(r, rule, a, b, err);
            if (rc == CKPT_OK)
                rc = ax_check_pair(r, rule, b, a, err);
        }
    }
    return rc;
}
