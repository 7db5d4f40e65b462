/* SPDX-License-Identifier: Apache-2.0 */
/*
 * take.c: owns objects that the caller takes over as they are made (ckpt_pickle_opts.take), and
 * when what they were made of may go.
 *
 * While an object waits on the stack for its state, only what is made above it can become part of
 * it.  All of that may go with the object, unless one of these has happened since:
 *
 *     a value was stored in a slot of the memo that is read somewhere (a look ahead tells which)
 *     a value was doubled (DUP)
 *     a container that had been taken out of the memo, or doubled, was changed
 *     a name or a storage was met for the first time
 */
#include "libckpt/codec/pickle/machine.h"

/* What happens now may refer to anything made before. */
static void tk_keep(ckpt_pk_machine *m)
{
    m->kept = ckpt_arena_top(m->p.arena);
    m->n_kept = m->p.names.n + m->p.out->storages.n;
}

/* Look at the whole pickle as the run will; it stops where the run will fail. */
static bool tk_look_ahead(const ckpt_pk_machine *from, uint8_t *recalled, uint64_t *n_slots)
{
    ckpt_pk_machine m = {.p = {.opts = from->p.opts}, .bytes = from->bytes, .n = from->n};
    const ckpt_pk_op *op;
    ckpt_pk_arg a = {0};
    uint8_t code = 0;

    *n_slots = 0;
    while (code != '.' && ckpt_pk_decode(&m, &op, &a) == CKPT_OK) {
        code = m.bytes[m.p.at];
        *n_slots += code == 0x94;
        if (code == 'p' || code == 'q' || code == 'r' || code == 'g')
            return false;
        if ((code == 'h' || code == 'j') && a.number < *n_slots)
            recalled[a.number / 8] |= (uint8_t)(1u << a.number % 8);
    }
    return true;
}

int ckpt_pk_take_begin(ckpt_pk_machine *m)
{
    uint8_t *recalled = m->p.opts->take ? ckpt_alloc((size_t)(m->n / 8 + 1)) : NULL;
    uint64_t n_slots;

    if (!m->p.opts->take)
        return CKPT_OK;
    if (recalled && !tk_look_ahead(m, recalled, &n_slots)) {
        ckpt_free(recalled);
        return CKPT_OK;
    }
    m->recalled = recalled;
    if (!recalled)
        return ckpt_pk_no_memory(&m->p);
    // all slots at once: those that nobody reads are never touched
    m->memo.at = ckpt_alloc((size_t)(n_slots + 1) * sizeof *m->memo.at);
    m->memo.n = m->memo.at ? (size_t)n_slots : 0;
    m->memo.room = m->memo.n;
    tk_keep(m);
    return m->memo.at ? CKPT_OK : ckpt_pk_no_memory(&m->p);
}

void ckpt_pk_take_end(ckpt_pk_machine *m)
{
    ckpt_free(m->recalled);
    m->recalled = NULL;
}

bool ckpt_pk_take_remember(ckpt_pk_machine *m)
{
    if (!m->recalled)
        return true;
    if (m->n_memo < m->memo.n && (m->recalled[m->n_memo / 8] >> m->n_memo % 8 & 1) == 0) {
        m->n_memo++;
        return false;
    }
    tk_keep(m);
    return true;
}

void ckpt_pk_take_share(ckpt_pk_machine *m, ckpt_value *v)
{
    if (!m->recalled)
        return;
    if (ckpt_value_has_children(v))
        v->mark |= CKPT_PK_SHARED;
}

void ckpt_pk_take_changed(ckpt_pk_machine *m, const ckpt_value *v)
{
    if (m->recalled && ckpt_value_has_children(v) && (v->mark & CKPT_PK_SHARED) != 0)
        tk_keep(m);
}

void ckpt_pk_take_object(ckpt_pk_machine *m, ckpt_value *v)
{
    int64_t number = 0;
    ckpt_object *o;
    ckpt_value *cls;

    if (!m->recalled || v->kind != CKPT_V_OBJECT)
        return;
    o = v->as.object;
    cls = o->cls;
    if (!cls || o->form == CKPT_BY_PERSID || !m->p.opts->take(m->p.opts->ctx, o, &number))
        return;
    if (m->n_kept != m->p.names.n + m->p.out->storages.n)
        tk_keep(m);
    // the object stands right behind its node, and its parts behind it
    (void)ckpt_arena_rewind(m->p.arena, o, m->kept);
    v->kind = CKPT_V_INT;
    v->mark = 0;
    v->state = cls;
    v->as.i = number;
}
