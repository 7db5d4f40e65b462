/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c: runs the pickle machine: reads opcodes, arguments and frames, and walks over the result
 * at the end.
 *
 * Limits: stack and memo of 8 Mi entries (for a large pickle: one memo entry for 4 bytes), memo
 * numbers at most 256 beyond the entries so far, integers of 256 bytes, nesting of 1000, memory in
 * proportion to the file.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/codec/pickle/machine.h"

#define PK_DEPTH_MAX  1000u         /* depth of nested containers */
#define PK_ARENA_FREE (64ull << 20) /* arena bytes that any pickle may use */
#define PK_ARENA_RATE 100u /* and more per byte of the file: the densest pickles use 64 ... */
#define PK_ARENA_MUCH                                                                              \
    (320ull << 20) /* ... up to this total; beyond it the rate of usual pickles: */
#define PK_ARENA_REAL 32u
#define PK_SHORT      16u /* bytes: more than an opcode and the number that follows it */
#define PK_COPIES_FREE                                                                             \
    ((uint64_t)8 << 20) /* items and bytes that calls may copy, in addition to the file's size */

/* ---- reading arguments ---- */

/* Fail because the file ends inside an argument. */
static int pk_cut_off(const ckpt_pk_machine *m)
{
    return ckpt_pk_fail(&m->p, CKPT_EFORMAT, "the pickle ends inside an opcode's argument");
}

/* Read n bytes as a number. */
static int pk_number(ckpt_pk_machine *m, unsigned n, bool big_endian, uint64_t *out)
{
    *out = 0;
    if (!ckpt_within(m->pos, n, m->n))
        return pk_cut_off(m);
    const uint8_t *s = ckpt_pk_bytes(m); // pk_decode has fetched them
    for (unsigned i = 0; i < n; i++)
        *out |= (uint64_t)s[i] << 8 * (big_endian ? n - 1 - i : i);
    m->pos += n;
    return CKPT_OK;
}

/* Read bytes up to a line feed, which is not included. */
static int pk_line(ckpt_pk_machine *m, ckpt_text *out)
{
    const uint8_t *end = NULL;

    while (!end) {
        const uint64_t n = m->to - m->pos;
        int rc;

        end = n > 0 ? memchr(ckpt_pk_bytes(m), '\n', (size_t)n) : NULL;
        if (!end && m->to == m->n)
            return pk_cut_off(m);
        rc = end ? CKPT_OK : ckpt_pk_fill(m, 2 * n + 1);
        if (rc != CKPT_OK)
            return rc;
    }
    *out = (ckpt_text){(const char *)ckpt_pk_bytes(m), (uint64_t)(end - ckpt_pk_bytes(m))};
    m->pos += out->n + 1;
    return CKPT_OK;
}

/* Read two lines. */
static int pk_lines(ckpt_pk_machine *m, ckpt_pk_arg *a)
{
    int rc = pk_line(m, &a->text);
    const uint64_t at = m->pos - a->text.n - 1;

    if (rc != CKPT_OK)
        return rc;
    rc = pk_line(m, &a->more);
    if (rc == CKPT_OK)
        a->text.at = (const char *)m->bytes + (at - m->from); // the bytes may have moved
    return rc;
}

/* Read a length of n_length bytes, then that many bytes; `out` points into the input. */
static int pk_counted(ckpt_pk_machine *m, unsigned n_length, ckpt_text *out)
{
    uint64_t n;
    int rc = pk_number(m, n_length, false, &n);

    if (rc != CKPT_OK)
        return rc;
    // a length that Python reads as negative is larger than the file here
    if (!ckpt_within(m->pos, n, m->n))
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT,
                            "a length of %" PRIu64 " exceeds the %" PRIu64 " bytes that are left",
                            n, m->n - m->pos);
    if (m->to - m->pos < n)
        rc = ckpt_pk_fill(m, n);
    if (rc != CKPT_OK)
        return rc;
    *out = (ckpt_text){(const char *)ckpt_pk_bytes(m), n};
    m->pos += n;
    return CKPT_OK;
}

