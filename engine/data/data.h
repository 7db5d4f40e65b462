/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h: declares micro batches from files: tokens, recorded inputs, or text with labels.
 *
 *     tokens.c     .bin (uint16, uint32), .npy: cut into samples; width.c: the width of tokens
 *     tensors.c    safetensors with samples, or in/<name> of [micro step, rank, batch, token],
 *                  which is replayed unchanged; labels of T5 are targets of their own length
 *     text.c       TSV, CSV, JSONL rows of label and text
 *     corpus.c     .txt and JSONL for language models; records.c: instructions and conversations;
 *                  store.c: their tokens in a temporary file
 *     wordpiece.c  BERT's tokenizer from vocab.txt
 *     sampler.c    shuffling by seed, and the samples of each rank
 *
 * Files are untrusted: every size and every token is checked before it is used.
 */
#ifndef ZT_DATA_DATA_H
#define ZT_DATA_DATA_H

#include "engine/model/model.h"

typedef struct zt_data zt_data;

typedef struct zt_data_opts {
    const char *path;        /* a file; its name and content determine the kind */
    const char *vocab;       /* vocab.txt or tokenizer.json, for text; NULL: beside the model */
    const char *token_dtype; /* .bin: "uint16", "uint32"; NULL: uint16 if the vocabulary fits */
    uint64_t seq;            /* tokens of a sample; text: maximum */
    uint64_t micro_batch;
    int rank, world;
    uint64_t seed;
    bool shuffle, evaluate; /* evaluate: each sample once; the last batch may be smaller */
    bool packing;           /* join instructions and conversations */
    bool lower_case;        /* WordPiece: do_lower_case, from tokenizer_config.json or --cased */
    uint64_t limit;         /* use only the first samples of the file; 0: all */
    const zt_model_config *model;
} zt_data_opts;

/*
 * Open a data file, count its samples and check this rank's share of them.  The texts and the model
 * in opts must outlive *out.
 *
 * Errors   CKPT_EFORMAT: no samples, tokens outside the vocabulary, damaged; CKPT_EUSAGE: not for
 *          this model or world, tokens that have another width; CKPT_EMISSING, CKPT_EIO,
 *          CKPT_ELIMIT (memory)
 */
int zt_data_open(zt_data **out, const zt_data_opts *opts, ckpt_err *err);
void zt_data_free(zt_data *d); /* NULL is fine */

/*
 * Number of samples, and of micro batches of a rank in one pass (equal on all ranks).  Sample k of
 * micro batch i of rank r has the index (i * world + r) * micro_batch + k.  In training, indices
 * continue into the next epoch (a pass counts the micro batches that an epoch fills).  In
 * evaluation, the last batch may be smaller, and has `spare` set if no sample is left.
 */
uint64_t zt_data_count(const zt_data *d);
uint64_t zt_data_batches(const zt_data *d);

/* Parts of a data file that no sample has. */
typedef struct zt_data_unused {
    uint64_t records;  /* instructions and conversations that have no answer within a row */
    uint64_t cut;      /* samples with more tokens than a row: the last ones are not used */
    uint64_t of;       /* `cut` is a count among the first samples, so many; 0: among all */
    uint64_t tokens;   /* tokens at the end that do not fill a sample */
    uint64_t silent;   /* samples with labels of -100 alone, in this rank's share of the check */
    const char *names; /* of parts that are no inputs: "idx, label"; NULL: none */
    const char *what;  /* these parts: "tensors", "columns", "members" */
} zt_data_unused;

/*
 * Count the parts that are not used.  Rank 0 alone counts the cut texts of a classifier.  With
 * zt_data_opts.limit, nothing after the last sample counts.
 */
zt_data_unused zt_data_get_unused(const zt_data *d);

/*
 * This rank's part of a sum over the content of all samples in their order, below 2^48; the parts
 * of all ranks, added modulo 2^48, depend on neither world nor batch.  The sum finds an edited
 * file, but not one that was made to have the same sum.
 */
uint64_t zt_data_sum(const zt_data *d);

/* Size of the largest batch: samples, and tokens of each. */
void zt_data_shape(const zt_data *d, uint64_t *batch, uint64_t *seq);

/* Tokens of a target, for models with a decoder; else 0. */
uint64_t zt_data_target(const zt_data *d);

/* True for recorded inputs: micro step i of the run then gets micro step i of the record. */
bool zt_data_is_replay(const zt_data *d);

/*
 * True if a loss can be computed: there are labels, or the model is causal, so the text itself
 * gives the labels.
 */
bool zt_data_labelled(const zt_data *d);

/*
 * Get micro batch i, counted over all epochs of the run, in host memory that is valid until the
 * next call.  The order of samples depends neither on world nor accumulation nor on earlier calls,
 * so a resumed run continues at its position.
 */
int zt_data_batch(zt_data *d, uint64_t i, zt_batch *out, ckpt_err *err);

/* Names of the classes in the text file; NULL past the end, or for other data. */
const char *zt_data_class(const zt_data *d, size_t i);

/* ---- WordPiece ---- */

typedef struct zt_wordpiece zt_wordpiece;

/*
 * Read vocab.txt, one piece per line, numbered by line.
 *
 * Errors   CKPT_EFORMAT: [UNK], [CLS], [SEP] or [PAD] is missing; CKPT_EMISSING; CKPT_EIO;
 *          CKPT_ELIMIT
 */
int zt_wordpiece_read(zt_wordpiece **out, const char *vocab_path, bool lower_case, ckpt_err *err);
void zt_wordpiece_free(zt_wordpiece *w); /* NULL is fine */

uint32_t zt_wordpiece_size(const zt_wordpiece *w); /* pieces */

/* CRC-32 of the file and of lower_case. */
uint32_t zt_wordpiece_sum(const zt_wordpiece *w);

/*
 * Encode text as [CLS] text [SEP], cut to at most max tokens, as transformers' BertTokenizer does.
 * Returns the number of tokens in id (room for max), or -1: the text is not UTF-8, or out of
 * memory.
 */
int64_t zt_wordpiece_encode(const zt_wordpiece *w, const char *text, size_t n, uint64_t max,
                            int32_t *id);

/* ---- order of samples ---- */

/* The sample at index i of an epoch, by a permutation of 0..n-1 that depends on (seed, epoch). */
uint64_t zt_sample_at(uint64_t n, uint64_t i, uint64_t seed, uint64_t epoch, bool shuffle);

#endif
