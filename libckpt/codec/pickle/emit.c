/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emit.c: writes single opcodes of pickles: numbers, texts, names, and the memo.
 */
#include <assert.h>

#include "libckpt/codec/pickle/emit.h"

#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/codec/pickle/trust.h"

#define ET_SHARED_MAX                                                                              \
    255u /* bytes of a text that is shared by its content, because storage keys are shorter */

void ckpt_pw_fail(ckpt_pw *w, int code, const char *text)
{
    assert(code != CKPT_OK && text);
    if (w->rc == CKPT_OK)
        w->rc = ckpt_fail(w->err, code, "pickle: %s", text);
}

/* Fail because an allocation failed. */
static void et_memory(ckpt_pw *w)
{
    ckpt_pw_fail(w, CKPT_ELIMIT, "out of memory");
}

/* ---- bytes ---- */

/* Append bytes unchanged. */
static void et_raw(ckpt_pw *w, const void *p, uint64_t n)
{
    if (w->rc == CKPT_OK && !ckpt_bytes_add(w->out, p, (size_t)n))
        et_memory(w);
}

void ckpt_pw_op(ckpt_pw *w, unsigned op)
{
    assert(op <= UINT8_MAX);
    uint8_t byte = (uint8_t)op;

    et_raw(w, &byte, 1);
}

void ckpt_pw_op_number(ckpt_pw *w, unsigned op, uint64_t number, unsigned n)
{
    assert(op <= UINT8_MAX && n <= sizeof number);
    uint8_t bytes[9] = {(uint8_t)op};

    for (unsigned i = 0; i < n; i++)
        bytes[1 + i] = (uint8_t)(number >> 8 * i);
    et_raw(w, bytes, 1 + n);
}

/* ---- memo ---- */

static bool et_text_same(ckpt_text a, ckpt_text b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, (size_t)a.n) == 0);
}

/* Compare for the index: the same node, or equal texts of the same kind. */
static bool et_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_pw *w = ctx;
    const ckpt_pw_known *known = &w->known.at[number];
    const ckpt_pw_key *a, *b = key;

    if (known->node || b->node)
        return known->node == b->node;
    a = &w->text.at[known->text];
    return (!a->b.at) == (!b->b.at) && et_text_same(a->a, b->a) && et_text_same(a->b, b->b);
}

/* Hash the node's address, or the text. */
static uint32_t et_hash(const ckpt_pw_key *k)
{
    if (k->node)
        return ckpt_hash_u64((uint64_t)(uintptr_t)k->node);
    return ckpt_hash_bytes(k->a.at, (size_t)k->a.n, (uint32_t)k->b.n);
}

/*
 * Store the value just written under the next memo number, without a later reference to it;
 * CPython's pickler does the same.
 */
void ckpt_pw_put(ckpt_pw *w)
{
    if (w->n_memo <= 255)
        ckpt_pw_op_number(w, 'q', w->n_memo, 1);
    else
        ckpt_pw_op_number(w, 'r', w->n_memo, 4);
    w->n_memo++;
}

/* Assign the next memo number to an entry. */
static void et_know(ckpt_pw *w, ckpt_pw_key k)
{
    ckpt_pw_key *text = w->rc == CKPT_OK && !k.node ? ckpt_vec_push(&w->text) : NULL;
    ckpt_pw_known *slot = w->rc == CKPT_OK && (k.node || text) ? ckpt_vec_push(&w->known) : NULL;

    if (!slot) {
        et_memory(w);
        return;
    }
    if (text)
        *text = k;
    *slot = (ckpt_pw_known){k.node, text ? (uint32_t)w->text.n - 1 : 0, w->n_memo};
    if (!ckpt_index_add(&w->index, et_hash(&k), (uint32_t)(w->known.n - 1)))
        et_memory(w);
}

/* Store the value just written in the memo and keep its entry for later references. */
static void et_put_known(ckpt_pw *w, ckpt_pw_key k)
{
    et_know(w, k);
    ckpt_pw_put(w);
}

void ckpt_pw_put_node(ckpt_pw *w, const ckpt_value *v)
{
    assert(v);
    et_put_known(w, (ckpt_pw_key){.node = v});
}

