/* SPDX-License-Identifier: Apache-2.0 */
/*
 * take.c: lets the caller take over objects during the reading (ckpt_pickle_opts.take), and frees
 * the parts of such objects.
 *
 * While an object waits on the stack for its state, only values made after it can become its parts.
 * When the caller takes the object over, all values made after it are freed, unless one of these
 * events has happened since:
 *
 *     a value was stored in a memo slot that some opcode reads (read.c looks ahead)
 *     DUP duplicated a value
 *     a container changed that had been read from the memo, or duplicated
 *     a name or a storage appeared for the first time
 */
#include "libckpt/codec/pickle/machine.h"

/* Keep everything made so far, because the current event may refer to any of it. */
static void ptk_keep(ckpt_pk_machine *m)
{
    m->kept = ckpt_arena_top(m->p.arena);
    m->n_kept = m->p.names.n + m->p.out->storages.n;
}

bool ckpt_pk_take_remember(ckpt_pk_machine *m)
{
    if (!m->recalled)
        return true;
    if (m->n_memo < m->memo.n && (m->recalled[m->n_memo / 8] >> m->n_memo % 8 & 1) == 0) {
        m->n_memo++;
        return false;
    }
    ptk_keep(m);
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
        ptk_keep(m);
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
        ptk_keep(m);
    if (m->recording.on) {
        v = ckpt_pk_repeat_keep(m, v);
        ptk_keep(m); // the pattern's object
    }
    // in the arena the object follows its node, and its parts follow the object
    (void)ckpt_arena_rewind(m->p.arena, o, m->kept);
    v->kind = CKPT_V_INT;
    v->mark = 0;
    v->state = cls;
    v->as.taken.first = number;
    v->as.taken.n = 0;
}

/* True if all items are objects that the caller took over, with consecutive numbers. */
static bool ptk_are_taken(const ckpt_seq *items)
{
    for (uint64_t i = 0; i < items->n; i++) {
        const ckpt_value *v = items->at[i];

        if (v->kind != CKPT_V_INT || !v->state || v->as.taken.n > 0 ||
            (uint64_t)v->as.i != (uint64_t)items->at[0]->as.i + i)
            return false;
    }
    return items->n >= 2;
}

/*
 * Free as many items as possible.  An arena is freed from an address to its end, so what must be
 * kept divides the items: a value that later opcodes read (the name of a file) lies among the parts
 * of the first items, and these are kept with it; so are items in an older block of the arena.
 */
static void ptk_free_items(ckpt_pk_machine *m, const ckpt_seq *items)
{
    uint64_t i = 0;

    // items are made one after another, so an item's successors and their parts follow it
    while (i < items->n && !ckpt_arena_rewind(m->p.arena, items->at[i], m->kept))
        i++;
}

int ckpt_pk_take_items(ckpt_pk_machine *m, ckpt_seq *items, bool are_pairs)
{
    ckpt_value *v, *cls;
    int64_t first;

    if (!m->recalled || !ptk_are_taken(items))
        return CKPT_OK;
    first = items->at[0]->as.i;
    cls = items->at[0]->state;
    if (m->n_kept != m->p.names.n + m->p.out->storages.n)
        ptk_keep(m);
    ptk_free_items(m, items);
    v = ckpt_pk_node(&m->p, CKPT_V_INT);
    if (!v)
        return CKPT_ELIMIT;
    v->state = cls;
    v->as.taken.first = first;
    v->as.taken.n = items->n;
    items->at[0] = v;
    items->at[1] = m->p.none;
    items->n = are_pairs ? 2 : 1;
    return CKPT_OK;
}
