/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.h: describes the bytes of objects of one class that differ only in numbers and texts
 * (repeat.c).
 */
#ifndef CKPT_CODEC_PICKLE_PATTERN_H
#define CKPT_CODEC_PICKLE_PATTERN_H

#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

/* A part of a pattern: bytes that stay the same, or an opcode with an argument that changes. */
typedef enum ckpt_pk_step_kind {
    CKPT_PK_LITERAL,
    CKPT_PK_INT,  /* a number that is not negative */
    CKPT_PK_TEXT, /* a short text */
    CKPT_PK_GET   /* a text from the memo */
} ckpt_pk_step_kind;

typedef struct ckpt_pk_step {
    uint8_t kind;      /* ckpt_pk_step_kind */
    uint16_t from, n;  /* LITERAL, GET: its bytes in the pattern's */
    size_t pair;       /* GET: number of the pair in the object's dict that has it as the value */
    ckpt_value *leaf;  /* INT, TEXT: its node in the object */
    ckpt_value **slot; /* GET: its place in the object */
    char *text;        /* TEXT: room for 255 bytes and a terminator */
} ckpt_pk_step;

CKPT_VEC(ckpt_pk_steps, ckpt_pk_step);

/* The bytes of objects of a class, and the object that takes their numbers and texts. */
typedef struct ckpt_pk_pattern ckpt_pk_pattern;
struct ckpt_pk_pattern {
    ckpt_pk_pattern *next; /* another one of the same class */
    ckpt_pk_step *step;
    const uint8_t *literal;
    size_t n_steps;
    uint64_t longest; /* limit of the bytes that can match */
    ckpt_object *object;
    /* added by each object to the machine's counts: memo slots, work, objects */
    uint64_t n_memo, n_charged, n_objects;
};

#endif
