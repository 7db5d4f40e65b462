/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repeat.c: reads objects that repeat the bytes of an earlier object except for numbers and texts.
 *
 * A large pickle has a million objects of few classes, and the caller takes over each of them
 * (take.c).  The machine records the opcodes of such an object as a pattern, and keeps the object.
 * If the bytes of a later object match the pattern, the machine puts the new numbers and texts into
 * the kept object and offers that to the caller, instead of running the opcodes.
 *
 * A pattern holds only opcodes that do the same each time: they make new values, they read no memo
 * slot that the object itself has filled, and the bytes that differ are neither a key of a dict nor
 * an argument of a call other than torch.Size.  Everything else is read opcode by opcode, which
 * also finds all errors.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/codec/pickle/machine.h"
#include "libckpt/codec/pickle/text.h"

#define PRP_PATTERNS_MAX 8u   /* patterns of one class */
#define PRP_TRIES_MAX    64u  /* recordings of one class, with those that made no pattern */
#define PRP_STEPS_MAX    256u /* steps and literal bytes of one pattern */
#define PRP_TEXT_MAX     255u /* bytes of a text */
#define PRP_LONG_MAX     7u   /* bytes of a LONG1 that surely is an INT */

/* ---- recording ---- */

/* Begin to record the opcodes that follow the class on top of the stack. */
static void prp_begin(ckpt_pk_machine *m, ckpt_pk_name *name)
{
    ckpt_pk_recording *r = &m->recording;

    r->on = name->n_tries < PRP_TRIES_MAX && name->n_patterns < PRP_PATTERNS_MAX;
    if (!r->on)
        return;
    name->n_tries++;
    r->from = m->pos;
    r->height = m->stack.n;
    r->n_marks = m->marks.n;
    r->n_memo = m->n_memo;
    r->n_copies_left = m->p.n_copies_left;
    r->n_objects = m->p.out->n_objects;
    r->n_news = r->n_sets = 0;
    r->step.n = 0;
    r->literal.n = 0;
}

/* Add a step to the recording, with its bytes. */
static bool prp_add(ckpt_pk_machine *m, ckpt_pk_step step)
{
    ckpt_pk_recording *r = &m->recording;
    const ckpt_pk_step *last = r->step.n > 0 ? &r->step.at[r->step.n - 1] : NULL;
    size_t n = (size_t)(m->pos - m->p.at);
    bool fixed = step.kind == CKPT_PK_LITERAL || step.kind == CKPT_PK_GET;
    ckpt_pk_step *to;

    if (r->step.n >= PRP_STEPS_MAX || r->literal.n + n > PRP_STEPS_MAX)
        return false;
    step.from = (uint16_t)r->literal.n;
    step.n = (uint16_t)(fixed ? n : 0);
    if (fixed && !ckpt_bytes_add(&r->literal, m->bytes + (m->p.at - m->from), n))
        return false;
    if (step.kind == CKPT_PK_LITERAL && last && last->kind == CKPT_PK_LITERAL) {
        r->step.at[r->step.n - 1].n = (uint16_t)(last->n + n);
        return true;
    }
    to = ckpt_vec_push(&r->step);
    if (to)
        *to = step;
    return to != NULL;
}

/* The number of the dict's pair that got its value last; SIZE_MAX: none. */
static size_t prp_pair(const ckpt_pk_machine *m)
{
    bool inside = m->marks.n == m->recording.n_marks + 1;
    size_t height = inside ? m->stack.n - m->marks.at[m->marks.n - 1] : 0;

    return height > 0 && height % 2 == 0 ? height / 2 - 1 : SIZE_MAX;
}

/* The form of an opcode in a pattern; false: a pattern cannot have it. */
static bool prp_step(ckpt_pk_machine *m, uint8_t code, ckpt_pk_step *out)
{
    ckpt_pk_recording *r = &m->recording;
    ckpt_value *top = m->stack.n > r->height - 1 ? m->stack.at[m->stack.n - 1] : NULL;

    *out = (ckpt_pk_step){.kind = CKPT_PK_LITERAL, .leaf = top, .pair = SIZE_MAX};
    switch (code) {
    case ')':
    case 0x94: // MEMOIZE
    case '}':
    case '(':
    case 'N':
    case 0x85: // TUPLE1 to TUPLE3
    case 0x86:
    case 0x87:
        return true;
    case 0x81: // NEWOBJ
        return r->n_news++ == 0;
    case 'u':
        return r->n_sets++ == 0;
    case 'R':
        return top && top->kind == CKPT_V_SIZE;
    case 'h':
    case 'j':
        out->pair = prp_pair(m);
        if (top && top->kind == CKPT_V_STR && out->pair != SIZE_MAX)
            out->kind = CKPT_PK_GET;
        return true;
    case 'K':
    case 'M':
    case 'J':
    case 0x8A: // LONG1
        out->kind = CKPT_PK_INT;
        return top && top->kind == CKPT_V_INT;
    case 0x8C: // SHORT_BINUNICODE
        out->kind = CKPT_PK_TEXT;
        return true;
    default:
        return false;
    }
}