/* Read the argument of the current opcode. */
static int pk_argument(ckpt_pk_machine *m, ckpt_pk_form form, ckpt_pk_arg *a)
{
    switch (form) {
    case PK_U1:
        return pk_number(m, 1, false, &a->number);
    case PK_U2:
        return pk_number(m, 2, false, &a->number);
    case PK_U4:
        return pk_number(m, 4, false, &a->number);
    case PK_U8:
        return pk_number(m, 8, false, &a->number);
    case PK_F8:
        return pk_number(m, 8, true, &a->number);
    case PK_LINE:
        return pk_line(m, &a->text);
    case PK_LINES:
        return pk_lines(m, a);
    case PK_N1:
        return pk_counted(m, 1, &a->text);
    case PK_N4:
        return pk_counted(m, 4, &a->text);
    case PK_N8:
        return pk_counted(m, 8, &a->text);
    case PK_COUNT1:
    case PK_COUNT2:
    case PK_COUNT3:
        a->number = (uint64_t)form - PK_COUNT1 + 1;
        return CKPT_OK;
    case PK_BARE:
        break;
    }
    return CKPT_OK;
}

/* Read the next opcode and its argument. */
static int pk_decode(ckpt_pk_machine *m, const ckpt_pk_op **op, ckpt_pk_arg *a)
{
    m->p.at = m->pos; // members of the argument that the opcode does not use stay unchanged

    if (m->pos >= m->n)
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT, "the pickle ends without STOP");
    if (m->to - m->pos < PK_SHORT) {
        int rc = ckpt_pk_fill(m, PK_SHORT);

        if (rc != CKPT_OK)
            return rc;
    }
    *op = &ckpt_pk_ops[*ckpt_pk_bytes(m)];
    if (!(*op)->run && !(*op)->bare)
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT, "unknown opcode 0x%02X", *ckpt_pk_bytes(m));
    m->pos++;
    return pk_argument(m, (*op)->form, a);
}

/* Execute one opcode. */
static int pk_step(ckpt_pk_machine *m)
{
    const ckpt_pk_op *op = NULL;
    ckpt_pk_arg a = {0};
    int rc = pk_decode(m, &op, &a);

    if (rc == CKPT_OK && m->frame_end != 0 && m->pos > m->frame_end)
        rc = ckpt_pk_fail(&m->p, CKPT_EFORMAT, "an opcode crosses the end of its frame");
    if (rc == CKPT_OK)
        rc = op->bare ? op->bare(m) : op->run(m, &a);
    if (rc == CKPT_OK && m->recording.on)
        ckpt_pk_repeat_note(m, m->bytes[m->p.at - m->from]);
    if (m->pos == m->frame_end)
        m->frame_end = 0;
    return rc;
}

/* ---- the closing walk ---- */

/* A container on the path from the root, and its next child. */
typedef struct pk_level {
    ckpt_value *v;
    uint64_t next;
} pk_level;

/* Find child i of a node, NULL for an absent one; false after the last one. */
static bool pk_child(const ckpt_value *v, uint64_t i, ckpt_value **out)
{
    const ckpt_object *o = v->kind == CKPT_V_OBJECT ? v->as.object : NULL;
    ckpt_seq seq = o ? o->items : ckpt_value_seq(v);
    ckpt_dict map = o ? o->pairs : ckpt_value_map(v);
    ckpt_value *own[4] = {v->state};

    if (o) {
        own[0] = o->args;
        own[1] = o->kwargs;
        own[2] = o->state;
    } else if (v->kind == CKPT_V_TENSOR) {
        own[0] = v->as.tensor->state;
    }
    if (i < seq.n) {
        *out = seq.at[i];
        return true;
    }
    i -= seq.n;
    if (i < map.n * 2) {
        *out = i % 2 == 0 ? map.at[i / 2].key : map.at[i / 2].value;
        return true;
    }
    i -= map.n * 2;
    *out = i < 4 ? own[i] : NULL;
    return i < 4;
}

/* Visit every container below the root once, clear its mark and check the depth of nesting. */
static int pk_close(ckpt_pk_machine *m)
{
    pk_level *level = ckpt_alloc(PK_DEPTH_MAX * sizeof *level);
    ckpt_value *child = m->p.out->root;
    size_t depth = 0;
    int rc = CKPT_OK;

    if (!level)
        return ckpt_pk_fail(&m->p, CKPT_ELIMIT, "out of memory");
    do {
        if (child && (child->mark & CKPT_PK_FRESH) != 0) {
            child->mark = 0;
            if (depth == PK_DEPTH_MAX) {
                rc = ckpt_pk_fail(&m->p, CKPT_ELIMIT, "values are nested deeper than 1000 levels");
                break;
            }
            level[depth++] = (pk_level){.v = child};
        }
        child = NULL;
        while (depth > 0 && !pk_child(level[depth - 1].v, level[depth - 1].next++, &child))
            depth--;
    } while (depth > 0);
    ckpt_free(level);
    for (size_t i = 0; i < m->p.names.n; i++)
        m->p.names.at[i].global->mark = 0;
    return rc;
}

