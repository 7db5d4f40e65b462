/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c: lists the format drivers.  A new format is one line here and one folder in formats/.
 */
#include "formats/gguf/gguf.h"
#include "formats/npz/npz.h"
#include "formats/safetensors/safetensors.h"
#include "formats/torch/torch.h"
#include "libckpt/drivers.h"

extern const ckpt_directory ckpt_directory_deepspeed;
extern const ckpt_directory ckpt_directory_universal;
extern const ckpt_directory ckpt_directory_zero;
extern const ckpt_directory ckpt_directory_dcp;
extern const ckpt_directory ckpt_directory_gguf;
extern const ckpt_directory ckpt_directory_fsdp_ranks;
extern const ckpt_directory ckpt_directory_full_state;
extern const ckpt_directory ckpt_directory_megatron;
extern const ckpt_directory ckpt_directory_megatron_legacy;
extern const ckpt_directory ckpt_directory_consolidated;
extern const ckpt_directory ckpt_directory_hf;
extern const ckpt_directory ckpt_directory_hf_bin;
extern const ckpt_directory ckpt_directory_hf_sharded;
extern const ckpt_directory ckpt_directory_pipeline;

const ckpt_format *const ckpt_formats[] = {
    &ckpt_format_torch,
    &ckpt_format_safetensors,
    &ckpt_format_torch_legacy,
    &ckpt_format_gguf,
    &ckpt_format_mmproj,
    &ckpt_format_npz,
    NULL,
};

const ckpt_directory *const ckpt_directories[] = {
    &ckpt_directory_deepspeed,       &ckpt_directory_universal,  &ckpt_directory_hf,
    &ckpt_directory_hf_bin,          &ckpt_directory_zero,       &ckpt_directory_megatron,
    &ckpt_directory_megatron_legacy, &ckpt_directory_dcp,        &ckpt_directory_fsdp_ranks,
    &ckpt_directory_full_state,      &ckpt_directory_hf_sharded, &ckpt_directory_gguf,
    &ckpt_directory_consolidated,    &ckpt_directory_pipeline,   NULL,
};
