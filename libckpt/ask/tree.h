/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: what the two printers of the tree of values share: output, walking, what is shared.
 *
 * The values form a graph.  Nodes that are met again are numbered the first time and referred to
 * afterwards, so the output is linear in the graph.  Nothing is written into the nodes: several
 * threads may print one map.
 */
#ifndef CKPT_TREE_H
#define CKPT_TREE_H

#include "ckpt.h"
#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

/* A node that can be met twice. */
typedef struct ckpt_tree_node {
    const ckpt_value *v;
    uint32_t n_refs;
    uint32_t id; /* 0 until it is printed for the first time and known to be met again */
} ckpt_tree_node;

/* A container that is being printed. */
typedef struct ckpt_tree_frame {
    const ckpt_value *v;
    uint64_t i;         /* next slot */
    uint64_t n_printed; /* items, for the limit */
    bool object;        /* JSON: a dict that is printed as an object */
    unsigned wraps;     /* JSON: closing braces around it; text: the indent of what is below it */
} ckpt_tree_frame;

CKPT_VEC(ckpt_tree_nodes, ckpt_tree_node);
CKPT_VEC(ckpt_tree_frames, ckpt_tree_frame);

typedef struct ckpt_tree {
    ckpt_write_fn fn;
    void *ctx;
    ckpt_err *err;
    int rc; /* the first failure; output after it goes nowhere */
    unsigned max_depth;
    uint64_t max_items;
    ckpt_tree_nodes nodes;
    ckpt_index index; /* over nodes */
    ckpt_tree_frames frames;
    uint32_t n_ids;
    size_t n_held;
    char held[4096];
} ckpt_tree;

/* The printers: everything below root. */
void ckpt_tree_text(ckpt_tree *t, const ckpt_value *root);
void ckpt_tree_json(ckpt_tree *t, const ckpt_value *root);

/* ---- output (tree_put.c) ---- */

/* Output gathers and is handed on in pieces; after the first failure nothing more is. */
void ckpt_tree_fail(ckpt_tree *t, int code, const char *text);
void ckpt_tree_put(ckpt_tree *t, const char *s, size_t n);
void ckpt_tree_puts(ckpt_tree *t, const char *s);
void ckpt_tree_printf(ckpt_tree *t, const char *fmt, ...) CKPT_PRINTF(2, 3);
void ckpt_tree_flush(ckpt_tree *t);

/* A float so that reading it gives the same bits; always with a point, an exponent or a name. */
void ckpt_tree_float(ckpt_tree *t, double f);

/* An INT or LONG in decimal. */
void ckpt_tree_int(ckpt_tree *t, const ckpt_value *v);

/*
 * Text between quotes with control characters escaped as both Python and JSON read them, cut at
 * max bytes (0: all).  What is no UTF-8, a lone surrogate, becomes U+FFFD.
 */
void ckpt_tree_quoted(ckpt_tree *t, ckpt_text s, char quote, uint64_t max);

/* The same without the quotes. */
void ckpt_tree_escaped(ckpt_tree *t, ckpt_text s, char quote, uint64_t max);

/* The first max bytes as hexadecimal digits. */
void ckpt_tree_hex(ckpt_tree *t, ckpt_text s, uint64_t max);

/* ---- walking (tree_walk.c) ---- */

/* The roles of a node's children. */
typedef enum ckpt_tree_role {
    CKPT_TREE_END, /* no more */
    CKPT_TREE_ARGS,
    CKPT_TREE_KWARGS,
    CKPT_TREE_STATE,
    CKPT_TREE_ITEM,
    CKPT_TREE_KEY,
    CKPT_TREE_VALUE
} ckpt_tree_role;

typedef struct ckpt_tree_slot {
    ckpt_tree_role role;
    uint64_t number;       /* of the item or pair, from 0 */
    const ckpt_value *v;   /* NULL: absent */
    const ckpt_value *key; /* CKPT_TREE_VALUE: the key */
} ckpt_tree_slot;

/* Slot i of a node: first what it has besides its items, then these. */
ckpt_tree_slot ckpt_tree_slot_at(const ckpt_value *v, uint64_t i);

/* Slots of a node that come before its items; how many items or pairs it has. */
uint64_t ckpt_tree_n_fixed(const ckpt_value *v);
uint64_t ckpt_tree_n_items(const ckpt_value *v);

/* True for what is printed as one word: numbers, short texts, names. */
bool ckpt_tree_is_scalar(const ckpt_value *v);

/* True for a short sequence of scalars, printed on one line each time it is met. */
bool ckpt_tree_is_inline(const ckpt_value *v);

/* Count how often each node below root is met. */
void ckpt_tree_survey(ckpt_tree *t, const ckpt_value *root);

/*
 * What to do about sharing when v is about to be printed: 0, nothing; else its number, and *again
 * tells that it was printed before.
 */
uint32_t ckpt_tree_share(ckpt_tree *t, const ckpt_value *v, bool *again);

/* A numpy array or scalar among the objects. */
typedef struct ckpt_tree_array {
    char kind;     /* 'f', 'i', 'u', 'b' */
    unsigned size; /* bytes of an element */
    bool big_endian;
    bool scalar;
    ckpt_seq shape; /* of INTs */
    ckpt_text bytes;
    uint64_t n_elems; /* in bytes */
} ckpt_tree_array;

/* True if v is one, of a plain numeric dtype. */
bool ckpt_tree_numpy(const ckpt_value *v, ckpt_tree_array *out);

/* Element i of it as text. */
void ckpt_tree_element(ckpt_tree *t, const ckpt_tree_array *a, uint64_t i);

#endif
