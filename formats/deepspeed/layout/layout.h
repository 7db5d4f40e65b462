/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h: where every parameter lies: groups in order, their parameters, and the flat tensors
 * of all ranks.
 */
#ifndef CKPT_FORMATS_DS_LAYOUT_H
#define CKPT_FORMATS_DS_LAYOUT_H

#include "formats/deepspeed/layout/head.h"
#include "formats/deepspeed/shard/index.h"
#include "libckpt/map/zero_flat.h"

typedef struct ckpt_ds_param {
    const char *name; /* n_name bytes, and a terminator */
    uint64_t n_name;
    const uint64_t *shape; /* elements */
    uint32_t ndim;
    uint32_t group; /* index in ckpt_ds_layout.group */
    uint64_t numel;
    uint64_t at; /* stage 3: element offset of its partition in the sub-group's flat tensor */
    /*
     * AutoEP: one of `fused` experts, number `in`, that follow each other and are one parameter of
     * DeepSpeed's (whose partition `at` is of); else 0
     */
    uint32_t fused, in;
} ckpt_ds_param;

/* A parameter group (stages 1, 2) or a sub-group (stage 3). */
typedef struct ckpt_ds_group {
    size_t first, n;  /* its parameters (stage 3: set by the walk over flat sizes) */
    size_t part;      /* index of its first flat tensor in a column */
    uint32_t of;      /* parameter group that it belongs to (stages 1, 2: its own number) */
    uint32_t n_parts; /* flat tensors over all ranks of a lane, in layout order */
    /*
     * experts: expert-parallel ranks, of which each has its own parameters; else 1. Parameters and
     * flat tensors of lane e follow those of lane e - 1
     */
    uint32_t lanes;
    uint32_t intervals;      /* stage 1 of 0.3.x: communication intervals; else 1 */
    ckpt_zero_flat flat;     /* stages 1, 2 */
    ckpt_zero_flat shuffled; /* round_robin_gradients: as param_slice_mappings were computed */
    uint64_t *order;         /* round_robin_gradients: shuffled parameter k is parameter order[k] */
    bool has_step;           /* rank 0's optimizer keeps a step count */
    bool own_step;           /* in the state of this very group */
    double step;             /* as rank 0 has it */
    const char *swapped;     /* stage 3: id of the swap files that hold the group, or NULL */
} ckpt_ds_group;

/* The flat tensors of one kind (masters, exp_avg ...), of all groups and ranks. */
typedef struct ckpt_ds_column {
    const char *name; /* NULL: the master weights */
    ckpt_ds_flat *at; /* n_parts of all groups */
} ckpt_ds_column;

CKPT_VEC(ckpt_ds_params, ckpt_ds_param);
CKPT_VEC(ckpt_ds_groups, ckpt_ds_group);
CKPT_VEC(ckpt_ds_columns, ckpt_ds_column);

/* Where every parameter lies: groups in order, their parameters, the flat tensors of all ranks. */
typedef struct ckpt_ds_layout {
    ckpt_ds_params params;
    ckpt_ds_groups group;
    size_t n_groups;        /* parameter groups */
    size_t n_parts;         /* of each column */
    ckpt_ds_columns column; /* [0] masters */
} ckpt_ds_layout;

/* Free what it holds. */
void ckpt_ds_layout_free(ckpt_ds_layout *layout);

/* The flat tensor of a rank in a column. */
static inline size_t ckpt_ds_slot(const ckpt_ds_group *g, uint32_t world, uint32_t interval,
                                  uint32_t rank)
{
    if (g->lanes > 1)
        return g->part + (size_t)(rank % g->lanes) * g->n_parts + rank / g->lanes;
    return g->part + (size_t)interval * world + rank;
}

/* ---- params.c ---- */

/* Append the entries of a dict name -> shape. */
int ckpt_ds_params_add(const ckpt_ds_job *job, ckpt_ds_params *out, const ckpt_value *dict,
                       uint32_t group, const char *what);

/* Parameters and groups from param_shapes of the model or optimizer file. */
int ckpt_ds_params_read(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_index *names,
                        ckpt_ds_layout *layout);

/* ---- optim_dict.c ---- */

/* A parameter group's entry of param_groups; NULL: none. */
ckpt_value *ckpt_ds_optim_entry(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                                const ckpt_value *optim, size_t group);

/* The step count of a flat group, wherever the release keeps it; *own: in the group's own state. */
const ckpt_value *ckpt_ds_optim_step(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                                     const ckpt_value *optim, size_t group, bool *own);

/* ---- optim.c ---- */

/* Find the groups and make the columns, from rank 0's file. */
int ckpt_ds_optim_begin(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout);

/* Take in one rank's file: its flat tensors, and everything that must be as in rank 0's. */
int ckpt_ds_optim_read(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                       ckpt_ds_layout *layout, ckpt_ds_shard *s);

/* Steps of all groups for people: "4", or "4, 4, 7" where they differ; NULL when no optimizer keeps
 * any. */
const char *ckpt_ds_optim_steps(const ckpt_ds_job *job, const ckpt_ds_layout *layout);

/* ---- value.c ---- */

/* Are a rank's value and rank 0's equal?  first: NULL, rank 0 has none; tensors of one number are
 * read. */
int ckpt_ds_value_same(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s,
                       const ckpt_value *own, const ckpt_value *first, bool *same);

/* Say which values of the optimizer's state are not the same on a rank as on rank 0, and which
 * entries are of no known form. */
int ckpt_ds_value_check(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_layout *layout,
                        ckpt_ds_shard *s);

/* ---- lanes.c: experts ---- */

/* In the names of experts, before their number. */
#define CKPT_DS_EXPERTS ".deepspeed_experts."

/*
 * The number in an expert's name ("...deepspeed_experts.3.fc.weight"; AutoEP: "...experts.w1.3"):
 * from byte *at on, *n bytes; false: it is no expert's.
 */
bool ckpt_ds_expert_number(const char *name, size_t *at, size_t *n, uint64_t *number);

/* Expert-parallel ranks of a group, as rank 0's files show them. */
uint32_t ckpt_ds_lanes_of(const ckpt_ds_head *head, size_t group);

/*
 * The parameters of the other expert-parallel ranks, behind rank 0's, under global expert numbers.
 */
int ckpt_ds_lanes_params(const ckpt_ds_job *job, ckpt_ds_layout *layout);

#endif
