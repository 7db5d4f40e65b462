/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lora.h: declares the conversion of a diffusion model's LoRA between the spellings of three
 * programs (names.h), in parts that its files share.
 *
 *     read.c     tensors -> modules with two factors and an alpha
 *     alphas.c   diffusers' metadata <-> alphas
 *     fuse.c     one module of Flux <-> several of diffusers
 *     put.c      names and alphas of the new spelling
 *     rename.c   all of it, and the public function for files
 *     merge.c    the updates of a model's weights
 *
 * The update of a weight is (up down) alpha / rank in all spellings.  kohya and ComfyUI store alpha
 * as a tensor, diffusers in the file's metadata; if it is missing, it equals the rank.
 */
#ifndef CKPT_FORMATS_DIFFUSION_LORA_H
#define CKPT_FORMATS_DIFFUSION_LORA_H

#include "ckpt.h"
#include "formats/peft/diffusion/names.h"
#include "libckpt/map/map.h"

/* A module of the adapter. */
typedef struct ckpt_dl_module {
    const ckpt_dl_row *row;
    uint32_t part;       /* CKPT_DL_WHOLE, or the part of the row */
    ckpt_tensor *down;   /* [rank, in ...] */
    ckpt_tensor *up;     /* [out, rank ...] */
    ckpt_tensor *scalar; /* alpha as a tensor, or NULL */
    double alpha;        /* the rank, if the file has none */
} ckpt_dl_module;

CKPT_VEC(ckpt_dl_modules, ckpt_dl_module);

/* A module as diffusers has it, for the metadata. */
typedef struct ckpt_dl_target {
    const char *name; /* with its component: "unet.conv_in" */
    uint64_t rank;
    double alpha;
} ckpt_dl_target;

CKPT_VEC(ckpt_dl_targets, ckpt_dl_target);

typedef struct ckpt_dl_work {
    ckpt_map *map;
    ckpt_dl_style from, to;
    ckpt_dl_family family;
    ckpt_dl_table table;
    ckpt_dl_modules modules; /* sorted by row and part */
    ckpt_tensors made;       /* tensors to add to the map's list */
    ckpt_dl_targets targets; /* to diffusers */
    ckpt_dtype scalar_dtype; /* dtype of the alphas' tensors; NONE: that of the factors */
    uint32_t zeros;          /* a source of zeros; UINT32_MAX: none yet */
    ckpt_err *err;
} ckpt_dl_work;

/* ---- rename.c ---- */

/*
 * Rename all tensors of w->map from the spelling that they have to w->to, except for the metadata.
 * To diffusers, w->targets lists the modules.  A failure leaves the map half changed.
 *
 * Errors   those of reading, splitting and joining below
 */
int ckpt_dl_rename(ckpt_dl_work *w, ckpt_dl_family family);

/* Free the tables and lists of a work, but not its map. */
void ckpt_dl_free(ckpt_dl_work *w);

/* ---- read.c ---- */

/*
 * Find the spelling, the model and the modules of an adapter.
 *
 * family   CKPT_DL_N_FAMILIES: by its names
 * Errors   CKPT_EUNSUPPORTED: a name that belongs to no module, or another kind of adapter;
 *          CKPT_EMISSING, CKPT_EMISMATCH: factors that are missing or do not fit each other;
 *          CKPT_EUSAGE: several models have these modules under different new names; CKPT_ELIMIT
 */
int ckpt_dl_read(ckpt_dl_work *w, ckpt_dl_family family);

/* ---- alphas.c ---- */

/*
 * Read the alphas of diffusers' adapters from the metadata.
 *
 * Errors   CKPT_EFORMAT: metadata from which no scale follows; CKPT_EMISMATCH: other ranks, or
 *          other alphas than those of tensors; CKPT_EUNSUPPORTED: more than LoRA
 */
int ckpt_dl_alphas_read(ckpt_dl_work *w);

/* Replace the metadata by those of the new spelling, which is diffusers' if there are targets. */
int ckpt_dl_alphas_write(ckpt_dl_work *w);

/* ---- fuse.c ---- */

/* Split a module of Flux into those of diffusers, which become targets. */
int ckpt_dl_split(ckpt_dl_work *w, const ckpt_dl_module *m);

/*
 * Join n modules of diffusers, all parts of one row that the adapter has, to the row's module.
 *
 * Errors   CKPT_EMISMATCH: they do not fit each other; CKPT_EUNSUPPORTED: their scales differ
 */
int ckpt_dl_join(ckpt_dl_work *w, const ckpt_dl_module *m, uint32_t n);

/* Exchange the two halves of a module's outputs. */
int ckpt_dl_swap(ckpt_dl_work *w, const ckpt_dl_module *m);

/* ---- put.c ---- */

/* The name of a module's tensor in the new spelling: base, then ".lora_A.weight" or another end. */
typedef enum ckpt_dl_end { CKPT_DL_DOWN, CKPT_DL_UP, CKPT_DL_ALPHA } ckpt_dl_end;
const char *ckpt_dl_name(const ckpt_dl_work *w, const char *base, ckpt_dl_end end);

/* A number as a tensor of that dtype keeps it; NaN: such a tensor cannot hold numbers. */
double ckpt_dl_stored(ckpt_dtype dtype, double x);

/*
 * Add an alpha's tensor for a module of that name, of the dtype of `like` unless another is known,
 * or of F32 or F64 where that dtype would change the value.
 */
int ckpt_dl_scalar(ckpt_dl_work *w, const char *base, double alpha, const ckpt_tensor *like);

/* Add a module of diffusers to the targets. */
int ckpt_dl_target_add(ckpt_dl_work *w, const char *name, uint64_t rank, double alpha);

#endif
