/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h: holds the state of a training run beside its weights, in one form for every directory
 * format.
 *
 * It has the parameters in layout order, in the optimizer's groups; per group the hyper-parameters
 * and the state that is not per element (step counts); and the trees of values that the
 * checkpoint's first rank saved. Readers of training checkpoints fill it, writers lay files out
 * from it. Moments themselves are tensors of the map, named "<state>/<parameter>".
 */
#ifndef CKPT_MAP_STATE_H
#define CKPT_MAP_STATE_H

#include "libckpt/base/vec.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/value.h"

CKPT_VEC(ckpt_tensors, ckpt_tensor *);

/*
 * A value that differs by rank: of a group, because its optimizer computes it from the rank's own
 * partition (Prodigy's d_numerator), or of the training program (the state of a random number
 * generator).
 */
typedef struct ckpt_ranked {
    struct ckpt_ranked *next;
    const ckpt_value *key; /* STR */
    /*
     * true: the key is in the group's entry (client values: in the module); false: in its fields
     * (in the model file)
     */
    bool in_entry;
    bool model; /* differs only by model-parallel rank, and each of these ranks has a state */
    /*
     * [world] the value of each data-parallel rank (NULL: none); at NULL: sub-groups of one rank,
     * or joined model-parallel ranks, differ too
     */
    ckpt_value **at;
} ckpt_ranked;

/* A parameter group of the optimizer. */
typedef struct ckpt_group {
    /*
     * its parameters on expert-parallel rank 0: state->param[first .. first+n); those of rank e
     * begin n * e later
     */
    size_t first, n;
    /* number of expert-parallel ranks with different parameters of this group; else 1 */
    uint32_t n_lanes;
    /* its entry of param_groups with 'params'; NULL: the checkpoint has none */
    ckpt_value *fields;
    /*
     * its optimizer state from the first rank (the group's first sub-group), a DICT: flat tensors
     * in it stand for the map's "<key>/<parameter>", all other values hold for the whole group;
     * NULL: none
     */
    ckpt_value *entry;
    /*
     * the entry as bitsandbytes saved it, if `entry` lists the moments in their F32 form instead;
     * NULL: `entry` has the saved form
     */
    ckpt_value *stored;
    /* bitsandbytes' moments were converted to fp32 (ckpt_map_dequantize_moments) */
    bool became_adam;
    ckpt_ranked *ranked; /* values of fields and entry that differ by rank */
    uint64_t cut;        /* ckpt_ranked_cut of the partition that `ranked` belongs to; 0: none */
} ckpt_group;

CKPT_VEC(ckpt_groups, ckpt_group);

/* The state of one model-parallel rank; a run without model parallelism has one state. */
typedef struct ckpt_state {
    /*
     * the prefix of its tensors' names in the map: "mp_rank_01/"; "" for a run without model
     * parallelism
     */
    const char *prefix;
    uint32_t mp; /* model-parallel rank */
    /*
     * trained parameters in the order in which the optimizer got them (round robin undone), by
     * group. In a waiting state (map.h) the parameters that the map lacks are hidden tensors of
     * CKPT_ROLE_STATE, with the shape of their moments and without bytes
     */
    ckpt_tensors param;
    ckpt_groups group;
    /*
     * stage 0: per parameter its own optimizer state, a DICT, or NULL; NULL: only groups have state
     */
    ckpt_value **own;
    ckpt_value *model;   /* tree of the first rank's model file (a DICT), or NULL */
    ckpt_value *optim;   /* tree of the first rank's optimizer file (a DICT), or NULL */
    ckpt_ranked *client; /* members and buffers of model files that differ by rank (stage 3) */
    /* model and optim, if present, come from a program of another framework, not from DeepSpeed */
    bool foreign;
    /*
     * listed: parameters have the order of the caller's list. numbered: the optimizer's file names
     * them by position, so their order is the optimizer's. renamed: a layout map has made them.
     * no_order: the reason why their order is unknown, for readers that find them by position
     * (order.h); NULL: it is known
     */
    bool listed, numbered, renamed;
    const char *no_order;
    /* parameters in the order of the optimizer's file; NULL: as in param */
    ckpt_tensor **given;
    /*
     * where float32 masters of 16-bit parameters are, e.g. "master_param", if they are kept beside
     * the parameters and not as their values; NULL: there are none
     */
    const char *masters;
    const char *version;     /* DeepSpeed version, "0.19.8"; NULL: older than 0.4.0, or none */
    int stage;               /* ZeRO stage of the source; 0: none */
    uint32_t world;          /* data-parallel ranks of the source; 0: not known */
    ckpt_dtype dtype;        /* training dtype: F32, F16, BF16 */
    uint64_t sub_group_size; /* elements of a sub-group; 0: not known */
    bool round_robin;        /* stages 1 and 2: parameters are laid out in round-robin order */
    bool aligned;            /* parameter_alignment was on */
    /* optimizer state was saved without padding, as a list (elastic checkpoints) */
    bool lean;
    bool legacy; /* stage 1 of 0.3.x: partitions by communication interval */
    /* legacy: elements of all ranks together per interval (the last may be smaller) */
    uint64_t interval;
    /* joined from several model-parallel ranks: the trees are the first one's */
    bool joined;
    bool bf16_optimizer; /* stage 1 in the form of BF16_Optimizer */
    /* stage 0 in fp32: only a group's last parameter counts steps (FusedAdam) */
    bool last_step;
} ckpt_state;