/* ---- looking ahead ---- */

/* Bytes of an opcode and its argument; 0: not always the same number, or no such opcode. */
static uint8_t pk_length(const ckpt_pk_op *op)
{
    static const uint8_t length[] = {
        [PK_BARE] = 1, [PK_U1] = 2, [PK_U2] = 3,     [PK_U4] = 5,     [PK_U8] = 9,
        [PK_F8] = 9,   [PK_N8] = 0, [PK_COUNT1] = 1, [PK_COUNT2] = 1, [PK_COUNT3] = 1,
    };

    return op->run || op->bare ? length[op->form] : 0;
}

/* Note that some opcode reads a memo slot. */
static void pk_note_slot(uint8_t *recalled, uint64_t number, uint64_t n_slots)
{
    if (number < n_slots)
        recalled[number / 8] |= (uint8_t)(1u << number % 8);
}

/* Skip usual opcodes, as far as their bytes are in memory. */
static void pk_skip(ckpt_pk_machine *m, const uint8_t *length, uint8_t *recalled, uint64_t *n_slots)
{
    const uint8_t *s = ckpt_pk_bytes(m), *end = m->bytes + (m->to - m->from);
    uint64_t n = *n_slots;
    bool known = true;

    while (known && (size_t)(end - s) >= PK_SHORT) {
        switch (*s) {
        case 0x94: // MEMOIZE
            n++;
            s++;
            break;
        case 'K': // the most common ones by themselves: a processor foresees their lengths
            s += 2;
            break;
        case 'M':
            s += 3;
            break;
        case 'h':
            pk_note_slot(recalled, s[1], n);
            s += 2;
            break;
        case 'j':
            pk_note_slot(recalled,
                         s[1] | (uint64_t)s[2] << 8 | (uint64_t)s[3] << 16 | (uint64_t)s[4] << 24,
                         n);
            s += 5;
            break;
        default:
            if (length[*s] > 0)
                s += length[*s];
            else if (*s == 0x8C && s[1] <= end - s - 2)
                s += 2 + s[1];
            else
                known = false;
            break;
        }
    }
    m->pos += (uint64_t)(s - ckpt_pk_bytes(m));
    *n_slots = n;
}

/*
 * Decode the whole pickle without executing it, to find the memo slots that some opcode reads, and
 * their number.  It stops at the first error, because the execution will fail there too.  False:
 * the pickle numbers its slots explicitly.
 */
static bool pk_look_ahead(ckpt_pk_machine *m, uint8_t *recalled, uint64_t *n_slots)
{
    uint8_t length[256], code = 0;
    const ckpt_pk_op *op;
    ckpt_pk_arg a = {0};

    for (unsigned i = 0; i < 256; i++)
        length[i] = strchr("pqrghj.", (int)i) ? 0 : pk_length(&ckpt_pk_ops[i]);
    *n_slots = 0;
    while (code != '.') {
        if (m->bytes) // an empty file has none
            pk_skip(m, length, recalled, n_slots);
        if (pk_decode(m, &op, &a) != CKPT_OK)
            break;
        code = m->bytes[m->p.at - m->from];
        *n_slots += code == 0x94;
        if (code == 'p' || code == 'q' || code == 'r' || code == 'g')
            return false;
        if (code == 'h' || code == 'j')
            pk_note_slot(recalled, a.number, *n_slots);
    }
    return true;
}

/* Look ahead from the start, without a report of errors, and return to the start. */
static bool pk_look(ckpt_pk_machine *m, uint8_t *recalled, uint64_t *n_slots)
{
    ckpt_err *err = m->p.err;
    bool ok;

    m->p.err = NULL;
    ok = pk_look_ahead(m, recalled, n_slots);
    m->p.err = err;
    m->pos = m->p.at = 0;
    if (m->window)
        m->from = m->to = 0;
    return ok;
}

