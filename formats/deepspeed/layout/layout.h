/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h: declares the layout of a checkpoint: groups in order, their parameters, and the flat
 * tensors of all ranks.
 */
#ifndef CKPT_FORMATS_DS_LAYOUT_H
#define CKPT_FORMATS_DS_LAYOUT_H

#include <assert.h>

#include "formats/deepspeed/layout/head.h"
#include "formats/deepspeed/shard/index.h"
#include "formats/training/expert_names.h"
#include "libckpt/map/state.h"
#include "libckpt/map/zero_flat.h"

typedef struct ckpt_ds_param {
    const char *name; /* n_name bytes, then NUL */
    uint64_t n_name;
    const uint64_t *shape; /* elements */
    uint32_t ndim;
    uint32_t group; /* index in ckpt_ds_layout.group */
    uint64_t numel;
    uint64_t at; /* stage 3: element offset of its partition in the sub-group's flat tensor */
    /*
     * AutoEP: number of experts that are fused into one DeepSpeed parameter, and this one's index;
     * `at` is then the fused parameter's.  0 for other parameters
     */
    uint32_t fused, in;
} ckpt_ds_param;

/* A parameter group (stages 1, 2) or a sub-group (stage 3). */
typedef struct ckpt_ds_group {
    size_t first, n;  /* range of its parameters (stage 3: set by the walk over flat sizes) */
    size_t part;      /* index of its first flat tensor in a column */
    uint32_t of;      /* index of the parameter group (stages 1, 2: its own number) */
    uint32_t n_parts; /* number of ranks of a lane, each with one flat tensor */
    /*
     * experts: number of expert-parallel ranks, each with its own parameters; else 1.  Parameters
     * and flat tensors of lane e follow those of lane e - 1
     */
    uint32_t lanes;
    uint32_t intervals;      /* stage 1 of 0.3.x: communication intervals; else 1 */
    ckpt_zero_flat flat;     /* stages 1, 2 */
    ckpt_zero_flat shuffled; /* round_robin_gradients: the order of param_slice_mappings */
    uint64_t *order;         /* round_robin_gradients: shuffled parameter k is parameter order[k] */
    bool has_step;           /* rank 0's optimizer has a step count for this group */
    bool own_step;           /* the step count is in the group's own state */
    double step;             /* on rank 0 */
    uint32_t bits;       /* bits of bitsandbytes' moments on rank 0, 8 or 32; 0: not bitsandbytes */
    const char *swapped; /* stage 3: id of the group's swap files, or NULL */
} ckpt_ds_group;

/* The flat tensors of one kind (masters, exp_avg ...), of all groups and ranks. */
typedef struct ckpt_ds_column {
    const char *name; /* NULL: the master weights */
    ckpt_ds_flat *at; /* n_parts flat tensors, of all groups */
} ckpt_ds_column;

CKPT_VEC(ckpt_ds_params, ckpt_ds_param);
CKPT_VEC(ckpt_ds_groups, ckpt_ds_group);
CKPT_VEC(ckpt_ds_columns, ckpt_ds_column);

/* The layout of a checkpoint. */
typedef struct ckpt_ds_layout {
    ckpt_ds_params params;
    ckpt_ds_groups group;
    size_t n_groups;        /* parameter groups */
    size_t n_parts;         /* number of flat tensors in each column */
    ckpt_ds_columns column; /* [0] masters */
} ckpt_ds_layout;

/* Free the layout's lists. */
void ckpt_ds_layout_free(ckpt_ds_layout *layout);

/* The index of a rank's flat tensor in a column. */
static inline size_t ckpt_ds_slot(const ckpt_ds_group *g, uint32_t world, uint32_t interval,
                                  uint32_t rank)
{
    assert(rank < world && interval < g->intervals);
    if (g->lanes > 1)
        return g->part + (size_t)(rank % g->lanes) * g->n_parts + rank / g->lanes;
    return g->part + (size_t)interval * world + rank;
}

/* ---- params.c ---- */