void ckpt_pk_repeat_note(ckpt_pk_machine *m, uint8_t code)
{
    ckpt_pk_step step;

    if (m->p.at < m->recording.from)
        return; // the opcode that pushed the class
    m->recording.on =
        m->stack.n + 1 > m->recording.height && prp_step(m, code, &step) && prp_add(m, step);
}

/* ---- making a pattern ---- */

/* True if some opcode reads one of n memo slots. */
static bool prp_recalled(const ckpt_pk_machine *m, uint64_t from, uint64_t n)
{
    for (uint64_t i = from; i < from + n; i++) {
        if (i >= m->memo.n || (m->recalled[i / 8] >> i % 8 & 1) != 0)
            return true;
    }
    return false;
}

/* True if the recorded object is one that a pattern can repeat. */
static bool prp_is_plain(const ckpt_pk_machine *m, const ckpt_value *v)
{
    const ckpt_pk_recording *r = &m->recording;
    const ckpt_object *o = v->as.object;

    return r->on && m->stack.n == r->height && m->marks.n == r->n_marks && r->n_news == 1 &&
           r->n_sets == 1 && o->form == CKPT_BY_NEWOBJ && o->cls->kind == CKPT_V_GLOBAL &&
           o->args == m->p.empty && !o->kwargs && o->items.n == 0 && o->pairs.n == 0 && o->state &&
           o->state->kind == CKPT_V_DICT && !o->state->state &&
           !prp_recalled(m, r->n_memo, m->n_memo - r->n_memo);
}

/* True if a value is a key of the dict; keys other than texts can contain any value. */
static bool prp_is_key(const ckpt_dict *map, const ckpt_value *v)
{
    bool found = false;

    for (uint64_t i = 0; i < map->n; i++)
        found = found || map->at[i].key == v || map->at[i].key->kind != CKPT_V_STR;
    return found;
}

/* Find the places of the changing parts in the kept object; false: no pattern. */
static bool prp_bind(ckpt_pk_machine *m, ckpt_pk_pattern *to, const ckpt_dict *map)
{
    for (size_t i = 0; i < to->n_steps; i++) {
        ckpt_pk_step *s = &to->step[i];

        if (s->kind == CKPT_PK_GET) {
            if (s->pair < map->n && map->at[s->pair].value == s->leaf)
                s->slot = &map->at[s->pair].value;
            else
                s->kind = CKPT_PK_LITERAL;
        }
        if (s->kind == CKPT_PK_INT || s->kind == CKPT_PK_TEXT) {
            if (prp_is_key(map, s->leaf))
                return false;
        }
        if (s->kind == CKPT_PK_TEXT) {
            s->text = ckpt_arena_alloc(m->p.arena, PRP_TEXT_MAX + 1);
            if (!s->text)
                return false;
            s->leaf->as.text.at = memcpy(s->text, s->leaf->as.text.at, s->leaf->as.text.n);
        }
        to->longest += s->kind == CKPT_PK_TEXT  ? PRP_TEXT_MAX + 2
                       : s->kind == CKPT_PK_INT ? PRP_LONG_MAX + 2
                       : s->n > 5               ? s->n
                                                : 5;
    }
    return true;
}

ckpt_value *ckpt_pk_repeat_keep(ckpt_pk_machine *m, ckpt_value *v)
{
    ckpt_pk_recording *r = &m->recording;
    ckpt_pk_pattern *to = NULL;
    ckpt_pk_name *name;
    ckpt_value *node = NULL;

    if (!prp_is_plain(m, v) || !prp_add(m, (ckpt_pk_step){.kind = CKPT_PK_LITERAL})) {
        r->on = false;
        return v;
    }
    r->on = false;
    name = &m->p.names.at[(v->as.object->cls->mark & CKPT_PK_NUMBER) - 1];
    to = ckpt_arena_alloc(m->p.arena, sizeof *to);
    if (to) {
        to->step = ckpt_arena_copy(m->p.arena, r->step.at, r->step.n * sizeof *to->step);
        to->literal = ckpt_arena_copy(m->p.arena, r->literal.at, r->literal.n);
        to->n_steps = r->step.n;
        to->object = v->as.object;
        to->n_memo = m->n_memo - r->n_memo;
        to->n_charged = r->n_copies_left - m->p.n_copies_left;
        to->n_objects = m->p.out->n_objects - r->n_objects;
        to->next = name->pattern;
        node = ckpt_arena_copy(m->p.arena, v, sizeof *v);
    }
    if (!node || !to->step || !to->literal || !prp_bind(m, to, &v->as.object->state->as.map))
        return v;
    name->pattern = to;
    name->n_patterns++;
    m->stack.at[m->stack.n - 1] = node;
    return node;
}

/* ---- matching ---- */

