/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h: defines the state of the pickle machine, shared by its main loop (read.c), its opcodes
 * (ops.c) and its stack (stack.c).
 */
#ifndef CKPT_CODEC_PICKLE_MACHINE_H
#define CKPT_CODEC_PICKLE_MACHINE_H

#include "libckpt/codec/pickle/node.h"

CKPT_VEC(ckpt_pk_heights, size_t);

/* The opcodes since a class was pushed, and the machine's state at that time. */
typedef struct ckpt_pk_recording {
    bool on;
    uint64_t from;  /* offset of the first opcode */
    size_t height;  /* values on the stack, with the class */
    size_t n_marks; /* open MARKs */
    uint64_t n_memo, n_copies_left, n_objects;
    unsigned n_news, n_sets; /* NEWOBJ, SETITEMS so far */
    ckpt_pk_steps step;
    ckpt_bytes literal;
} ckpt_pk_recording;

typedef struct ckpt_pk_machine {
    ckpt_pk p;
    /* the bytes from offset `from` to `to`; n: size of the file */
    const uint8_t *bytes;
    uint64_t from, to, n, pos;
    uint8_t *window; /* opts.fetch: the buffer of these bytes, with room for more; else NULL */
    uint64_t room;
    uint64_t frame_end; /* 0: not in a frame */
    ckpt_values stack, memo;
    ckpt_pk_heights marks; /* heights of the stack at the open MARKs */
    uint64_t n_memo;       /* slots of the memo in use */
    bool stopped;
    /*
     * used with opts.take, which lets objects be freed while the pickle is read (take.c); else
     * NULL:
     */
    uint8_t *recalled; /* one bit for each memo slot: some opcode reads it */
    const void *kept;  /* the arena's top when the last value to keep was made */
    size_t n_kept;     /* number of names and storages at that time */
    ckpt_pk_recording recording;
} ckpt_pk_machine;

/* The form of an opcode's argument. */
typedef enum ckpt_pk_form {
    PK_BARE, /* none */
    PK_U1,   /* little-endian numbers of 1, 2, 4, 8 bytes */
    PK_U2,
    PK_U4,
    PK_U8,
    PK_F8,    /* a big-endian double */
    PK_LINE,  /* text up to a line feed */
    PK_LINES, /* two such lines */
    PK_N1,    /* a length of 1, 4 or 8 bytes, then that many bytes */
    PK_N4,
    PK_N8,
    PK_COUNT1, /* no argument; the count of 1, 2 or 3 is part of the opcode: TUPLE1 to TUPLE3 */
    PK_COUNT2,
    PK_COUNT3
} ckpt_pk_form;

/* A decoded argument. */
typedef struct ckpt_pk_arg {
    uint64_t number;
    ckpt_text text, more; /* more: the second line, of GLOBAL and INST */
} ckpt_pk_arg;

/* The implementation of an opcode; both functions NULL: there is no such opcode. */
typedef struct ckpt_pk_op {
    ckpt_pk_form form;
    int (*run)(ckpt_pk_machine *m, const ckpt_pk_arg *a);
    int (*bare)(ckpt_pk_machine *m);
} ckpt_pk_op;

extern const ckpt_pk_op ckpt_pk_ops[256];

/*
 * Fetch so that the next n bytes, or all to the end of the file, are at ckpt_pk_bytes (window.c).
 * It moves the bytes, but keeps those of the current opcode.
 */
int ckpt_pk_fill(ckpt_pk_machine *m, uint64_t n);

/* The bytes from the current position on, m->to - m->pos of them. */
static inline const uint8_t *ckpt_pk_bytes(const ckpt_pk_machine *m)
{
    return m->bytes + (m->pos - m->from);
}

/* Push a value; NULL: it could not be made, and that failure is already recorded. */
int ckpt_pk_push(ckpt_pk_machine *m, ckpt_value *v);

/* Pop or read the top value.  Values below the last MARK cannot be reached. */
int ckpt_pk_pop(ckpt_pk_machine *m, ckpt_value **out);
int ckpt_pk_peek(const ckpt_pk_machine *m, ckpt_value **out);

/* The number of values above the last MARK; record the failure that there are too few of them. */
size_t ckpt_pk_height(const ckpt_pk_machine *m);
int ckpt_pk_short(const ckpt_pk_machine *m);

/* Remove all values above the last MARK and the MARK; `out` is valid until the next push. */
int ckpt_pk_take(ckpt_pk_machine *m, ckpt_seq *out);

/* Ask whether to store the top value in the next memo slot: false if no opcode reads the slot. */
bool ckpt_pk_take_remember(ckpt_pk_machine *m);

/* Record that a value has another reference, or that a possibly shared value was changed. */
void ckpt_pk_take_share(ckpt_pk_machine *m, ckpt_value *v);
void ckpt_pk_take_changed(ckpt_pk_machine *m, const ckpt_value *v);

/* Offer an object that has received its state to opts.take. */
void ckpt_pk_take_object(ckpt_pk_machine *m, ckpt_value *v);

/*
 * Join the items that a container gets to one value, if they are objects that the caller took over
 * and their numbers are consecutive; `items` is changed in place.
 */
int ckpt_pk_take_items(ckpt_pk_machine *m, ckpt_seq *items, bool are_pairs);

/*
 * Read an object of the class on top of the stack by a pattern, and offer it to opts.take; if there
 * is no such pattern, begin to record the opcodes that follow.
 */
int ckpt_pk_repeat(ckpt_pk_machine *m);

/* Add the current opcode to the recording. */
void ckpt_pk_repeat_note(ckpt_pk_machine *m, uint8_t code);

/*
 * Make a pattern of the recorded object v, which the caller takes over; returns the node that
 * stands for the object on the stack from now on, because the pattern keeps v.
 */
ckpt_value *ckpt_pk_repeat_keep(ckpt_pk_machine *m, ckpt_value *v);

/* Store the top value under a memo number; push the value stored there. */
int ckpt_pk_remember(ckpt_pk_machine *m, uint64_t number);
int ckpt_pk_recall(ckpt_pk_machine *m, uint64_t number);

#endif
