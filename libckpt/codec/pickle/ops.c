/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.c: implements each opcode of protocols 0 to 5, and their table.
 *
 * Source: CPython's pickletools.  call.c decides the results of calls.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/codec/pickle/machine.h"
#include "libckpt/codec/pickle/text.h"
#include "libckpt/map/map.h"

#define PO_MARKS_MAX (8u << 20) /* MARKs that are open at a time */
#define PO_LONG_MAX  256u       /* bytes of an integer */

/* ---- the stream itself ---- */

/*
 * PROTO: check the protocol number, which is only used in the report; opcodes of later protocols
 * are accepted too.
 */
static int op_proto(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    if (a->number > 5)
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT, "pickle protocol %" PRIu64 "; 0 to 5 are known",
                            a->number);
    m->p.out->protocol = (int)a->number;
    return CKPT_OK;
}

/* FRAME: check that the next bytes are a frame of whole opcodes.  Frames are not needed here. */
static int op_frame(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    if (!ckpt_within(m->pos, a->number, m->n) || m->frame_end != 0)
        return ckpt_pk_fail(
            &m->p, CKPT_EFORMAT,
            "a FRAME reaches past the end of the file, or lies inside another frame");
    m->frame_end = a->number > 0 ? m->pos + a->number : 0;
    return CKPT_OK;
}

/* STOP: check that exactly one value is left, and that the file ends here. */
static int op_stop(ckpt_pk_machine *m)
{
    int rc = ckpt_pk_pop(m, &m->p.out->root);

    if (rc != CKPT_OK)
        return rc;
    m->stopped = true;
    m->p.out->end = m->pos;
    if (m->stack.n > 0 || m->marks.n > 0)
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT, "values are left on the stack at STOP");
    if (m->pos < m->frame_end || (m->pos < m->n && !m->p.opts->may_continue))
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT, "%" PRIu64 " bytes follow the end of the pickle",
                            m->n - m->pos);
    return ckpt_pk_check_item(&m->p, m->p.out->root);
}

/* MARK: remember the height of the stack. */
static int op_mark(ckpt_pk_machine *m)
{
    size_t *mark = m->marks.n < PO_MARKS_MAX ? ckpt_vec_push(&m->marks) : NULL;

    if (!mark)
        return ckpt_pk_fail(&m->p, CKPT_ELIMIT, "more than 8388608 marks");
    *mark = m->stack.n;
    return CKPT_OK;
}

/* POP. */
static int op_pop(ckpt_pk_machine *m)
{
    ckpt_value *v;

    if (m->marks.n > 0 && ckpt_pk_height(m) == 0) {
        m->marks.n--; // a MARK on top is popped like a value
        return CKPT_OK;
    }
    return ckpt_pk_pop(m, &v);
}

/* POP_MARK: drop everything since the MARK. */
static int op_pop_mark(ckpt_pk_machine *m)
{
    ckpt_seq gone;

    return ckpt_pk_take(m, &gone);
}

/* DUP: push the same node again, as Python pushes the same object. */
static int op_dup(ckpt_pk_machine *m)
{
    ckpt_value *v;
    int rc = ckpt_pk_peek(m, &v);

    if (rc != CKPT_OK)
        return rc;
    ckpt_pk_take_share(m, v);
    ckpt_pk_take_changed(m, v);
    return ckpt_pk_push(m, v);
}

/* BINPUT, LONG_BINPUT. */
static int op_put(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    return ckpt_pk_remember(m, a->number);
}

/* BINGET, LONG_BINGET.  A class begins an object, perhaps one that repeats an earlier one. */
static int op_get(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    int rc = ckpt_pk_recall(m, a->number);

    if (rc == CKPT_OK && m->recalled && m->stack.at[m->stack.n - 1]->kind == CKPT_V_GLOBAL)
        rc = ckpt_pk_repeat(m);
    return rc;
}

/* MEMOIZE: store under the number of entries so far. */
static int op_memoize(ckpt_pk_machine *m)
{
    return ckpt_pk_height(m) > 0 && !ckpt_pk_take_remember(m) ? CKPT_OK
                                                              : ckpt_pk_remember(m, m->n_memo);
}

