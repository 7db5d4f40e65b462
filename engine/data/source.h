/* SPDX-License-Identifier: Apache-2.0 */
/* source.h: declares a source of samples behind one table, for the files of data/. Internal. */
#ifndef ZT_DATA_SOURCE_H
#define ZT_DATA_SOURCE_H

#include <stdio.h>

#include "engine/data/data.h"

/* Host memory for the inputs of one micro batch, [samples, seq]. */
typedef struct zt_inputs {
    int32_t *input_ids, *attention_mask, *token_type_ids;
    int32_t *labels; /* rows of `target` tokens if the source has targets */
    float *targets;  /* [samples, labels] */
} zt_inputs;

/* Flags: the kinds of input that a data file contains. */
typedef struct zt_has {
    bool attention_mask, token_type_ids, labels, targets;
    bool label_per_token; /* labels are [samples, seq], else [samples] */
} zt_has;

typedef struct zt_source zt_source;

typedef struct zt_source_ops {
    /* Copy sample `sample` into row `row` of `in` (rows of seq tokens); *length: its tokens without
     * padding. */
    int (*get)(zt_source *s, uint64_t sample, uint64_t row, const zt_inputs *in, uint64_t *length,
               ckpt_err *err);
    const char *(*class_name)(const zt_source *s, size_t i); /* or NULL */
    void (*free)(zt_source *s);
    /* CRC-32 of a sample, for sources that have checked all samples while opening; NULL: `get`
     * checks a sample, and the CRC is that of its inputs. */
    uint32_t (*sum)(const zt_source *s, uint64_t sample);
} zt_source_ops;

struct zt_source {
    const zt_source_ops *ops;
    uint64_t count;  /* samples */
    uint64_t seq;    /* tokens of a row */
    uint64_t target; /* tokens of a row of labels if they are another sequence (T5), else 0 */
    zt_has has;
    zt_data_unused unused;
    char unused_names[200]; /* zt_unused_add */
    bool ragged;            /* samples differ in length, so a batch is cut to its longest */
    // recorded inputs: sample = ((micro step * ranks) + rank) * batch + k
    bool replay;
    uint64_t steps, ranks, batch;
};

/*
 * Count the bytes of a byte order mark at the begin of a file: 3, or 0.  The text begins after it,
 * although Python's default encoding keeps it.
 */
size_t zt_data_mark(const char *s, size_t n);

/*
 * Read a whole file into memory, with a NUL at its end; free with ckpt_free.  Errors CKPT_ELIMIT:
 * over `limit` bytes
 */
int zt_data_slurp(char **out, size_t *n, const char *path, uint64_t limit, ckpt_err *err);

/* ---- store.c: tokens in a temporary file, and lines of text ---- */

typedef struct zt_store zt_store;

/* Make an empty store, in TMPDIR, else /tmp.  Errors CKPT_EIO, CKPT_ELIMIT */
int zt_store_new(zt_store **out, ckpt_err *err);
void zt_store_free(zt_store *s); /* NULL is fine */
uint64_t zt_store_count(const zt_store *s);
int zt_store_add(zt_store *s, uint32_t token, ckpt_err *err);
/* Read n tokens that were added.  Errors CKPT_EIO */
int zt_store_read(zt_store *s, uint32_t *to, size_t n, uint64_t from, ckpt_err *err);

/* A text file that is read line by line. */
typedef struct zt_lines {
    FILE *file;
    const char *path;
    uint64_t limit;  /* bytes of a line */
    uint64_t number; /* of the last line */
    ckpt_bytes held; /* read, of which the first `done` bytes were given out */
    size_t done;
} zt_lines;

/*
 * Open a file, and pass its byte order mark; close it even after a failure.
 * Errors CKPT_EMISSING, CKPT_EIO
 */
int zt_lines_open(zt_lines *l, const char *path, uint64_t limit, ckpt_err *err);
void zt_lines_close(zt_lines *l);
/*
 * Get the next line with its line end, valid until the next call; line->at NULL: the end.
 * Errors CKPT_ELIMIT: a line is longer than the limit; CKPT_EIO
 */
int zt_lines_next(zt_lines *l, ckpt_text *line, ckpt_err *err);

/* A file of bare tokens, .bin. */
typedef struct zt_token_file {
    int fd;
    const char *path;
    uint64_t size;     /* bytes */
    uint64_t vocab;    /* vocabulary size of the model */
    const char *dtype; /* "uint16", "uint32"; NULL: not given */
} zt_token_file;

/*
 * Find the bytes per token, 2 or 4: the caller's dtype, or that in Megatron's index beside the
 * file, or else 2 if the vocabulary fits, unless the tokens contradict it.
 *
 * other    gets another possible width, for the message if tokens do not fit; or NULL
 * Errors   CKPT_EUSAGE: another width, a header, an unknown dtype; CKPT_EIO
 */
int zt_tokens_width(const zt_token_file *f, unsigned *width, const char **other, ckpt_err *err);

/*
 * List the name of a column, member or tensor that the model does not take, once, in s->unused. A
 * long list ends with "...".
 *
 * what   "columns", "members" or "tensors", the same for all names of a file
 */
void zt_unused_add(zt_source *s, const char *what, const char *name);

/* Mix 64 bits (the finaliser of splitmix64, Steele et al. 2014). */
uint64_t zt_mix(uint64_t x);

int zt_tokens_open(zt_source **out, const zt_data_opts *opts, ckpt_err *err);  /* .bin, .npy */
int zt_tensors_open(zt_source **out, const zt_data_opts *opts, ckpt_err *err); /* .safetensors */
int zt_text_open(zt_source **out, const zt_data_opts *opts, ckpt_err *err); /* .tsv, .csv, .jsonl */
int zt_corpus_open(zt_source **out, const zt_data_opts *opts, ckpt_err *err); /* .txt, .jsonl */

#endif