/* Append the entries of a dict name -> shape. */
int ckpt_ds_params_add(const ckpt_ds_job *job, ckpt_ds_params *out, const ckpt_value *dict,
                       uint32_t group, const char *what);

/* Read parameters and groups from param_shapes of the model or optimizer file. */
int ckpt_ds_params_read(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_index *names,
                        ckpt_ds_layout *layout);

/* ---- optim_dict.c ---- */

/* A parameter group's entry in param_groups, or NULL. */
ckpt_value *ckpt_ds_optim_entry(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                                const ckpt_value *optim, size_t group);

/*
 * Find the step count of a flat group, which releases store in different dicts. *own: true if it is
 * in the group's own state.
 */
const ckpt_value *ckpt_ds_optim_step(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                                     const ckpt_value *optim, size_t group, bool *own);

/* ---- optim.c ---- */

/* Find the groups and make the columns, from rank 0's file. */
int ckpt_ds_optim_begin(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout);

/* Read one rank's file: its flat tensors, and values that must equal rank 0's. */
int ckpt_ds_optim_read(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                       ckpt_ds_layout *layout, ckpt_ds_shard *s);

/* The steps of all groups as text: "4", or "4, 4, 7" if they differ; NULL if there are none. */
const char *ckpt_ds_optim_steps(const ckpt_ds_job *job, const ckpt_ds_layout *layout);

/* ---- ranked.c ---- */

/* A value of the optimizer in the files of two ranks. */
typedef struct ckpt_ds_pair {
    size_t group;                  /* parameter group */
    const ckpt_value *key;         /* STR */
    bool in_entry;                 /* the value is in the group's state, not in its settings */
    const ckpt_value *first, *own; /* value on rank 0 and on the other rank; NULL: none */
} ckpt_ds_pair;

/* Record a rank's value that differs from rank 0's, if the caller reads the optimizer. */
int ckpt_ds_ranked_note(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s,
                        const ckpt_ds_pair *p);

/* Record a value that differs between the sub-groups of one rank. */
int ckpt_ds_ranked_uneven(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_pair *p);

/*
 * Move the recorded values to the groups of a state and report them.  The groups must have all
 * their parameters.
 */
int ckpt_ds_ranked_take(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_state *state);

/* ---- client.c ---- */

/*
 * Record the client state and the buffers in a rank's model file (stage 3) that differ from rank
 * 0's, if the caller reads the optimizer.
 *
 * Errors  CKPT_EMISMATCH: a buffer of another shape or dtype
 */
int ckpt_ds_client_note(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s);

/*
 * Report the values in a rank's optimizer file that rank 0 lacks or has otherwise, and that no
 * other check compares.
 */
int ckpt_ds_client_optim(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s);

/*
 * Record in `to` the names of values in model and optimizer files that differ between two
 * model-parallel ranks, or that only one of them has, except parts of tensors and their layout.
 * The states' trees are in the output map already.
 */
int ckpt_ds_client_join(const ckpt_ds_job *job, ckpt_state *to, const ckpt_state *first,
                        const ckpt_state *own);

/*
 * Warn of such values in a further model-parallel rank's model file of which nothing else is used,
 * if the caller reads the optimizer.
 */
int ckpt_ds_client_beside(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s);

/* ---- value.c ---- */

/* Compare a rank's value with rank 0's (first; NULL if rank 0 has none); tensors with one element
 * are read. */
int ckpt_ds_value_same(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s,
                       const ckpt_value *own, const ckpt_value *first, bool *same);

/* Note values of the optimizer's state that differ between a rank and rank 0, and entries of
 * unknown form. */
int ckpt_ds_value_check(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_layout *layout,
                        ckpt_ds_shard *s);

/* ---- lanes.c: experts ---- */

/* The number of expert-parallel ranks of a group, from rank 0's files. */
uint32_t ckpt_ds_lanes_of(const ckpt_ds_head *head, size_t group);

/*
 * Append the parameters of the other expert-parallel ranks after rank 0's.  Expert numbers count
 * all experts of the layer.
 */
int ckpt_ds_lanes_params(const ckpt_ds_job *job, ckpt_ds_layout *layout);

#endif
