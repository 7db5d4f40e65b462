/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.h: what tokenizer.c, merges.c, special.c and sampling.c share.
 */
#ifndef CKPT_FORMATS_GGUF_TOKENIZER_H
#define CKPT_FORMATS_GGUF_TOKENIZER_H

#include "formats/gguf/model.h"

/* A tokenizer being read. */
typedef struct ckpt_gguf_tokenizer_work {
    ckpt_map *to;
    ckpt_map *scratch;                              /* all that is read lives in its arena */
    ckpt_listing list;                              /* the model's folder */
    const ckpt_value *tokenizer, *config, *hparams; /* tokenizer.json, tokenizer_config.json,
                                                       config.json, or NULL */
    const ckpt_value *generation;                   /* generation_config.json, or NULL */
    const char *model;     /* tokenizer.ggml.model; NULL: there is no tokenizer */
    const ckpt_value *bpe; /* the model of a BPE tokenizer, or NULL */
    bool scores;
    ckpt_gguf_tokens token; /* by number */
    ckpt_err *err;
} ckpt_gguf_tokenizer_work;

/*
 * Append the merges of w->bpe.
 *
 * Errors  CKPT_EFORMAT: none, one that is no pair, or of what the vocabulary lacks; CKPT_ELIMIT
 */
int ckpt_gguf_merges(ckpt_gguf_tokenizer_work *w);

/*
 * Append which tokens are special, which of them are added to a text, and the chat template.
 *
 * Errors  CKPT_EFORMAT, CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_gguf_special(ckpt_gguf_tokenizer_work *w);

/* Append what generation_config.json says of sampling; a note names what no key can hold. */
int ckpt_gguf_sampling(ckpt_gguf_tokenizer_work *w);

#endif
