/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: declares the functions that both printers of the tree of values share: output, walking,
 * shared nodes.
 *
 * The values form a graph. A node with several references gets a number when it is first printed,
 * and is referred to afterwards, so the size of the output is linear in that of the graph. The
 * printers never write to nodes, so several threads may print one map.
 */
#ifndef CKPT_TREE_H
#define CKPT_TREE_H

#include "ckpt_extra.h"
#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

/* A node that may have several references. */
typedef struct ckpt_tree_node {
    const ckpt_value *v;
    uint32_t n_refs;
    uint32_t id; /* 0 until the node is printed; then the $id that later references print */
} ckpt_tree_node;

/* A container during printing. */
typedef struct ckpt_tree_frame {
    const ckpt_value *v;
    uint64_t i;         /* next slot */
    uint64_t n_printed; /* number of printed items, for the limit */
    bool object;        /* JSON: a dict that is printed as an object */
    unsigned wraps;     /* JSON: closing braces around it; text: the indentation of its children */
} ckpt_tree_frame;

CKPT_VEC(ckpt_tree_nodes, ckpt_tree_node);
CKPT_VEC(ckpt_tree_frames, ckpt_tree_frame);

typedef struct ckpt_tree {
    ckpt_write_fn fn;
    void *ctx;
    ckpt_err *err;
    int rc; /* the first failure; later output is dropped */
    unsigned max_depth;
    uint64_t max_items;
    ckpt_tree_nodes nodes;
    ckpt_index index; /* over nodes */
    ckpt_tree_frames frames;
    uint32_t n_ids;
    size_t n_held;
    char held[4096];
} ckpt_tree;

/* Print everything below root. */
void ckpt_tree_text(ckpt_tree *t, const ckpt_value *root);
void ckpt_tree_json(ckpt_tree *t, const ckpt_value *root);

/* ---- output (tree_put.c) ---- */

/* Write to the output, through a buffer. After the first failure all further output is dropped. */
void ckpt_tree_fail(ckpt_tree *t, int code, const char *text);
void ckpt_tree_put(ckpt_tree *t, const char *s, size_t n);
void ckpt_tree_puts(ckpt_tree *t, const char *s);
void ckpt_tree_printf(ckpt_tree *t, const char *fmt, ...) CKPT_PRINTF(2, 3);
void ckpt_tree_flush(ckpt_tree *t);

/*
 * Print a float so that reading it gives the same bits; always with a point, an exponent or a name.
 */
void ckpt_tree_float(ckpt_tree *t, double f);

/* Print an INT or LONG in decimal. */
void ckpt_tree_int(ckpt_tree *t, const ckpt_value *v);

/*
 * Print text between quotes, with control characters escaped for both Python and JSON, cut at max
 * bytes (0: all). Invalid UTF-8, such as a lone surrogate, becomes U+FFFD.
 */
void ckpt_tree_quoted(ckpt_tree *t, ckpt_text s, char quote, uint64_t max);

/* As ckpt_tree_quoted, without the quotes. */
void ckpt_tree_escaped(ckpt_tree *t, ckpt_text s, char quote, uint64_t max);

/* Print the first max bytes as hexadecimal digits. */
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
    uint64_t number;       /* number of the item or pair, from 0 */
    const ckpt_value *v;   /* NULL: absent */
    const ckpt_value *key; /* CKPT_TREE_VALUE: the key */
} ckpt_tree_slot;

/* Slot i of a node: first its fixed parts, then its items. */
ckpt_tree_slot ckpt_tree_slot_at(const ckpt_value *v, uint64_t i);

/* Number of a node's slots before its items; number of its items or pairs. */
uint64_t ckpt_tree_n_fixed(const ckpt_value *v);
uint64_t ckpt_tree_n_items(const ckpt_value *v);

/* True for values that are printed as one word: numbers, short texts, names. */
bool ckpt_tree_is_scalar(const ckpt_value *v);

/* True for a short sequence of scalars, which is printed on one line each time. */
bool ckpt_tree_is_inline(const ckpt_value *v);

/* Count the references to each node below root. */
void ckpt_tree_survey(ckpt_tree *t, const ckpt_value *root);

/*
 * Prepare a reference when v is about to be printed: 0: not shared; else its number, and *again is
 * true if it was printed before.
 */
uint32_t ckpt_tree_share(ckpt_tree *t, const ckpt_value *v, bool *again);

/* A numpy array or scalar, found in a pickled object. */
typedef struct ckpt_tree_array {
    char kind;     /* 'f', 'i', 'u', 'b' */
    unsigned size; /* bytes of an element */
    bool big_endian;
    bool scalar;
    ckpt_seq shape; /* shape, a tuple of INTs */
    ckpt_text bytes;
    uint64_t n_elems; /* in bytes */
} ckpt_tree_array;

/* True if v is an array of a plain numeric dtype. */
bool ckpt_tree_numpy(const ckpt_value *v, ckpt_tree_array *out);

/* Print element i as text. */
void ckpt_tree_element(ckpt_tree *t, const ckpt_tree_array *a, uint64_t i);

#endif
