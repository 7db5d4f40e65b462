/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf.h: the interface between the reader and the writer of Hugging Face folders: names of weight
 * files.
 *
 * <stem> is model, pytorch_model, adapter_model (PEFT) or diffusion_pytorch_model; a variant
 * ("fp16") stands for the same weights in another precision:
 *
 *     model.safetensors                 model.fp16.safetensors
 *     model-00001-of-00003.safetensors  model.fp16-00001-of-00003.safetensors
 *     model.safetensors.index.json      model.safetensors.index.fp16.json
 *
 * and the same with .bin (torch.save).  The index names the shard of every tensor:
 *     {"metadata": {"total_size": bytes}, "weight_map": {name: file}}
 * Checked against transformers 4.x to 5.23, huggingface_hub 2.4, peft 0.21.
 */
#ifndef CKPT_FORMATS_HUGGINGFACE_H
#define CKPT_FORMATS_HUGGINGFACE_H

#include "libckpt/format.h"

typedef enum ckpt_hf_role {
    CKPT_HF_OTHER,
    CKPT_HF_SINGLE,
    CKPT_HF_INDEX,
    CKPT_HF_SHARD
} ckpt_hf_role;

enum { CKPT_HF_ADAPTER = 2 /* family of adapter_model.safetensors; the next one is its .bin */ };

/* A parsed file name. */
typedef struct ckpt_hf_name {
    ckpt_hf_role role;
    unsigned family;     /* position of stem and suffix in the loaders' search order */
    const char *variant; /* points into the name, n_variant bytes */
    size_t n_variant;
} ckpt_hf_name;

/* Parse a file name; role OTHER if it is not a weight file's. */
ckpt_hf_name ckpt_hf_parse_name(const char *name);

/* The last component of a path, as a pointer into it. */
const char *ckpt_hf_base(const char *path);

/* True for an adapter that ckpt extracted, or if all source files have names of adapters. */
bool ckpt_hf_is_adapter(const ckpt_map *from);

/*
 * ckpt_directory.scatter of "hf" and "hf-bin", for one model.
 *
 * variant  part of the weight files' names ("fp16"); NULL: none
 */
int ckpt_hf_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                    const char *variant, ckpt_err *err);
int ckpt_hf_scatter_bin(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                        ckpt_err *err);

extern const ckpt_directory ckpt_directory_hf;
extern const ckpt_directory ckpt_directory_hf_bin;
extern const ckpt_directory ckpt_directory_pipeline; /* a folder of such folders */

#endif