/* Append a new state to map->states; prefix is copied. */
int ckpt_state_new(ckpt_state **out, ckpt_map *map, const char *prefix, ckpt_err *err);

/* Free the states' memory outside of the arena (ckpt_map_free calls it). */
static inline void ckpt_state_free(ckpt_state *state)
{
    ckpt_vec_free(&state->param);
    ckpt_vec_free(&state->group);
}

/*
 * Drop trained parameters without elements, because releases from 0.19.8 on count them as frozen.
 * *out: a copy in the arena that shares everything else with s; s itself if it has no such
 * parameters.
 */
int ckpt_state_not_empty(const ckpt_state **out, const ckpt_state *s, ckpt_arena *arena,
                         ckpt_err *err);

/*
 * The tensor "<kind>/<parameter>" under the state's prefix, a moment of a parameter; NULL: it has
 * none.
 */
const ckpt_tensor *ckpt_state_moment(const ckpt_map *map, const ckpt_state *state, const char *kind,
                                     const ckpt_tensor *param);

/*
 * The map's index of a name of the state's module (a STR of its trees); SIZE_MAX: no such tensor.
 */
size_t ckpt_state_index(const ckpt_map *map, const ckpt_state *state, const ckpt_value *name);

/* A parameter's name without the state's prefix. */
const char *ckpt_state_name(const ckpt_state *state, const ckpt_tensor *param);

/* The key of the fact about a special form of an optimizer's moments. */
#define CKPT_MOMENTS "moments"

/* The key below which bitsandbytes keeps its moments. */
#define CKPT_BNB_KEY "__bnb_optimizer_quant_state__"

/* True for a group's entry with bitsandbytes' state that is not listed as moments. */
bool ckpt_state_is_8bit(const ckpt_value *entry);

/*
 * Refuse a run with 8-bit moments that the writer cannot store, or that no reader understands.
 *
 * out advice on how to continue without them: "ckpt convert writes the weights alone"
 * Errors  CKPT_EUNSUPPORTED
 */
int ckpt_state_refuse_8bit(const ckpt_map *map, const ckpt_group *g, const char *out,
                           ckpt_err *err);

/* True if a group has the settings and the state of Adam or one of its variants. */
bool ckpt_state_is_adam(const ckpt_group *g);

/*
 * Add the keys that torch's Adams (to 2.15) read of a group in each step and that its entry lacks,
 * with neutral values. Loading replaces a complete group, so a missing key would be a KeyError.
 *
 * decoupled  whether weight decay is separate from the gradient (AdamW): a BOOL, or NULL: not
 *            known, and not added
 * false      out of memory
 */
bool ckpt_state_adam(ckpt_arena *arena, ckpt_value *fields, ckpt_value *decoupled);

/*
 * Set map->mode to CKPT_MODE_TRAINS if a group is that of a schedule-free optimizer (package
 * schedulefree: `train_mode`, `weight_sum`) in training mode.
 *
 * groups  the list `param_groups`, or NULL
 */
void ckpt_state_look_mode(ckpt_map *map, const ckpt_value *groups);

/* ---- ranked.c ---- */

/* Find the per-rank values of a key in a list; NULL: all ranks have rank 0's value. */
const ckpt_ranked *ckpt_ranked_find(const ckpt_ranked *list, const ckpt_value *key, bool in_entry);

/* The same in a group's list. */
const ckpt_ranked *ckpt_ranked_get(const ckpt_group *g, const ckpt_value *key, bool in_entry);

/* Add an entry to a group, once for each key; key is copied.  NULL: no memory. */
ckpt_ranked *ckpt_ranked_add(ckpt_arena *arena, ckpt_ranked **list, const ckpt_value *key,
                             bool in_entry);

/* A hash of the parameters that a group partitions, and of their order; never 0. */
uint64_t ckpt_ranked_cut(const ckpt_state *state, const ckpt_group *g);

/* True if a state's per-rank values belong to its current partitions and number of ranks. */
bool ckpt_ranked_stay(const ckpt_state *state);

/*
 * List the values that differ by rank: "d_numerator, d_denom of parameter group 0"; "": none; NULL:
 * no memory.
 */
const char *ckpt_ranked_text(ckpt_arena *arena, const ckpt_state *state);

/*
 * Warn about per-rank values for which a target with other partitions or ranks gives all ranks the
 * value of rank 0.
 */
int ckpt_ranked_lost(ckpt_map *to, const ckpt_map *from, ckpt_err *err);

/* The reason why a map of training files has no state: the reader's own, or its first warning. */
const char *ckpt_state_why_none(const ckpt_map *map);

/* Refuse a map without a training state, with the reason and advice. */
int ckpt_state_none(const ckpt_map *map, ckpt_err *err);

/*
 * True for a group with initial_lr, because torch's schedulers add that to each group of their
 * optimizer.
 */
bool ckpt_state_marked(const ckpt_value *group);

/* True if a scheduler drove the optimizer of a training state that lacks the scheduler's state. */
bool ckpt_state_scheduled(const ckpt_map *map);

#endif
