/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h: the state of a training run beside its weights, in one form for every directory format.
 *
 * Parameters in layout order, cut into the optimizer's groups; per group its hyper-parameters and
 * what its state holds that is not per element (step counts); and the trees of values that the
 * checkpoint's first rank saved.  Readers of training checkpoints fill it, writers lay files out
 * from it; moments themselves are tensors of the map, named "<state>/<parameter>".
 */
#ifndef CKPT_MAP_STATE_H
#define CKPT_MAP_STATE_H

#include "libckpt/map/map.h"

/* A parameter group of the optimizer. */
typedef struct ckpt_group {
    /* its parameters: state->param[first .. first+n) of lane 0; lane e begins n * e later */
    size_t first, n;
    /* expert parallel ranks that hold different parameters of this group; else 1 */
    uint32_t n_lanes;
    /* its entry of param_groups, 'params' included; NULL: the checkpoint keeps none */
    ckpt_value *fields;
    /*
     * its optimizer state as the first rank saved it (the group's first sub-group), a DICT: flat
     * tensors in it stand for the map's "<key>/<parameter>", everything else holds for the whole
     * group; NULL: none
     */
    ckpt_value *entry;
} ckpt_group;

CKPT_VEC(ckpt_groups, ckpt_group);

/* The state of one model-parallel rank (a run without model parallelism has one). */
typedef struct ckpt_state {
    /* before its tensors' names in the map: "mp_rank_01/"; "" for a plain run */
    const char *prefix;
    uint32_t mp; /* model-parallel rank */
    /*
     * trained parameters, as the optimizer was given them (round robin undone), by group; of a
     * waiting state (map.h) those that the map lacks are hidden tensors of CKPT_ROLE_STATE, which
     * have the shape of their moments and no bytes
     */
    ckpt_tensors param;
    ckpt_groups group;
    ckpt_value **own;  /* stage 0: per parameter its own optimizer state, a DICT, or NULL; NULL: the
                         groups' is all */
    ckpt_value *model; /* tree of the first rank's model file (a DICT), or NULL */
    ckpt_value *optim; /* tree of the first rank's optimizer file (a DICT), or NULL */
    /*
     * model and optim, where they are there, hold what a program of another framework saved beside
     * its model and optimizer: no release of DeepSpeed has made them
     */
    bool foreign;
    /*
     * parameters stand in the order of the caller's list; a layout map has made them; or why their
     * order is not known, which readers by position ask for (order.h), NULL: it is
     */
    bool listed, renamed;
    const char *no_order;
    ckpt_tensor **given;     /* parameters as the optimizer's file lists them; NULL: as in param */
    const char *version;     /* DeepSpeed version, "0.19.8"; NULL: older than 0.4.0, or none */
    int stage;               /* ZeRO stage of the source; 0: none */
    uint32_t world;          /* data-parallel ranks of the source; 0: not known */
    ckpt_dtype dtype;        /* that the run trained in: F32, F16, BF16 */
    uint64_t sub_group_size; /* elements; 0: not known */
    bool round_robin;        /* stages 1 and 2: parameters were laid out in round-robin order */
    bool aligned;            /* parameter_alignment was on */
    /* optimizer state was saved without its padding, as a list (elastic checkpoints) */
    bool lean;
    bool legacy; /* stage 1 of 0.3.x: partitions by communication interval */
    /* legacy: elements of all ranks together per interval (the last may be smaller) */
    uint64_t interval;
    /* several model-parallel ranks made one: the trees are the first one's */
    bool joined;
    bool bf16_optimizer; /* stage 1 as BF16_Optimizer saves it */
    /* stage 0 in fp32: only a group's last parameter counts steps (FusedAdam) */
    bool last_step;
} ckpt_state;

/* A new state of the map, at the end of map->states; prefix is copied. */
int ckpt_state_new(ckpt_state **out, ckpt_map *map, const char *prefix, ckpt_err *err);

/* Free what the states hold outside the arena (ckpt_map_free calls it). */
static inline void ckpt_state_free(ckpt_state *state)
{
    ckpt_vec_free(&state->param);
    ckpt_vec_free(&state->group);
}

/*
 * A state without its trained parameters of no elements, which releases from 0.19.8 on count as
 * frozen: a copy in the arena that shares all else with s, or s itself where it has none.
 */
int ckpt_state_not_empty(const ckpt_state **out, const ckpt_state *s, ckpt_arena *arena,
                         ckpt_err *err);

/*
 * The moment of a kind of a parameter: the map's "<kind>/<parameter>" under the state's prefix;
 * NULL: it has none.
 */
const ckpt_tensor *ckpt_state_moment(const ckpt_map *map, const ckpt_state *state, const char *kind,
                                     const ckpt_tensor *param);

/*
 * Where the map has a name of the state's module (a STR of its trees); SIZE_MAX: it has no such
 * tensor.
 */
size_t ckpt_state_index(const ckpt_map *map, const ckpt_state *state, const ckpt_value *name);

/* A parameter's name without the state's prefix. */
const char *ckpt_state_name(const ckpt_state *state, const ckpt_tensor *param);

/*
 * True for a group's state (its entry) that is bitsandbytes' 8-bit moments: codes, a map of codes
 * (qmap) and a scale for each block of 256 (absmax), below a key of their own or beside the step.
 */
bool ckpt_state_is_8bit(const ckpt_value *entry);

/*
 * Refuse a run that keeps such moments: blocks belong to one rank's partition.
 * Errors  CKPT_EUNSUPPORTED; `out`: how to go on without them
 */
int ckpt_state_refuse_8bit(const ckpt_map *map, const ckpt_group *g, const char *out,
                           ckpt_err *err);

/* True if the settings and the state of a group are those of Adam or one of its kind. */
bool ckpt_state_is_adam(const ckpt_group *g);

/*
 * Add what torch's Adams (to 2.15) read of a group in each step and the group's entry lacks, with
 * the values that stand for nothing special.  Loading replaces a group whole, and what it then
 * lacks is a KeyError.
 *
 * decoupled  whether weight decay is apart from the gradient (AdamW): a BOOL, or NULL: not known,
 *            and not added
 * false      no memory
 */
bool ckpt_state_adam(ckpt_arena *arena, ckpt_value *fields, ckpt_value *decoupled);

/* Why a map of training files has no state: what its reader has found, or at least warned of. */
const char *ckpt_state_why_none(const ckpt_map *map);

/* The refusal of a map without a training state, with the reason and what can be done. */
int ckpt_state_none(const ckpt_map *map, ckpt_err *err);

#endif