/* Read a number that is not negative; false: another opcode, or another number. */
static bool prp_int(const uint8_t **at, int64_t *out)
{
    const uint8_t *s = *at;
    const uint8_t code = *s++;
    unsigned n = code == 'K' ? 1 : code == 'M' ? 2 : code == 'J' ? 4 : *s;
    bool has_sign = code == 'J' || code == 0x8A;
    uint64_t v = 0;

    if (code == 0x8A)
        s++;
    else if (code != 'K' && code != 'M' && code != 'J')
        return false;
    if (n > PRP_LONG_MAX || (has_sign && n > 0 && s[n - 1] > 0x7F))
        return false;
    for (unsigned i = 0; i < n; i++)
        v |= (uint64_t)s[i] << 8 * i;
    *at = s + n;
    *out = (int64_t)v;
    return true;
}

/* Read a text into its place in the kept object. */
static bool prp_text(const uint8_t **at, const ckpt_pk_step *step)
{
    const uint8_t *s = *at;

    if (s[0] != 0x8C || !ckpt_pk_text_ok((const char *)s + 2, s[1]))
        return false;
    memcpy(step->text, s + 2, s[1]);
    step->text[s[1]] = 0;
    step->leaf->as.text.n = s[1];
    *at = s + 2 + s[1];
    return true;
}

/* Read a text from the memo into its place in the kept object. */
static bool prp_get(const ckpt_pk_machine *m, const uint8_t **at, const ckpt_pk_step *step)
{
    const uint8_t *s = *at;
    uint64_t number = s[1];

    if (s[0] == 'j')
        number |= (uint64_t)s[2] << 8 | (uint64_t)s[3] << 16 | (uint64_t)s[4] << 24;
    if ((s[0] != 'h' && s[0] != 'j') || number >= m->memo.n || !m->memo.at[number] ||
        m->memo.at[number]->kind != CKPT_V_STR)
        return false;
    *step->slot = m->memo.at[number];
    *at = s + (s[0] == 'j' ? 5 : 2);
    return true;
}

/* Match bytes with a pattern, and put the changing parts into its object; NULL: no match. */
static const uint8_t *prp_match(const ckpt_pk_machine *m, const ckpt_pk_pattern *p,
                                const uint8_t *s)
{
    bool ok = true;

    for (size_t i = 0; ok && i < p->n_steps; i++) {
        const ckpt_pk_step *step = &p->step[i];

        switch ((ckpt_pk_step_kind)step->kind) {
        case CKPT_PK_LITERAL:
            ok = memcmp(s, p->literal + step->from, step->n) == 0;
            s += step->n;
            break;
        case CKPT_PK_INT:
            ok = prp_int(&s, &step->leaf->as.i);
            break;
        case CKPT_PK_TEXT:
            ok = prp_text(&s, step);
            break;
        case CKPT_PK_GET:
            ok = prp_get(m, &s, step);
            break;
        }
    }
    return ok ? s : NULL;
}

/* Replace the class on top of the stack by the object that the pattern's has become. */
static int prp_push(ckpt_pk_machine *m, const ckpt_pk_pattern *p, int64_t number)
{
    ckpt_value *v = ckpt_pk_node(&m->p, CKPT_V_INT);

    if (!v)
        return CKPT_ELIMIT;
    v->state = m->stack.at[m->stack.n - 1];
    v->as.i = number;
    m->stack.at[m->stack.n - 1] = v;
    m->n_memo += p->n_memo;
    m->p.n_copies_left -= p->n_charged;
    m->p.out->n_objects += p->n_objects;
    return CKPT_OK;
}

int ckpt_pk_repeat(ckpt_pk_machine *m)
{
    assert(m->recalled && m->stack.n > 0);
    const ckpt_value *cls = m->stack.at[m->stack.n - 1];
    ckpt_pk_name *name = &m->p.names.at[(cls->mark & CKPT_PK_NUMBER) - 1];
    const uint8_t *end = NULL;
    const ckpt_pk_pattern *p;
    int64_t number = 0;

    if (m->recording.on || m->p.opts->no_patterns)
        return CKPT_OK;
    for (p = name->pattern; p; p = p->next) {
        int rc = m->to - m->pos < p->longest ? ckpt_pk_fill(m, p->longest) : CKPT_OK;

        if (rc != CKPT_OK)
            return rc;
        end = m->to - m->pos >= p->longest ? prp_match(m, p, ckpt_pk_bytes(m)) : NULL;
        if (end)
            break;
    }
    const uint64_t n = end ? (uint64_t)(end - ckpt_pk_bytes(m)) : 0;
    if (!end || (m->frame_end != 0 && m->pos + n > m->frame_end) ||
        m->p.n_copies_left < p->n_charged || prp_recalled(m, m->n_memo, p->n_memo) ||
        !m->p.opts->take(m->p.opts->ctx, p->object, &number)) {
        prp_begin(m, name);
        return CKPT_OK;
    }
    m->pos += n;
    return prp_push(m, p, number);
}
