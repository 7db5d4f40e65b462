/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h: declares the parts that make a GGUF file a model for llama.cpp.  Tensor names and keys
 * of the architecture come from a layout map.
 *
 *     model.c      sets types, order, general keys, files
 *     mmproj.c     the same for the file of a vision tower, which is a format of its own
 *     mixture.c    chooses the type of each tensor
 *     tokenizer.c  writes the source's tokenizer as keys
 *     spm.c        reads SentencePiece models
 *     merges.c     writes BPE merges
 *     special.c    writes special tokens and the chat template
 *     sampling.c   writes generation_config.json as keys
 */
#ifndef CKPT_FORMATS_GGUF_MODEL_H
#define CKPT_FORMATS_GGUF_MODEL_H

#include "formats/gguf/gguf.h"

/* ckpt_format.scatter. */
int ckpt_gguf_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

/*
 * Set each tensor's dtype by the target's mixture or dtype.
 *
 * number  out: the model's general.file_type
 * Errors  CKPT_EUSAGE: unknown mixture; CKPT_EUNSUPPORTED: the source is quantized already, or the
 *         mixture needs an importance matrix
 */
int ckpt_gguf_mix(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, uint64_t *number,
                  ckpt_err *err);

/*
 * Give the tensors that are quantized from floats their importance, and the file the keys of the
 * matrix, to->importance.
 *
 * number  general.file_type
 * Errors  CKPT_EMISMATCH: the matrix is of another model; CKPT_EMISSING: the mixture needs an entry
 *         that it lacks
 */
int ckpt_gguf_weigh(ckpt_map *to, const ckpt_map *from, uint64_t number, ckpt_err *err);

/*
 * general.file_type for a target without a type: that of its last matrix.  Tensors other than
 * matrices become F32, unless keep is set.
 */
uint64_t ckpt_gguf_mix_own(ckpt_map *to, bool keep);

/*
 * Set the general keys that the layout map does not give: type, name, size, types.
 *
 * number  general.file_type
 * Errors  CKPT_ELIMIT
 */
int ckpt_gguf_general(ckpt_map *to, const ckpt_map *from, uint64_t number, ckpt_err *err);

/* How a file is written; stored in the file's `state` until the file is placed. NULL: alone. */
typedef struct ckpt_gguf_place_in {
    uint32_t no, count; /* number of the file in a split model; count 0: the model is one file */
    uint64_t n_tensors; /* number of tensors in all files */
    bool vectors;       /* matrices of one row are vectors, as llama.cpp's quantizer writes them */
} ckpt_gguf_place_in;

/*
 * Distribute the tensors over files with at most target->max_shard_size bytes of tensors.
 *
 * Errors  CKPT_EUSAGE: too many files; CKPT_ELIMIT
 */
int ckpt_gguf_split(ckpt_map *to, const ckpt_target *target, ckpt_err *err);

/*
 * True for a key of a layout map that gives a special token by its text, such as
 * tokenizer.ggml.eot_token_id. The files of the tokenizer have its number.
 */
bool ckpt_gguf_is_token(const ckpt_key *key);

/* Append a key; the value is borrowed and must live as long as the map. */
int ckpt_gguf_add(ckpt_map *to, const char *name, uint8_t type, bool list, const ckpt_value *value,
                  ckpt_err *err);

/* Set a key: in place if it exists, else appended. The value is borrowed, too. */
int ckpt_gguf_put(ckpt_map *to, const ckpt_key *key, ckpt_err *err);

/* Append a key with a single value; text is copied. */
int ckpt_gguf_add_text(ckpt_map *to, const char *name, const char *text, ckpt_err *err);
int ckpt_gguf_add_u32(ckpt_map *to, const char *name, uint64_t number, ckpt_err *err);
int ckpt_gguf_add_bool(ckpt_map *to, const char *name, bool value, ckpt_err *err);

/*
 * Append the keys of the tokenizer and of sampling from the source's folder; a note reports a
 * missing tokenizer.
 *
 * Errors  CKPT_EFORMAT: its files are damaged, or have more tokens than the model has rows;
 *         CKPT_EUNSUPPORTED: a kind that llama.cpp lacks; CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_gguf_tokenizer(ckpt_map *to, const ckpt_map *from, ckpt_err *err);

/* A token as GGUF stores it. */
typedef struct ckpt_gguf_token {
    const char *text; /* NULL: no token has this number */
    uint64_t n;
    float score;
    uint8_t type; /* 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte */
} ckpt_gguf_token;

CKPT_VEC(ckpt_gguf_tokens, ckpt_gguf_token);

/*
 * Read the pieces of a SentencePiece model, n bytes of protobuf; texts point into `bytes`.
 *
 * Errors  CKPT_EFORMAT, CKPT_ELIMIT
 */
int ckpt_gguf_spm(ckpt_gguf_tokens *out, const char *name, const char *bytes, uint64_t n,
                  ckpt_err *err);

#endif
