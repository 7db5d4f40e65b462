/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h: what makes a GGUF file a model of llama.cpp's, apart from its tensors' names and the
 * keys of its architecture, which a layout map gives.
 *
 *     model.c      what is laid out: types, order, general keys, files
 *     mixture.c    which tensor is written in which type
 *     tokenizer.c  the tokenizer beside the source, as keys
 *     spm.c        of these: SentencePiece's models
 *     special.c    of these: special tokens, the chat template
 *     sampling.c   what generation_config.json says
 */
#ifndef CKPT_FORMATS_GGUF_MODEL_H
#define CKPT_FORMATS_GGUF_MODEL_H

#include "formats/gguf/gguf.h"

/* ckpt_format.scatter. */
int ckpt_gguf_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

/*
 * Set each tensor's dtype by the target's mixture or dtype.
 *
 * number  general.file_type for it
 * Errors  CKPT_EUSAGE: no such mixture; CKPT_EUNSUPPORTED: of what is quantized already, or without
 *         an importance matrix
 */
int ckpt_gguf_mix(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, uint64_t *number,
                  ckpt_err *err);

/*
 * general.file_type of a target that asks for no type: that of its last matrix.  All but matrices
 * become F32, unless keep is set.
 */
uint64_t ckpt_gguf_mix_own(ckpt_map *to, bool keep);

/* Which of several files one is (its state, until it is placed). */
typedef struct ckpt_gguf_place_in {
    uint32_t no, count;
    uint64_t n_tensors; /* of all */
} ckpt_gguf_place_in;

/*
 * Distribute the tensors over files of at most target->max_shard_size bytes of them.
 *
 * Errors  CKPT_EUSAGE: too many files; CKPT_ELIMIT
 */
int ckpt_gguf_split(ckpt_map *to, const ckpt_target *target, ckpt_err *err);

/* Append a key; what the value points to must last as long as the map. */
int ckpt_gguf_add(ckpt_map *to, const char *name, uint8_t type, bool list, const ckpt_value *value,
                  ckpt_err *err);

/* The same of one value each; text is copied. */
int ckpt_gguf_add_text(ckpt_map *to, const char *name, const char *text, ckpt_err *err);
int ckpt_gguf_add_u32(ckpt_map *to, const char *name, uint64_t number, ckpt_err *err);
int ckpt_gguf_add_bool(ckpt_map *to, const char *name, bool value, ckpt_err *err);

/*
 * Append the keys of the tokenizer and of sampling in the source's folder; a note says when there
 * is no tokenizer.
 *
 * Errors  CKPT_EFORMAT: its files are damaged, or have more tokens than the model rows;
 *         CKPT_EUNSUPPORTED: a kind that llama.cpp does not have; CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_gguf_tokenizer(ckpt_map *to, const ckpt_map *from, ckpt_err *err);

/* A token as keys hold it. */
typedef struct ckpt_gguf_token {
    const char *text; /* NULL: there is none of this number */
    uint64_t n;
    float score;
    uint8_t type; /* 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte */
} ckpt_gguf_token;

CKPT_VEC(ckpt_gguf_tokens, ckpt_gguf_token);

/*
 * The pieces of a SentencePiece model, n bytes of protobuf; texts point into them.
 *
 * Errors  CKPT_EFORMAT, CKPT_ELIMIT
 */
int ckpt_gguf_spm(ckpt_gguf_tokens *out, const char *name, const char *bytes, uint64_t n,
                  ckpt_err *err);

#endif
