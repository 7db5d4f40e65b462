/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emit.h: writing single opcodes of a protocol-2 pickle, and its memo.
 *
 * Failures stick: the first one is kept in rc, and everything after it does nothing.
 */
#ifndef CKPT_CODEC_PICKLE_EMIT_H
#define CKPT_CODEC_PICKLE_EMIT_H

#include "libckpt/base/index.h"
#include "libckpt/codec/pickle/pickle.h"

/* Something that has a memo number: a node, or a text or name of equal content. */
typedef struct ckpt_pw_known {
    const void *node; /* NULL for the two others */
    ckpt_text a, b;   /* a text: a.  a name: module and name */
    uint32_t number;
} ckpt_pw_known;

/* A node that is being written: how far it is. */
typedef struct ckpt_pw_frame {
    ckpt_value *v;
    uint64_t i;    /* the next item of the part at hand */
    unsigned part; /* what is being written: see the functions of each kind */
} ckpt_pw_frame;

CKPT_VEC(ckpt_pw_knowns, ckpt_pw_known);
CKPT_VEC(ckpt_pw_frames, ckpt_pw_frame);

typedef struct ckpt_pw {
    ckpt_bytes *out;
    ckpt_err *err;
    int rc; /* the first failure */
    ckpt_pw_knowns known;
    ckpt_index index; /* over known */
    ckpt_pw_frames frames;
    uint32_t n_memo;
} ckpt_pw;

/* An opcode; an opcode and a little-endian number of n bytes. */
void ckpt_pw_op(ckpt_pw *w, unsigned op);
void ckpt_pw_op_number(ckpt_pw *w, unsigned op, uint64_t number, unsigned n);

/* Record a failure. */
void ckpt_pw_fail(ckpt_pw *w, int code, const char *text);

/* Number the value just written: for nobody, or so that its node can be referred to. */
void ckpt_pw_put(ckpt_pw *w);
void ckpt_pw_put_node(ckpt_pw *w, const ckpt_value *v);

/* Refer to a node that was written before; false if it was not. */
bool ckpt_pw_get_node(ckpt_pw *w, const ckpt_value *v);

/*
 * For a node that was made from its parts.  If writing a part wrote the node itself (it contains
 * itself), drop the n_stack values that were to make it and refer to the first one; else false.
 */
bool ckpt_pw_is_recursive(ckpt_pw *w, const ckpt_value *v, uint64_t n_stack);

/*
 * Texts.  Two nodes are two strings, as in Python (the empty one excepted); texts without a
 * node are shared by content, also with nodes: CPython interns 'storage', 'cpu' and the like.
 */
void ckpt_pw_str(ckpt_pw *w, ckpt_text s, const void *node);
void ckpt_pw_cstr(ckpt_pw *w, const char *s);
void ckpt_pw_fresh(ckpt_pw *w, const char *s); /* never shared */

/* Names, given in their Python 3 form. */
void ckpt_pw_name(ckpt_pw *w, ckpt_global g);
void ckpt_pw_cname(ckpt_pw *w, const char *module, const char *name);

/*
 * One value, by the shortest opcode that holds it; a long is n bytes, little-endian, two's
 * complement.
 */
void ckpt_pw_bool(ckpt_pw *w, bool b);
void ckpt_pw_int(ckpt_pw *w, int64_t i);
void ckpt_pw_long(ckpt_pw *w, const void *bytes, uint64_t n);
void ckpt_pw_float(ckpt_pw *w, double f);
void ckpt_pw_bytes(ckpt_pw *w, const ckpt_value *v); /* bytes and bytearray */
void ckpt_pw_dtype(ckpt_pw *w, ckpt_dtype d);

#endif
