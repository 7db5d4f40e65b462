/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant_words.h: describes a matrix of integers of a few bits in words of 32 bits, for its two
 * decoders.
 */
#ifndef CKPT_TRANSFORM_DEQUANT_WORDS_H
#define CKPT_TRANSFORM_DEQUANT_WORDS_H

#include "libckpt/transform/dequant_part.h"

typedef enum ckpt_words_layout {
    CKPT_WORDS_DOWN,
    CKPT_WORDS_ACROSS,
    CKPT_WORDS_ROWS
} ckpt_words_layout;

typedef struct ckpt_words {
    ckpt_make make; /* first */
    const ckpt_tensor *input[4];
    const ckpt_tensor *words, *scale, *zero, *index; /* inputs; zero, index: NULL: none */
    const char *path;                                /* of the source, for messages */
    ckpt_words_layout layout;
    unsigned bits;
    uint64_t rows, cols, groups;
    uint64_t group;     /* columns of a group */
    uint64_t tile;      /* rows of a tile */
    uint64_t n_words;   /* words of a line of a tile, and of its padding */
    float middle;       /* the zero of all numbers, if there is no tensor of zeros */
    bool inputs;        /* the result is [cols, rows] */
    bool less_one;      /* zeros are stored as zero - 1 */
    bool zero_rows;     /* CKPT_WORDS_ROWS: zeros are packed across, [rows, groups * bits / 32] */
    bool may_be_plain;  /* index may have -1 everywhere: groups follow each other */
    ckpt_cast_fn widen; /* of scales to F32 */
    ckpt_dequant_round round;
} ckpt_words;

/* ---- dequant_zeros.c ---- */

/* The shift of row r in its word, in AWQ's order. */
unsigned ckpt_words_across(uint64_t r);

/*
 * Add one to each number of n words of zeros, as GPTQModel does: with carries. ckpt_words_zero does
 * it for 3 bits.
 */
void ckpt_words_add_one(const ckpt_words *m, uint32_t *word, uint64_t n);

/* Zero r of a line, or of a column, of stored zeros. */
float ckpt_words_zero(const ckpt_words *m, const uint32_t *word, uint64_t r);

/* ---- dequant_inputs.c ---- */

/* ckpt_make.make of matrices packed down whose result is [cols, rows] */
int ckpt_words_run_inputs(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                          ckpt_err *err);

/*
 * Find out whether the module stores its weight as [inputs, outputs], by its name, the model's type
 * and its sizes; m->layout, rows and cols are set.
 *
 * Errors  CKPT_EUNSUPPORTED: such a weight that is not packed down, or a type of model whose other
 *         weights may be stored so; CKPT_EMISMATCH: an embedding with the sizes of an output head
 */
int ckpt_words_direction(const ckpt_dequantizing *w, const ckpt_dequant_parts *p, ckpt_words *m);

/* Bytes that this operation keeps on each thread. */
uint64_t ckpt_words_inputs_bytes(const ckpt_words *m);

#endif