/* Prepare opts.take (take.c).  Pickles with explicit memo numbers are read without it. */
static int pk_prepare_take(ckpt_pk_machine *m)
{
    uint8_t *recalled = m->p.opts->take ? ckpt_alloc((size_t)(m->n / 8 + 1)) : NULL;
    uint64_t n_slots;

    if (!m->p.opts->take)
        return CKPT_OK;
    if (recalled && !pk_look(m, recalled, &n_slots)) {
        ckpt_free(recalled);
        return CKPT_OK;
    }
    m->recalled = recalled;
    if (!recalled)
        return ckpt_pk_no_memory(&m->p);
    // allocate all slots at once: pages of slots that no opcode reads are never touched
    m->memo.at = ckpt_alloc((size_t)(n_slots + 1) * sizeof *m->memo.at);
    m->memo.n = m->memo.at ? (size_t)n_slots : 0;
    m->memo.room = m->memo.n;
    return m->memo.at ? CKPT_OK : ckpt_pk_no_memory(&m->p);
}

/* ---- entry ---- */

/* Make the shared nodes. */
static int pk_begin(ckpt_pk_machine *m)
{
    ckpt_pk *p = &m->p;

    p->none = ckpt_pk_node(p, CKPT_V_NONE);
    p->yes = !p->none ? NULL : ckpt_pk_node(p, CKPT_V_BOOL);
    p->no = !p->yes ? NULL : ckpt_pk_node(p, CKPT_V_BOOL);
    p->empty = !p->no ? NULL : ckpt_pk_node(p, CKPT_V_TUPLE);
    if (!p->empty)
        return CKPT_ELIMIT;
    p->yes->as.i = 1;
    p->empty->mark = 0; // an empty tuple needs no visit
    return CKPT_OK;
}

/* Release everything except the result. */
static void pk_end(ckpt_pk_machine *m)
{
    for (size_t i = 0; i < m->p.dicts.n; i++)
        ckpt_index_free(&m->p.dicts.at[i]);
    ckpt_vec_free(&m->p.dicts);
    ckpt_vec_free(&m->p.names);
    ckpt_index_free(&m->p.name_index);
    ckpt_index_free(&m->p.storage_index);
    ckpt_vec_free(&m->stack);
    ckpt_vec_free(&m->memo);
    ckpt_vec_free(&m->marks);
    ckpt_free(m->recalled);
    ckpt_free(m->window);
    ckpt_vec_free(&m->recording.step);
    ckpt_vec_free(&m->recording.literal);
}

/* Limit of the arena's size for a pickle of n bytes. */
static uint64_t pk_arena_cap(const ckpt_arena *arena, uint64_t n)
{
    uint64_t cap;

    if (n > UINT64_MAX / (2 * PK_ARENA_RATE))
        return UINT64_MAX; // a file of 2^57 bytes does not exist
    cap = PK_ARENA_FREE + n * PK_ARENA_RATE;
    if (cap > PK_ARENA_MUCH)
        cap = n * PK_ARENA_REAL > PK_ARENA_MUCH ? n * PK_ARENA_REAL : PK_ARENA_MUCH;
    return ckpt_arena_used(arena) + cap;
}

int ckpt_pickle_read(ckpt_pickle *out, ckpt_arena *arena, const uint8_t *bytes, uint64_t n,
                     const ckpt_pickle_opts *opts, ckpt_err *err)
{
    assert(out && arena && (bytes || n == 0 || (opts && opts->fetch)));
    static const ckpt_pickle_opts none = {0};
    ckpt_pk_machine m = {.bytes = bytes, .n = n, .to = bytes ? n : 0};
    int rc;

    *out = (ckpt_pickle){0};
    m.p = (ckpt_pk){.out = out, .arena = arena, .opts = opts ? opts : &none, .err = err};
    m.p.arena_cap = pk_arena_cap(arena, n);
    m.p.n_copies_left = n > UINT64_MAX / 2 ? n : n + PK_COPIES_FREE;
    rc = pk_begin(&m);
    if (rc == CKPT_OK)
        rc = pk_prepare_take(&m);
    while (rc == CKPT_OK && !m.stopped)
        rc = pk_step(&m);
    if (rc == CKPT_OK)
        rc = pk_close(&m);
    pk_end(&m);
    if (rc != CKPT_OK)
        ckpt_pickle_free(out);
    return rc;
}

void ckpt_pickle_free(ckpt_pickle *p)
{
    ckpt_vec_free(&p->storages);
    ckpt_vec_free(&p->globals);
    *p = (ckpt_pickle){0};
}