/* PUT of protocol 0: store the top value under the number in the text. */
static int op_put_text(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    uint64_t number;
    int rc = ckpt_pk_memo_number(&m->p, a->text, &number);

    return rc == CKPT_OK ? ckpt_pk_remember(m, number) : rc;
}

/* GET of protocol 0: push the value stored under the number in the text. */
static int op_get_text(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    uint64_t number;
    int rc = ckpt_pk_memo_number(&m->p, a->text, &number);

    return rc == CKPT_OK ? ckpt_pk_recall(m, number) : rc;
}

/* ---- constants and numbers ---- */

/* NONE.  Each constant is one shared node. */
static int op_none(ckpt_pk_machine *m)
{
    return ckpt_pk_push(m, m->p.none);
}

/* NEWTRUE. */
static int op_true(ckpt_pk_machine *m)
{
    return ckpt_pk_push(m, m->p.yes);
}

/* NEWFALSE. */
static int op_false(ckpt_pk_machine *m)
{
    return ckpt_pk_push(m, m->p.no);
}

/* Push an int, each in a node of its own, because a caller may edit values in place. */
static int po_push_int(ckpt_pk_machine *m, int64_t i)
{
    ckpt_value *v = ckpt_pk_node(&m->p, CKPT_V_INT);

    if (v)
        v->as.i = i;
    return ckpt_pk_push(m, v);
}

/* BININT: four bytes, signed. */
static int op_binint(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    return po_push_int(m, (int64_t)a->number - (a->number > INT32_MAX ? (int64_t)1 << 32 : 0));
}

/* BININT1, BININT2. */
static int op_binint_unsigned(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    return po_push_int(m, (int64_t)a->number);
}

