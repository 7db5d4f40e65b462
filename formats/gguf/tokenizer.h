/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.h: the interface between tokenizer.c, merges.c, special.c and sampling.c.
 */
#ifndef CKPT_FORMATS_GGUF_TOKENIZER_H
#define CKPT_FORMATS_GGUF_TOKENIZER_H

#include "formats/gguf/model.h"

/* The state of reading a tokenizer. */
typedef struct ckpt_gguf_tokenizer_work {
    ckpt_map *to;
    ckpt_map *scratch;                              /* its arena holds the values read */
    ckpt_listing list;                              /* the model's folder */
    const ckpt_value *tokenizer, *config, *hparams; /* tokenizer.json, tokenizer_config.json,
                                                       config.json, or NULL */
    const ckpt_value *generation;                   /* generation_config.json, or NULL */
    const char *model;                              /* tokenizer.ggml.model; NULL: no tokenizer */
    const ckpt_value *bpe;                          /* the model of a BPE tokenizer, or NULL */
    bool scores;
    ckpt_gguf_tokens token; /* by number */
    ckpt_err *err;
} ckpt_gguf_tokenizer_work;

/*
 * Append the merges of w->bpe.
 *
 * Errors  CKPT_EFORMAT: no merges, a merge that is not a pair, or texts that the vocabulary lacks;
 *         CKPT_ELIMIT
 */
int ckpt_gguf_merges(ckpt_gguf_tokenizer_work *w);

/*
 * Append the special tokens, the flags to add them to a text, and the chat template.
 *
 * Errors  CKPT_EFORMAT, CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_gguf_special(ckpt_gguf_tokenizer_work *w);

/* Append the sampling options of generation_config.json; a note reports values that do not fit. */
int ckpt_gguf_sampling(ckpt_gguf_tokenizer_work *w);

#endif