/* Find an entry; CKPT_INDEX_NONE: it was not written yet. */
static uint32_t et_find(const ckpt_pw *w, const ckpt_pw_key *k)
{
    return ckpt_index_find(&w->index, et_hash(k), et_same, w, k);
}

/* Write a reference to an earlier value; false if it was not written yet. */
static bool et_get(ckpt_pw *w, const ckpt_pw_key *k)
{
    uint32_t at = et_find(w, k);
    uint32_t number;

    if (at == CKPT_INDEX_NONE)
        return false;
    number = w->known.at[at].number;
    ckpt_pw_op_number(w, number <= 255 ? 'h' : 'j', number, number <= 255 ? 1 : 4);
    return true;
}

bool ckpt_pw_get_node(ckpt_pw *w, const ckpt_value *v)
{
    assert(v);
    return et_get(w, &(ckpt_pw_key){.node = v});
}

/* ---- leaves ---- */

/* Write a BINUNICODE.  A longer text would need an opcode of protocol 4. */
static void et_unicode(ckpt_pw *w, ckpt_text s)
{
    if (s.n > UINT32_MAX) {
        ckpt_pw_fail(w, CKPT_EUNSUPPORTED, "a text beyond 4 GiB does not fit into a pickle");
        return;
    }
    ckpt_pw_op_number(w, 'X', s.n, 4);
    et_raw(w, s.at, s.n);
}

void ckpt_pw_str(ckpt_pw *w, ckpt_text s, const void *node)
{
    ckpt_pw_key as_node = {.node = node}, as_text = {.a = s};
    bool found = node && s.n > 0 ? et_get(w, &as_node) : et_get(w, &as_text);

    if (found)
        return;
    et_unicode(w, s);
    if (node)
        et_know(w, as_node);
    if (s.n <= ET_SHARED_MAX && et_find(w, &as_text) == CKPT_INDEX_NONE)
        et_know(w, as_text);
    ckpt_pw_put(w);
}

void ckpt_pw_fresh(ckpt_pw *w, const char *s)
{
    assert(s);
    et_unicode(w, (ckpt_text){s, strlen(s)});
    ckpt_pw_put(w);
}

void ckpt_pw_cstr(ckpt_pw *w, const char *s)
{
    assert(s);
    ckpt_pw_str(w, (ckpt_text){s, strlen(s)}, NULL);
}

void ckpt_pw_name(ckpt_pw *w, ckpt_global g)
{
    ckpt_pw_key k;

    ckpt_name_to_python2(&g);
    k = (ckpt_pw_key){.a = g.module, .b = g.name};
    if (memchr(g.module.at, '\n', (size_t)g.module.n) ||
        memchr(g.name.at, '\n', (size_t)g.name.n) || g.module.n == 0 || g.name.n == 0) {
        ckpt_pw_fail(w, CKPT_EUNSUPPORTED,
                     "the name of a module or class is empty or has a line feed, so that a pickle "
                     "cannot hold it");
        return;
    }
    if (!et_get(w, &k)) {
        ckpt_pw_op(w, 'c');
        et_raw(w, g.module.at, g.module.n);
        ckpt_pw_op(w, '\n');
        et_raw(w, g.name.at, g.name.n);
        ckpt_pw_op(w, '\n');
        et_put_known(w, k);
    }
}

void ckpt_pw_cname(ckpt_pw *w, const char *module, const char *name)
{
    assert(module && name);
    ckpt_pw_name(w,
                 (ckpt_global){.module = {module, strlen(module)}, .name = {name, strlen(name)}});
}

void ckpt_pw_bool(ckpt_pw *w, bool b)
{
    ckpt_pw_op(w, b ? 0x88 : 0x89);
}

/* Write a LONG1 or LONG4 with two's complement bytes. */
void ckpt_pw_long(ckpt_pw *w, const void *bytes, uint64_t n)
{
    assert(bytes || n == 0);
    ckpt_pw_op_number(w, n <= 255 ? 0x8A : 0x8B, n, n <= 255 ? 1 : 4);
    et_raw(w, bytes, n);
}