/* INT and LONG of protocol 0. */
static int op_int(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    ckpt_value *v = NULL;
    int rc;

    if (a->text.n == 2 && a->text.at[0] == '0' && (a->text.at[1] == '0' || a->text.at[1] == '1')) {
        return ckpt_pk_push(m,
                            // the form of bools in protocol 0
                            a->text.at[1] == '1' ? m->p.yes : m->p.no);
    }
    rc = ckpt_pk_decimal(&m->p, &v, a->text);
    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* LONG1, LONG4: two's complement. */
static int op_long_bytes(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    ckpt_value *v = NULL;
    int rc;

    if (a->text.n > PO_LONG_MAX)
        return ckpt_pk_fail(&m->p, CKPT_ELIMIT, "an integer of %" PRIu64 " bytes", a->text.n);
    rc = ckpt_pk_long(&m->p, &v, (const uint8_t *)a->text.at, a->text.n);
    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* FLOAT of protocol 0. */
static int op_float_text(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    ckpt_value *v = NULL;
    int rc = ckpt_pk_float(&m->p, &v, a->text);

    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* BINFLOAT: keep all bits, even those of NaNs. */
static int op_binfloat(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    ckpt_value *v = ckpt_pk_node(&m->p, CKPT_V_FLOAT);

    if (v)
        memcpy(&v->as.f, &a->number, sizeof v->as.f);
    return ckpt_pk_push(m, v);
}

/* ---- text and bytes ---- */

/* Push a copy of the bytes, because the tree outlives the input buffer. */
static int po_push_text(ckpt_pk_machine *m, ckpt_value_kind kind, ckpt_text s)
{
    ckpt_value *v = ckpt_pk_node(&m->p, kind);

    if (v) {
        v->as.text.at = ckpt_arena_string(m->p.arena, s.at, s.n);
        v->as.text.n = s.n;
        if (!v->as.text.at)
            return ckpt_pk_fail(&m->p, CKPT_ELIMIT, "out of memory");
    }
    return ckpt_pk_push(m, v);
}

/* BINUNICODE and its short and long forms. */
static int op_unicode(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    if (!ckpt_pk_text_ok(a->text.at, a->text.n))
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT, "text that is not UTF-8");
    return po_push_text(m, CKPT_V_STR, a->text);
}

/* BINBYTES and its short and long forms. */
static int op_bytes(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    return po_push_text(m, CKPT_V_BYTES, a->text);
}

/* BYTEARRAY8. */
static int op_bytearray(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    return po_push_text(m, CKPT_V_BYTEARRAY, a->text);
}

/* BINSTRING, SHORT_BINSTRING: Python 2's str. */
static int op_binstring(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    ckpt_value *v = NULL;
    int rc = ckpt_pk_old_string(&m->p, &v, a->text.at, a->text.n);

    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* STRING of protocol 0. */
static int op_string(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    ckpt_value *v = NULL;
    int rc = ckpt_pk_string(&m->p, &v, a->text);

    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* UNICODE of protocol 0. */
static int op_unicode_text(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    ckpt_value *v = NULL;
    int rc = ckpt_pk_unicode(&m->p, &v, a->text);

    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* ---- containers ---- */

/* Make a sequence with a copy of the items, without pushing it. */
static int po_sequence(ckpt_pk_machine *m, ckpt_value **out, ckpt_value_kind kind, ckpt_seq items)
{
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < items.n; i++)
        rc = ckpt_pk_check_item(&m->p, items.at[i]);
    if (rc != CKPT_OK)
        return rc;
    if (kind == CKPT_V_TUPLE && items.n == 0) {
        *out = m->p.empty;
        return CKPT_OK;
    }
    *out = ckpt_pk_node(&m->p, kind);
    if (!*out)
        return CKPT_ELIMIT;
    if (kind == CKPT_V_TUPLE) {
        (*out)->as.seq.at = ckpt_arena_copy(m->p.arena, items.at, items.n * sizeof *items.at);
        (*out)->as.seq.n = items.n;
        return (*out)->as.seq.at ? CKPT_OK : ckpt_pk_fail(&m->p, CKPT_ELIMIT, "out of memory");
    }
    // ckpt_seq_add lays the array out in a form that can grow later
    for (uint64_t i = 0; i < items.n; i++) {
        if (!ckpt_seq_add(m->p.arena, &(*out)->as.seq, items.at[i]))
            return ckpt_pk_fail(&m->p, CKPT_ELIMIT, "out of memory");
    }
    return CKPT_OK;
}

/* Make such a sequence and push it. */
static int po_push_sequence(ckpt_pk_machine *m, ckpt_value_kind kind, ckpt_seq items)
{
    ckpt_value *v = NULL;
    int rc = po_sequence(m, &v, kind, items);

    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* EMPTY_TUPLE: push the one shared node, as Python does. */
static int op_empty_tuple(ckpt_pk_machine *m)
{
    return ckpt_pk_push(m, m->p.empty);
}

/* TUPLE1, TUPLE2, TUPLE3: a->number is the number of items. */
static int op_small_tuple(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    ckpt_seq items = {.n = a->number};

    if (ckpt_pk_height(m) < items.n)
        return ckpt_pk_short(m);
    m->stack.n -= (size_t)items.n;
    items.at = &m->stack.at[m->stack.n];
    return po_push_sequence(m, CKPT_V_TUPLE, items);
}

/* Make and push a sequence of all values above the MARK. */
static int po_take_sequence(ckpt_pk_machine *m, ckpt_value_kind kind)
{
    ckpt_seq items;
    int rc = ckpt_pk_take(m, &items);

    return rc == CKPT_OK ? po_push_sequence(m, kind, items) : rc;
}

/* TUPLE. */
static int op_tuple(ckpt_pk_machine *m)
{
    return po_take_sequence(m, CKPT_V_TUPLE);
}

/* LIST. */
static int op_list(ckpt_pk_machine *m)
{
    return po_take_sequence(m, CKPT_V_LIST);
}

/* EMPTY_LIST. */
static int op_empty_list(ckpt_pk_machine *m)
{
    return ckpt_pk_push(m, ckpt_pk_node(&m->p, CKPT_V_LIST));
}

/* EMPTY_DICT. */
static int op_empty_dict(ckpt_pk_machine *m)
{
    return ckpt_pk_push(m, ckpt_pk_node(&m->p, CKPT_V_DICT));
}

/* EMPTY_SET. */
static int op_empty_set(ckpt_pk_machine *m)
{
    return ckpt_pk_push(m, ckpt_pk_node(&m->p, CKPT_V_SET));
}

/* Check that all items of a set are hashable. */
static int po_check_hashable(ckpt_pk_machine *m, ckpt_seq items)
{
    uint32_t hash;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < items.n; i++)
        rc = ckpt_pk_hash(&m->p, items.at[i], &hash);
    return rc;
}

/* FROZENSET. */
static int op_frozenset(ckpt_pk_machine *m)
{
    ckpt_seq items;
    int rc = ckpt_pk_take(m, &items);

    if (rc == CKPT_OK)
        rc = po_check_hashable(m, items);
    return rc == CKPT_OK ? po_push_sequence(m, CKPT_V_FROZENSET, items) : rc;
}

/* The list that appended items go to, or NULL. */
static ckpt_seq *po_items(const ckpt_pk_machine *m, ckpt_value *v, ckpt_value_kind kind)
{
    ckpt_name_id id;

    if (v->kind == kind && (v->mark & CKPT_PK_FIXED) == 0)
        return &v->as.seq;
    if (v->kind != CKPT_V_OBJECT || !v->as.object->cls)
        return NULL;
    id = ckpt_pk_id(&m->p, v->as.object->cls);
    if (v->as.object->cls->kind == CKPT_V_OBJECT) // of a class that the pickle itself has made
        return &v->as.object->items;
    return id == CKPT_NAME_OPAQUE || id == CKPT_NAME_DATA_SEQ ? &v->as.object->items : NULL;
}

/* Append items to the top value. */
static int po_append(ckpt_pk_machine *m, ckpt_value_kind kind, ckpt_seq items)
{
    ckpt_value *v;
    ckpt_seq *to;
    int rc = ckpt_pk_peek(m, &v);

    if (rc != CKPT_OK)
        return rc;
    to = po_items(m, v, kind);
    if (!to)
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT,
                            "the pickle appends items to a value that cannot hold them");
    for (uint64_t i = 0; rc == CKPT_OK && i < items.n; i++) {
        rc = ckpt_pk_check_item(&m->p, items.at[i]);
        if (rc == CKPT_OK && !ckpt_seq_add(m->p.arena, to, items.at[i]))
            rc = ckpt_pk_fail(&m->p, CKPT_ELIMIT, "out of memory");
    }
    ckpt_pk_take_changed(m, v);
    return rc;
}

/* APPEND. */
static int op_append(ckpt_pk_machine *m)
{
    ckpt_value *item;
    int rc = ckpt_pk_pop(m, &item);

    return rc == CKPT_OK ? po_append(m, CKPT_V_LIST, (ckpt_seq){.at = &item, .n = 1}) : rc;
}

/* APPENDS. */
static int op_appends(ckpt_pk_machine *m)
{
    ckpt_seq items;
    int rc = ckpt_pk_take(m, &items);

    if (rc == CKPT_OK)
        rc = ckpt_pk_take_items(m, &items, false);
    return rc == CKPT_OK ? po_append(m, CKPT_V_LIST, items) : rc;
}

/* ADDITEMS: add items to a set. */
static int op_additems(ckpt_pk_machine *m)
{
    ckpt_seq items;
    int rc = ckpt_pk_take(m, &items);

    if (rc == CKPT_OK)
        rc = po_check_hashable(m, items);
    return rc == CKPT_OK ? po_append(m, CKPT_V_SET, items) : rc;
}

/* Set pairs of the top value. */
static int po_set_pairs(ckpt_pk_machine *m, ckpt_seq items)
{
    ckpt_value *v;
    int rc = ckpt_pk_peek(m, &v);

    if (rc == CKPT_OK && items.n % 2 != 0)
        rc = ckpt_pk_fail(&m->p, CKPT_EFORMAT, "the last key of a dict has no value");
    if (rc == CKPT_OK && items.n == 0 && v->kind != CKPT_V_DICT && v->kind != CKPT_V_ODICT &&
        v->kind != CKPT_V_OBJECT)
        rc = ckpt_pk_fail(&m->p, CKPT_EFORMAT,
                          "the pickle sets items of a value that is not a dict");
    if (rc == CKPT_OK)
        rc = ckpt_pk_set_items(&m->p, v, &items);
    if (rc == CKPT_OK)
        ckpt_pk_take_changed(m, v);
    return rc;
}

/* SETITEM: take key and value, and set them in the dict below. */
static int op_setitem(ckpt_pk_machine *m)
{
    ckpt_seq pair = {.n = 2};

    if (ckpt_pk_height(m) < 3)
        return ckpt_pk_short(m);
    m->stack.n -= 2;
    pair.at = &m->stack.at[m->stack.n];
    return po_set_pairs(m, pair);
}

/* SETITEMS. */
static int op_setitems(ckpt_pk_machine *m)
{
    ckpt_seq items;
    int rc = ckpt_pk_take(m, &items);

    if (rc == CKPT_OK && items.n % 2 == 0)
        rc = ckpt_pk_take_items(m, &items, true);
    return rc == CKPT_OK ? po_set_pairs(m, items) : rc;
}

/* DICT: take keys and values above the MARK. */
static int op_dict(ckpt_pk_machine *m)
{
    ckpt_value *v = ckpt_pk_node(&m->p, CKPT_V_DICT);
    ckpt_seq items;
    int rc = !v ? CKPT_ELIMIT : ckpt_pk_take(m, &items);

    if (rc == CKPT_OK && items.n % 2 != 0)
        rc = ckpt_pk_fail(&m->p, CKPT_EFORMAT, "the last key of a dict has no value");
    if (rc == CKPT_OK)
        rc = ckpt_pk_set_items(&m->p, v, &items);
    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* ---- names and calls ---- */

/* True for a possible Python name: UTF-8, without line feeds, which would end it in a GLOBAL. */
static bool po_is_name(ckpt_text s)
{
    for (uint64_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.at[i] < 0x20 || s.at[i] == 0x7F)
            return false;
    }
    return ckpt_utf8_ok(s.at, s.n);
}

/* GLOBAL: classify the name immediately, even if the pickle never calls it. */
static int op_global(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    ckpt_value *v = NULL;
    int rc;

    if (!po_is_name(a->text) || !po_is_name(a->more))
        return ckpt_pk_fail(
            &m->p, CKPT_EFORMAT,
            "the name of a module or class has control characters, or is not UTF-8");
    rc = ckpt_pk_name_node(&m->p, &v, a->text, a->more);
    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* STACK_GLOBAL: the same with module and name from the stack. */
static int op_stack_global(ckpt_pk_machine *m)
{
    ckpt_value *module = NULL, *name = NULL;
    int rc = ckpt_pk_pop(m, &name);

    if (rc == CKPT_OK)
        rc = ckpt_pk_pop(m, &module);
    if (rc != CKPT_OK)
        return rc;
    if (module->kind != CKPT_V_STR || name->kind != CKPT_V_STR)
        return ckpt_pk_fail(&m->p, CKPT_EFORMAT, "the name of a module or class is not a string");
    return op_global(m, &(ckpt_pk_arg){.text = module->as.text, .more = name->as.text});
}

/* REDUCE: take callee and arguments, and push the result of the call. */
static int op_reduce(ckpt_pk_machine *m)
{
    ckpt_value *args, *callee, *v = NULL;
    int rc = ckpt_pk_pop(m, &args);

    if (rc == CKPT_OK)
        rc = ckpt_pk_pop(m, &callee);
    if (rc == CKPT_OK)
        rc = ckpt_pk_call(&m->p, &v, callee, args);
    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* NEWOBJ: take class and arguments, and push the new object. */
static int op_newobj(ckpt_pk_machine *m)
{
    ckpt_value *args, *cls, *v = NULL;
    int rc = ckpt_pk_pop(m, &args);

    if (rc == CKPT_OK)
        rc = ckpt_pk_pop(m, &cls);
    if (rc == CKPT_OK)
        rc = ckpt_pk_make(&m->p, &v, cls, args, NULL);
    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* NEWOBJ_EX: the same with named arguments. */
static int op_newobj_ex(ckpt_pk_machine *m)
{
    ckpt_value *kwargs, *args, *cls, *v = NULL;
    int rc = ckpt_pk_pop(m, &kwargs);

    if (rc == CKPT_OK)
        rc = ckpt_pk_pop(m, &args);
    if (rc == CKPT_OK)
        rc = ckpt_pk_pop(m, &cls);
    if (rc == CKPT_OK)
        rc = ckpt_pk_make(&m->p, &v, cls, args, kwargs);
    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* Call with the items as a tuple of arguments. */
static int po_call_with(ckpt_pk_machine *m, ckpt_value *callee, ckpt_seq items)
{
    ckpt_value *args = NULL, *v = NULL;
    int rc = po_sequence(m, &args, CKPT_V_TUPLE, items);

    if (rc == CKPT_OK)
        rc = ckpt_pk_call(&m->p, &v, callee, args);
    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* INST: call the named class with the values above the MARK. */
static int op_inst(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    ckpt_seq items;
    ckpt_value *cls = NULL;
    int rc = op_global(m, a); // this also checks the name

    if (rc == CKPT_OK) {
        cls = m->stack.at[--m->stack.n];
        rc = ckpt_pk_take(m, &items);
    }
    return rc == CKPT_OK ? po_call_with(m, cls, items) : rc;
}

/* OBJ: call the class with its arguments, all above the MARK. */
static int op_obj(ckpt_pk_machine *m)
{
    ckpt_seq items;
    int rc = ckpt_pk_take(m, &items);

    if (rc != CKPT_OK)
        return rc;
    if (items.n == 0)
        return ckpt_pk_short(m);
    return po_call_with(m, items.at[0], (ckpt_seq){.at = items.at + 1, .n = items.n - 1});
}

/* BUILD: take the state and give it to the object, which stays on the stack. */
static int op_build(ckpt_pk_machine *m)
{
    ckpt_value *state, *v;
    int rc = ckpt_pk_pop(m, &state);

    if (rc == CKPT_OK)
        rc = ckpt_pk_peek(m, &v);
    if (rc == CKPT_OK)
        rc = ckpt_pk_build(&m->p, v, state);
    if (rc != CKPT_OK)
        return rc;
    ckpt_pk_take_changed(m, v);
    ckpt_pk_take_object(m, v);
    return CKPT_OK;
}

/* BINPERSID: push a storage, because torch refers to storages by persistent ids. */
static int op_binpersid(ckpt_pk_machine *m)
{
    ckpt_value *id, *v = NULL;
    int rc = ckpt_pk_pop(m, &id);

    if (rc == CKPT_OK)
        rc = ckpt_pk_persistent(&m->p, &v, id);
    return rc == CKPT_OK ? ckpt_pk_push(m, v) : rc;
}

/* PERSID: refuse it, because torch never writes it. */
static int op_persid(ckpt_pk_machine *m)
{
    return ckpt_pk_fail(&m->p, CKPT_EFORMAT,
                        "a persistent id is a text; expected a tuple, as torch writes it");
}

/*
 * EXT1, EXT2, EXT4: refuse names by number, because only the process that wrote them knows the
 * names.
 */
static int op_ext(ckpt_pk_machine *m, const ckpt_pk_arg *a)
{
    return ckpt_pk_fail(&m->p, CKPT_EUNSAFE,
                        "the pickle refers to entry %" PRIu64
                        " of the extension registry (copyreg); refused",
                        a->number);
}

/* NEXT_BUFFER, READONLY_BUFFER of protocol 5: refuse buffers outside of the pickle. */
static int op_buffer(ckpt_pk_machine *m)
{
    return ckpt_pk_fail(&m->p, CKPT_EFORMAT,
                        "the pickle refers to an out-of-band buffer, which the file does not hold");
}

/* ---- the table of opcodes ---- */

const ckpt_pk_op ckpt_pk_ops[256] = {
    [0x80] = {.form = PK_U1, .run = op_proto},
    [0x95] = {.form = PK_U8, .run = op_frame},
    ['.'] = {.bare = op_stop},
    ['('] = {.bare = op_mark},
    ['0'] = {.bare = op_pop},
    ['1'] = {.bare = op_pop_mark},
    ['2'] = {.bare = op_dup},
    ['p'] = {.form = PK_LINE, .run = op_put_text},
    ['q'] = {.form = PK_U1, .run = op_put},
    ['r'] = {.form = PK_U4, .run = op_put},
    [0x94] = {.bare = op_memoize},
    ['g'] = {.form = PK_LINE, .run = op_get_text},
    ['h'] = {.form = PK_U1, .run = op_get},
    ['j'] = {.form = PK_U4, .run = op_get},
    ['N'] = {.bare = op_none},
    [0x88] = {.bare = op_true},
    [0x89] = {.bare = op_false},
    ['J'] = {.form = PK_U4, .run = op_binint},
    ['K'] = {.form = PK_U1, .run = op_binint_unsigned},
    ['M'] = {.form = PK_U2, .run = op_binint_unsigned},
    ['I'] = {.form = PK_LINE, .run = op_int},
    ['L'] = {.form = PK_LINE, .run = op_int},
    [0x8A] = {.form = PK_N1, .run = op_long_bytes},
    [0x8B] = {.form = PK_N4, .run = op_long_bytes},
    ['F'] = {.form = PK_LINE, .run = op_float_text},
    ['G'] = {.form = PK_F8, .run = op_binfloat},
    ['X'] = {.form = PK_N4, .run = op_unicode},
    [0x8C] = {.form = PK_N1, .run = op_unicode},
    [0x8D] = {.form = PK_N8, .run = op_unicode},
    ['B'] = {.form = PK_N4, .run = op_bytes},
    ['C'] = {.form = PK_N1, .run = op_bytes},
    [0x8E] = {.form = PK_N8, .run = op_bytes},
    [0x96] = {.form = PK_N8, .run = op_bytearray},
    ['T'] = {.form = PK_N4, .run = op_binstring},
    ['U'] = {.form = PK_N1, .run = op_binstring},
    ['S'] = {.form = PK_LINE, .run = op_string},
    ['V'] = {.form = PK_LINE, .run = op_unicode_text},
    [')'] = {.bare = op_empty_tuple},
    [0x85] = {.form = PK_COUNT1, .run = op_small_tuple},
    [0x86] = {.form = PK_COUNT2, .run = op_small_tuple},
    [0x87] = {.form = PK_COUNT3, .run = op_small_tuple},
    ['t'] = {.bare = op_tuple},
    ['l'] = {.bare = op_list},
    [']'] = {.bare = op_empty_list},
    ['}'] = {.bare = op_empty_dict},
    [0x8F] = {.bare = op_empty_set},
    [0x91] = {.bare = op_frozenset},
    ['a'] = {.bare = op_append},
    ['e'] = {.bare = op_appends},
    [0x90] = {.bare = op_additems},
    ['s'] = {.bare = op_setitem},
    ['u'] = {.bare = op_setitems},
    ['d'] = {.bare = op_dict},
    ['c'] = {.form = PK_LINES, .run = op_global},
    [0x93] = {.bare = op_stack_global},
    ['R'] = {.bare = op_reduce},
    [0x81] = {.bare = op_newobj},
    [0x92] = {.bare = op_newobj_ex},
    ['i'] = {.form = PK_LINES, .run = op_inst},
    ['o'] = {.bare = op_obj},
    ['b'] = {.bare = op_build},
    ['Q'] = {.bare = op_binpersid},
    ['P'] = {.bare = op_persid},
    [0x82] = {.form = PK_U1, .run = op_ext},
    [0x83] = {.form = PK_U2, .run = op_ext},
    [0x84] = {.form = PK_U4, .run = op_ext},
    [0x97] = {.bare = op_buffer},
    [0x98] = {.bare = op_buffer},
};
