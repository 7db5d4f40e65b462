/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emit.h: writes single opcodes of a protocol-2 pickle, and its memo.
 *
 * Only the first failure is kept, in rc; later calls do nothing, so callers need not check each
 * one.
 */
#ifndef CKPT_CODEC_PICKLE_EMIT_H
#define CKPT_CODEC_PICKLE_EMIT_H

#include "libckpt/base/index.h"
#include "libckpt/codec/pickle/pickle.h"

/* What the memo is asked for: a node, or a text or name by its content. */
typedef struct ckpt_pw_key {
    const void *node; /* NULL for a text or name */
    ckpt_text a, b;   /* a: a text, or a name's module; b: the name */
} ckpt_pw_key;

/* An entry of the memo; a large tree has millions. */
typedef struct ckpt_pw_known {
    const void *node; /* NULL for a text or name */
    uint32_t text;    /* its index in ckpt_pw.text */
    uint32_t number;
} ckpt_pw_known;

/* The progress of a node that is being written. */
typedef struct ckpt_pw_frame {
    ckpt_value *v;
    uint64_t i;    /* the next item of the current part */
    unsigned part; /* the current part; its meaning depends on the kind of node (write.c) */
} ckpt_pw_frame;

CKPT_VEC(ckpt_pw_knowns, ckpt_pw_known);
CKPT_VEC(ckpt_pw_keys, ckpt_pw_key);
CKPT_VEC(ckpt_pw_frames, ckpt_pw_frame);

typedef struct ckpt_pw {
    ckpt_bytes *out;
    ckpt_err *err;
    int rc; /* the first failure */
    ckpt_pw_knowns known;
    ckpt_pw_keys text; /* the keys of known texts and names */
    ckpt_index index;  /* over known */
    ckpt_pw_frames frames;
    uint32_t n_memo;
} ckpt_pw;

/* Write an opcode, or an opcode and a little-endian number of n bytes. */
void ckpt_pw_op(ckpt_pw *w, unsigned op);
void ckpt_pw_op_number(ckpt_pw *w, unsigned op, uint64_t number, unsigned n);

/* Record a failure. */
void ckpt_pw_fail(ckpt_pw *w, int code, const char *text);

/* Store the value just written in the memo: without a later reference to it, or under its node. */
void ckpt_pw_put(ckpt_pw *w);
void ckpt_pw_put_node(ckpt_pw *w, const ckpt_value *v);

/* Write a reference to a node if it was already written; false if not. */
bool ckpt_pw_get_node(ckpt_pw *w, const ckpt_value *v);

/*
 * Handle a node that is numbered after its parts.  If it contains itself, a part has already
 * written it: then drop the n_stack values for its parts from the stack, refer to the written one
 * and return true.
 */
bool ckpt_pw_is_recursive(ckpt_pw *w, const ckpt_value *v, uint64_t n_stack);

/*
 * Write a text. Two nodes are two strings, as in Python (except the empty one). Texts without a
 * node are shared by content, also with texts of nodes, because CPython interns 'storage', 'cpu'
 * and so on.
 */
void ckpt_pw_str(ckpt_pw *w, ckpt_text s, const void *node);
void ckpt_pw_cstr(ckpt_pw *w, const char *s);
void ckpt_pw_fresh(ckpt_pw *w, const char *s); /* never shared */

/* Write a name, given in its Python 3 form. */
void ckpt_pw_name(ckpt_pw *w, ckpt_global g);
void ckpt_pw_cname(ckpt_pw *w, const char *module, const char *name);

/* Write one value by its shortest opcode; a long is n bytes, little-endian, two's complement. */
void ckpt_pw_bool(ckpt_pw *w, bool b);
void ckpt_pw_int(ckpt_pw *w, int64_t i);
void ckpt_pw_long(ckpt_pw *w, const void *bytes, uint64_t n);
void ckpt_pw_float(ckpt_pw *w, double f);
void ckpt_pw_bytes(ckpt_pw *w, const ckpt_value *v); /* bytes and bytearray */
void ckpt_pw_dtype(ckpt_pw *w, ckpt_dtype d);

#endif