void ckpt_pw_int(ckpt_pw *w, int64_t i)
{
    uint8_t bytes[8];
    unsigned n = 8;

    if (i >= 0 && i <= 0xFF) {
        ckpt_pw_op_number(w, 'K', (uint64_t)i, 1);
    } else if (i >= 0 && i <= 0xFFFF) {
        ckpt_pw_op_number(w, 'M', (uint64_t)i, 2);
    } else if (i >= INT32_MIN && i <= INT32_MAX) {
        ckpt_pw_op_number(w, 'J', (uint64_t)i, 4);
    } else {
        for (unsigned k = 0; k < 8; k++)
            bytes[k] = (uint8_t)((uint64_t)i >> 8 * k);
        // drop a last byte that only repeats the sign
        while (n > 1 && bytes[n - 1] == (i < 0 ? 0xFF : 0) &&
               (bytes[n - 2] & 0x80u) == (i < 0 ? 0x80u : 0))
            n--;
        ckpt_pw_long(w, bytes, n);
    }
}

void ckpt_pw_float(ckpt_pw *w, double f)
{
    uint8_t bytes[9] = {'G'};
    uint64_t bits;

    memcpy(&bits, &f, sizeof bits);
    for (unsigned i = 0; i < 8; i++) {
        bytes[1 + i] = (uint8_t)(bits >> (56 - 8 * i)); // big-endian
    }
    et_raw(w, bytes, sizeof bytes);
}

/*
 * Write bytes as a text whose characters have these Latin-1 codes, because protocol 2 has no opcode
 * for bytes.
 */
static void et_latin1(ckpt_pw *w, ckpt_text s)
{
    uint64_t n = s.n;

    for (uint64_t i = 0; i < s.n; i++)
        n += (unsigned char)s.at[i] >= 0x80;
    if (n > UINT32_MAX) {
        et_unicode(w, (ckpt_text){s.at, n}); // this reports the error
        return;
    }
    ckpt_pw_op_number(w, 'X', n, 4);
    for (uint64_t i = 0; i < s.n && w->rc == CKPT_OK; i++) {
        unsigned c = (unsigned char)s.at[i];

        if (c >= 0x80) {
            ckpt_pw_op(w, 0xC0u | c >> 6);
            c = 0x80u | (c & 0x3Fu);
        }
        ckpt_pw_op(w, c);
    }
    ckpt_pw_put(w);
}

/* Write a call that makes bytes or bytearray, because protocol 2 has no opcode for them. */
void ckpt_pw_bytes(ckpt_pw *w, const ckpt_value *v)
{
    assert(v);
    bool array = v->kind == CKPT_V_BYTEARRAY;

    if (ckpt_pw_get_node(w, v))
        return;
    if (array || v->as.text.n == 0)
        ckpt_pw_cname(w, "builtins", array ? "bytearray" : "bytes");
    else
        ckpt_pw_cname(w, "_codecs", "encode");
    if (v->as.text.n == 0) {
        ckpt_pw_op(w, ')');
    } else {
        et_latin1(w, v->as.text);
        ckpt_pw_cstr(w, array ? "latin-1" : "latin1");
        ckpt_pw_op(w, 0x86);
        ckpt_pw_put(w);
    }
    ckpt_pw_op(w, 'R');
    ckpt_pw_put_node(w, v);
}

void ckpt_pw_dtype(ckpt_pw *w, ckpt_dtype d)
{
    const char *name = ckpt_dtype_get(d)->torch;

    if (!name) {
        ckpt_pw_fail(w, CKPT_EUNSUPPORTED,
                     "torch does not have the dtype of a tensor; convert the tensors first");
        return;
    }
    ckpt_pw_cname(w, "torch", name);
}

/*
 * Handle a node that is numbered after its parts.  If it contains itself, a part has already
 * written it: then drop the n_stack values for its parts from the stack and refer to the written
 * one.
 */
bool ckpt_pw_is_recursive(ckpt_pw *w, const ckpt_value *v, uint64_t n_stack)
{
    ckpt_pw_key k = {.node = v};

    if (et_find(w, &k) == CKPT_INDEX_NONE)
        return false;
    if (n_stack > 3)
        ckpt_pw_op(w, '1');
    for (uint64_t i = 0; n_stack <= 3 && i < n_stack; i++)
        ckpt_pw_op(w, '0');
    return et_get(w, &k);
}
