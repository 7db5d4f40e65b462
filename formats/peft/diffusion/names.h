/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h: declares the modules of diffusion models that a LoRA may change, with their names in the
 * spellings of three programs.
 *
 *     kohya      sd-scripts: lora_unet_down_blocks_0_attentions_0_proj_in.lora_down.weight
 *     diffusers  diffusers and PEFT: unet.down_blocks.0.attentions.0.proj_in.lora_A.weight
 *     comfyui    ComfyUI: diffusion_model.input_blocks.1.1.proj_in.lora_down.weight
 *
 * kohya's underscores stand for dots and for underscores, so a name is only understood by finding
 * it in the list of a model's modules.  names.c makes these lists by rule.
 */
#ifndef CKPT_FORMATS_DIFFUSION_NAMES_H
#define CKPT_FORMATS_DIFFUSION_NAMES_H

#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"

typedef enum ckpt_dl_style {
    CKPT_DL_KOHYA,
    CKPT_DL_DIFFUSERS,
    CKPT_DL_COMFYUI,
    CKPT_DL_N_STYLES
} ckpt_dl_style;

typedef enum ckpt_dl_family {
    CKPT_DL_SD, /* Stable Diffusion 1.x; the UNet of 2.x has the same modules */
    CKPT_DL_SDXL,
    CKPT_DL_FLUX,
    CKPT_DL_N_FAMILIES
} ckpt_dl_family;

enum { CKPT_DL_PARTS = 4 /* most modules of diffusers that are one module elsewhere */ };

/* The part of a row that stands for all its parts: the name of a fused module. */
#define CKPT_DL_WHOLE UINT32_MAX

/* A module.  diffusers may have several modules in its place, with their outputs in a row. */
typedef struct ckpt_dl_row {
    const char *kohya, *comfyui;
    const char *part[CKPT_DL_PARTS]; /* diffusers' names; part[0] NULL: diffusers loads none */
    const char *also;                /* another name that programs write, or NULL */
    uint32_t n_parts;
    bool swap; /* in diffusers the two halves of the outputs are exchanged */
} ckpt_dl_row;

CKPT_VEC(ckpt_dl_rows, ckpt_dl_row);

/* A name in the index of a table. */
typedef struct ckpt_dl_entry {
    const char *name;
    uint32_t row;
    uint32_t part; /* or CKPT_DL_WHOLE; 0 for a row of one part */
} ckpt_dl_entry;

CKPT_VEC(ckpt_dl_entries, ckpt_dl_entry);

typedef struct ckpt_dl_table {
    ckpt_dl_rows rows;
    ckpt_dl_entries entries;
    ckpt_index index; /* of the entries, by name */
} ckpt_dl_table;

/*
 * Make the list of a model's modules; names live in the arena.
 *
 * Errors   CKPT_ELIMIT
 * Source   the modules of diffusers 0.42 (UNet2DConditionModel, FluxTransformer2DModel) and
 *          transformers (CLIPTextModel, T5EncoderModel) with the models' configurations; sd-scripts
 *          0.9 (library/sdxl_original_unet.py, library/flux_models.py, networks/lora.py,
 *          networks/lora_flux.py); ComfyUI (comfy/lora.py, comfy/utils.py)
 */
int ckpt_dl_table_make(ckpt_dl_table *out, ckpt_arena *a, ckpt_dl_family family, ckpt_err *err);
void ckpt_dl_table_free(ckpt_dl_table *t);

/* The entry of a module's name of n bytes, in any spelling; NULL: this model has no such module. */
const ckpt_dl_entry *ckpt_dl_find(const ckpt_dl_table *t, const char *name, size_t n);

/* The family's name in messages and options: "sdxl". */
const char *ckpt_dl_family_name(ckpt_dl_family family);

/* The spelling's name in messages and options: "kohya". */
const char *ckpt_dl_style_name(ckpt_dl_style style);

/* The spelling that a tensor's name begins with; CKPT_DL_N_STYLES: none of them. */
ckpt_dl_style ckpt_dl_style_of(const char *name);

#endif
