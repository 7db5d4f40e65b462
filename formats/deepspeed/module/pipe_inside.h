/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe_inside.h: declares the data of pipe.c, pipe_read.c and pipe_gap.c: the layers of a pipeline,
 * and the stages to which they are assigned.
 */
#ifndef CKPT_FORMATS_DS_PIPE_INSIDE_H
#define CKPT_FORMATS_DS_PIPE_INSIDE_H

#include "formats/deepspeed/module/module.h"
#include "formats/deepspeed/module/pipe.h"

/* A tensor of a layer file. */
typedef struct dsi_entry {
    uint64_t layer;
    const ckpt_text *name; /* without the number of the layer */
    const ckpt_tensor_value *value;
} dsi_entry;

CKPT_VEC(dsi_entries, dsi_entry);
CKPT_VEC(dsi_tensors, const ckpt_tensor_value *);

/* A parameter that a stage lists in its param_shapes. */
typedef struct dsi_name {
    ckpt_text text; /* the name, with its layer's number */
    uint64_t layer;
    uint32_t stage;
} dsi_name;

CKPT_VEC(dsi_names, dsi_name);

/*
 * An entry of an earlier stage's layer that a later stage trains, too, because the layer is tied.
 */
typedef struct dsi_loan {
    ckpt_text name; /* without the layer's number */
    uint64_t layer;
    uint32_t stage;
} dsi_loan;

CKPT_VEC(dsi_loans, dsi_loan);

/* A name of a tied layer, and the first stage that lists it. */
typedef struct dsi_tie {
    const char *name;
    uint32_t stage;
} dsi_tie;

CKPT_VEC(dsi_ties, dsi_tie);

/* A pipeline stage; its layers are from .. to-1. */
typedef struct dsi_stage {
    uint64_t first; /* lowest layer that only this stage lists; UINT64_MAX: none */
    uint64_t from, to;
    bool whole;         /* it has param_shapes, which runs without ZeRO do not write */
    bool has_buffers;   /* it has buffer_names, which DeepSpeed writes since 0.4.2 */
    ckpt_seq buffers;   /* the names in buffer_names */
    dsi_tensors master; /* without ZeRO: one tensor per parameter, in the optimizer's order */
} dsi_stage;

struct ckpt_ds_pipe {
    dsi_stage *stage;
    uint32_t n, tp;
    ckpt_maps open;    /* files of the entries and masters */
    dsi_names name;    /* names of all stages (ZeRO only) */
    dsi_entries entry; /* entries of all layers, by ascending layer (without ZeRO) */
    dsi_loans loan;
    dsi_ties tie;
    bool unsure; /* the files do not show which stage has which layers */
};

/* Reads the layer's number at the start of a name; false for tied layers, whose names have none. */
bool ckpt_ds_pipe_layer(const ckpt_text *name, uint64_t *out);

/* Opens a file before the stages are read. When the caller collects findings, *out is NULL for a
 * damaged file, because its later read reports the damage. */
int ckpt_ds_pipe_open(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, const char *path,
                      const ckpt_value **out);

/* Reads the tensors of all layers of tensor-parallel rank 0 into pipe->entry. */
int ckpt_ds_pipe_entries(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, const ckpt_ds_folder *dir);

/* Returns whether any stage lists the entry `own` of a layer among its parameters. */
bool ckpt_ds_pipe_names(const ckpt_ds_pipe *pipe, uint64_t layer, const char *own);

/*
 * Reports the first layer that has no file although a later layer has one. A layer that is a
 * function never has a file, so the gap alone does not show that a file is lost: the stages' lists
 * of parameters and buffers decide. If these lists are missing, a warning names the layer.
 */
int ckpt_ds_pipe_gap(ckpt_ds_pipe *pipe, const ckpt_ds_job *job, const ckpt_ds_folder *dir);

#endif
