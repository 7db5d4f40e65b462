/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h: the pickle machine's state, shared by its run (read.c), its opcodes
 * (ops.c) and its stack (stack.c).
 */
#ifndef CKPT_CODEC_PICKLE_MACHINE_H
#define CKPT_CODEC_PICKLE_MACHINE_H

#include "libckpt/codec/pickle/node.h"

CKPT_VEC(ckpt_pk_heights, size_t);

typedef struct ckpt_pk_machine {
    ckpt_pk p;
    const uint8_t *bytes;
    uint64_t n, pos;
    uint64_t frame_end; /* 0: not in a frame */
    ckpt_values stack, memo;
    ckpt_pk_heights marks; /* heights of the stack at the open MARKs */
    uint64_t n_memo;       /* slots of the memo in use */
    bool stopped;
    /* where opts.take is called and objects go again (take.c); else NULL */
    uint8_t *recalled; /* a bit for each slot of the memo that is read somewhere */
    const void *kept;  /* top of the arena when something was last made that may stay */
    size_t n_kept;     /* names and storages then */
} ckpt_pk_machine;

/* Forms of an opcode's argument. */
typedef enum ckpt_pk_form {
    PK_BARE, /* none */
    PK_U1,   /* little-endian numbers of 1, 2, 4, 8 bytes */
    PK_U2,
    PK_U4,
    PK_U8,
    PK_F8,    /* a big-endian double */
    PK_LINE,  /* text up to a line feed */
    PK_LINES, /* two of them */
    PK_N1,    /* a length of 1, 4, 8 bytes, then that many bytes */
    PK_N4,
    PK_N8,
    PK_COUNT1, /* none; the opcode says 1, 2 or 3: TUPLE1 to TUPLE3 */
    PK_COUNT2,
    PK_COUNT3
} ckpt_pk_form;

/* A decoded argument. */
typedef struct ckpt_pk_arg {
    uint64_t number;
    ckpt_text text, more; /* more: the second line of GLOBAL and INST */
} ckpt_pk_arg;

/* How an opcode is carried out; neither function: no such opcode. */
typedef struct ckpt_pk_op {
    ckpt_pk_form form;
    int (*run)(ckpt_pk_machine *m, const ckpt_pk_arg *a);
    int (*bare)(ckpt_pk_machine *m);
} ckpt_pk_op;

extern const ckpt_pk_op ckpt_pk_ops[256];

/* Push a value; NULL stands for a failure that is recorded already. */
int ckpt_pk_push(ckpt_pk_machine *m, ckpt_value *v);

/* Take or look at the top value; below the last MARK nothing can be reached. */
int ckpt_pk_pop(ckpt_pk_machine *m, ckpt_value **out);
int ckpt_pk_peek(const ckpt_pk_machine *m, ckpt_value **out);

/* Values above the last MARK, and the failure of having too few. */
size_t ckpt_pk_height(const ckpt_pk_machine *m);
int ckpt_pk_short(const ckpt_pk_machine *m);

/* Everything since the last MARK, which goes; the slice is good until the next push. */
int ckpt_pk_take(ckpt_pk_machine *m, ckpt_seq *out);

/* The top value is to be stored in the next slot: false where nobody reads that. */
bool ckpt_pk_take_remember(ckpt_pk_machine *m);

/* A value got another reference; a value, which may have several, was changed. */
void ckpt_pk_take_share(ckpt_pk_machine *m, ckpt_value *v);
void ckpt_pk_take_changed(ckpt_pk_machine *m, const ckpt_value *v);

/* An object has got its state: offer it. */
void ckpt_pk_take_object(ckpt_pk_machine *m, ckpt_value *v);

/* Store the top value under a number of the memo; push what is stored there. */
int ckpt_pk_remember(ckpt_pk_machine *m, uint64_t number);
int ckpt_pk_recall(ckpt_pk_machine *m, uint64_t number);

#endif
