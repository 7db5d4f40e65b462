/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.h: what the files of the ZeRO writer share.  Not for anyone else.
 *
 *     write.c         the driver's scatter: settings, files of every rank, `latest`
 *     release.c which keys a release of DeepSpeed writes, and how it cuts padding
 *     layout.c  parameters to groups (stages 1, 2) or sub-groups (3), target tensors
 *     model.c   the tree of a model file
 *     optim.c   the tree of an optimizer file
 *     stage0.c    stage 0: the optimizer inside the model file
 *     experts.c   files of experts, where the source has none to pass on
 *     stored.c    which parameters are one of DeepSpeed's: AutoEP's experts of a rank
 *     autoep.c    experts under AutoEP: whose they are, what says so
 *     muon.c    the order of Muon's matrices, and momentum that is not cut
 *     config.c  values that depend on the world: ds_config, counters
 *
 * What is written of what (job) and how is settled first and then only read; the layout is pure
 * arithmetic; each file is a tree made of the three, and notes its records.  The target's tensors
 * fill these at the end.
 *
 * The arithmetic is the reader's (libckpt/map/zero_*.h) run the other way.  The source's own trees
 * are the templates: what depends on world, stage or dtype is made anew, everything else is copied.
 */
#ifndef CKPT_FORMATS_DS_WRITE_H
#define CKPT_FORMATS_DS_WRITE_H

#include "formats/torch/tree.h"
#include "libckpt/format.h"
#include "libckpt/map/state.h"
#include "libckpt/map/zero_param.h"

/* 0.12.6 as a number that compares. */
#define CKPT_DS_RELEASE(a, b, c) ((a)*1000000 + (b)*1000 + (c))
enum { CKPT_DS_NEWEST = 19008 }; /* 0.19.8 */

/* One kind of values of a part: the masters, or a state of the optimizer. */
typedef struct ckpt_dsw_column {
    const char *key;  /* "exp_avg"; NULL: the masters */
    ckpt_dtype dtype; /* as written */
    bool zeros;       /* there is nothing to copy */
    bool whole;       /* not cut: a rank has all of each parameter that its slice touches */
} ckpt_dsw_column;

CKPT_VEC(ckpt_dsw_columns, ckpt_dsw_column);

/* A flat group (stages 1, 2), of one expert-parallel rank where there are several, or a sub-group
 * (stage 3). */
typedef struct ckpt_dsw_part {
    uint32_t group;            /* parameter group */
    uint32_t lane;             /* ranks lane, lane + n_lanes ... hold it */
    uint32_t world;            /* how many ranks do */
    size_t n;                  /* parameters */
    const ckpt_tensor **param; /* in layout order; in the scratch arena */
    size_t *origin;            /* layout order -> place in the group */
    /*
     * AutoEP: how many parameters, from each on, are one of DeepSpeed's; 0: it belongs to one
     * before it.  NULL: each is one
     */
    uint32_t *one;
    uint64_t *pad;            /* elements behind each parameter (parameter_alignment) */
    uint64_t *at;             /* stage 3: element offset in the sub-group */
    uint64_t slice;           /* elements of each rank */
    ckpt_zero_flat flat;      /* stages 1, 2 */
    ckpt_zero_flat plain;     /* the same before round_robin_gradients: as mappings have it */
    uint32_t intervals;       /* stage 1 of 0.3.x: slices per rank; else 1 */
    size_t column, n_columns; /* in the layout's */
    size_t slot;              /* of its first record in a rank's row of records */
} ckpt_dsw_part;

CKPT_VEC(ckpt_dsw_parts, ckpt_dsw_part);

/* What is written of what, and where it goes. */
typedef struct ckpt_dsw_job {
    const ckpt_map *from;
    ckpt_map *to;
    const ckpt_state *state;
    const ckpt_target *target;
    ckpt_err *err;
} ckpt_dsw_job;

/* How: settled from the target's wishes and the source before anything is laid out. */
typedef struct ckpt_dsw_how {
    int stage, from_stage;
    uint32_t world;
    int release, from_release;
    ckpt_dtype dtype;     /* of training */
    bool new_dtype;       /* differs from the source's */
    bool fresh;           /* moments of zero */
    bool layers, experts; /* parts of the module are files of their own, passed on as they are */
    bool made;            /* experts' files are made: the source has none */
    bool legacy, lean, bf16_optimizer, round_robin, aligned;
    uint64_t sub_group_size, interval;
    uint32_t ep; /* AutoEP: expert-parallel ranks; 0: a run without it */
} ckpt_dsw_how;

/* Where every parameter goes: parts, and what is kept of each. */
typedef struct ckpt_dsw_layout {
    ckpt_arena *scratch;
    const ckpt_tensor **given; /* the state's parameters in the order of the target's optimizer */
    ckpt_dsw_parts part;
    ckpt_dsw_columns column;
    size_t n_slots;      /* records of flat tensors in one rank's optimizer file */
    ckpt_tensors frozen; /* stage 3: parameters cut over the model files */
    /* per tensor of the map: 1 + the part that holds it as a trained parameter, or 0 */
    uint32_t *home;
    size_t *home_at; /* and its place in that part */
    /* per tensor of the map: DeepSpeed's number of a parameter (named_parameters order), or -1 */
    int64_t *ds_id;
} ckpt_dsw_layout;

/* The target's sources of all ranks, noted while their files are made. */
typedef struct ckpt_dsw_records {
    uint32_t *record; /* world * per_rank */
    size_t per_rank;
    uint32_t *fragment; /* of frozen parameters: world * frozen.n */
    /* stage 3: the model file of rank 1, which those of the ranks behind it are like */
    ckpt_torch_made second;
} ckpt_dsw_records;

/* One file of it. */
typedef struct ckpt_dsw_file {
    const ckpt_dsw_job *job;
    const ckpt_dsw_how *how;
    const ckpt_dsw_layout *layout;
    ckpt_dsw_records *records;
    uint32_t rank;
    ckpt_torch_tree t;
} ckpt_dsw_file;

/* ---- write.c ---- */

/*
 * From release 0.19.8 on ZeRO counts trained parameters without elements as frozen: leave them out
 * of job->state, and say so.
 */
int ckpt_dsw_put_aside(ckpt_dsw_job *job, const ckpt_dsw_how *how);

/* ---- form.c ---- */

/* The form in which stage 0 keeps its optimizer. */
typedef enum ckpt_dsw_stage0_form {
    CKPT_DSW_ZERO, /* a ZeRO stage: files of its own */
    CKPT_DSW_PLAIN,
    CKPT_DSW_LISTED,
    CKPT_DSW_FLAT
} ckpt_dsw_stage0_form;

/* The form of the target, which is that of its source. */
ckpt_dsw_stage0_form ckpt_dsw_form_of(const ckpt_dsw_job *job, const ckpt_dsw_how *how);

/* A parameter of this rank that is written as frozen. */
bool ckpt_dsw_is_frozen(const ckpt_dsw_job *job, const ckpt_tensor *t);

/* ---- release.c ---- */

/* "0.12.6" as a number; NULL: a release before 0.4.0, which wrote none.  -1: no version. */
int ckpt_dsw_release(const char *version);

/* Makes the value of a key; old is the template's value, or NULL.  A NULL without failure leaves
 * the key out. */
typedef ckpt_value *(*ckpt_dsw_make)(ckpt_dsw_file *f, const ckpt_value *old);

typedef struct ckpt_dsw_key {
    const char *key;
    int since, until;   /* first release that writes it, first that does not (0: none) */
    ckpt_dsw_make make; /* NULL: copied; None where the template lacks it */
} ckpt_dsw_key;

/*
 * True if the source's files are of the release that is written for, so that theirs are templates.
 * Values that went through another framework are without their layout.
 */
bool ckpt_dsw_follows(const ckpt_dsw_job *job, const ckpt_dsw_how *how);

/*
 * A dict by a table of keys (ends with a NULL key).  With follow the template's keys are taken as
 * they are; else those that the release writes, then what the template has beyond the table.
 */
ckpt_value *ckpt_dsw_dict(ckpt_dsw_file *f, const ckpt_value *old, const ckpt_dsw_key *table,
                          bool follow);

/* Elements of a rank's slice that are saved (padding is cut differently by every line of releases).
 */
uint64_t ckpt_dsw_saved(const ckpt_dsw_how *how, const ckpt_dsw_part *p, uint32_t index);

/* What the rank says about its padding (group_paddings). */
uint64_t ckpt_dsw_padding(const ckpt_dsw_how *how, const ckpt_dsw_part *p, uint32_t index);

/* ---- layout.c ---- */

/*
 * Groups, parts, columns and records of the target, by arithmetic alone; free: also after a
 * failure.
 */
int ckpt_dsw_layout_new(const ckpt_dsw_job *job, const ckpt_dsw_how *how, ckpt_dsw_layout *layout);

/* Free it, also after a failure. */
void ckpt_dsw_layout_free(ckpt_dsw_layout *layout);

/* Room for the records of all ranks, none made yet. */
int ckpt_dsw_records_new(const ckpt_dsw_job *job, const ckpt_dsw_how *how,
                         const ckpt_dsw_layout *layout, ckpt_dsw_records *records);

/* Free both. */
void ckpt_dsw_records_free(ckpt_dsw_records *records);

/* True if a rank holds a part, and as which of its ranks. */
bool ckpt_dsw_holds(const ckpt_dsw_part *p, const ckpt_group *group, uint32_t rank,
                    uint32_t *index);

/*
 * The name of a part's parameter in files: experts are numbered as each of their ranks counts them,
 * and AutoEP's that are one of DeepSpeed's have its name, "<prefix>.w1".
 */
const char *ckpt_dsw_stored_name(const ckpt_dsw_job *job, const ckpt_dsw_layout *layout,
                                 const ckpt_dsw_part *p, size_t i);

/* Where the values of a dtype come from: the copy if the checkpoint has one, else the masters,
 * rounded. */
const ckpt_tensor *ckpt_dsw_donor(const ckpt_tensor *t, ckpt_dtype d);

/* The record of a column (and interval) of a part in a rank's file. */
uint32_t *ckpt_dsw_record(const ckpt_dsw_records *records, uint32_t rank, const ckpt_dsw_part *p,
                          size_t column, uint32_t interval);

/* Elements of a column's record on rank `index` of the part, which are all saved where it is whole.
 */
uint64_t ckpt_dsw_size(const ckpt_dsw_layout *layout, const ckpt_dsw_part *p, size_t column,
                       uint32_t index);

/* Target tensors of all flat tensors and frozen fragments: after all ranks' files were made. */
int ckpt_dsw_fill(const ckpt_dsw_job *job, const ckpt_dsw_how *how, const ckpt_dsw_layout *layout,
                  const ckpt_dsw_records *records);

/* ---- muon.c ---- */

/*
 * Make layout->given.  Below stage 3 the class sorts its matrices by size.  In stage 3 it does the
 * same, but finds nothing to sort by where the model was made under zero.Init: there the order
 * stays the source's.
 */
int ckpt_dsw_given(const ckpt_dsw_job *job, const ckpt_dsw_how *how, ckpt_dsw_layout *layout);

/*
 * True for a group's state that cannot begin anew key by key: lists, dicts, and 8-bit moments,
 * whose zero is another number in each map of codes (bitsandbytes).  It is left out whole, and the
 * optimizer makes it when it finds none.
 */
bool ckpt_dsw_begins_whole(const ckpt_value *entry);

/* State of this key is not cut. */
bool ckpt_dsw_is_whole(const ckpt_dsw_job *job, const ckpt_dsw_how *how, const ckpt_group *g,
                       const char *key);

/* ---- experts.c ---- */

/* The source holds parameters of experts. */
bool ckpt_dsw_has_experts(const ckpt_dsw_job *job);

/* A file for each of them. */
int ckpt_dsw_expert_files(const ckpt_dsw_job *job, const ckpt_dsw_how *how,
                          const ckpt_dsw_layout *layout);

/* num_experts of the model file: of each layer that has some. */
ckpt_value *ckpt_dsw_num_experts(ckpt_dsw_file *f);

/* ---- stored.c ---- */

/* ds_autoep_layers of the source: its layers with AutoEP's experts; n is 0 where it has none. */
ckpt_seq ckpt_dsw_autoep_entries(const ckpt_state *state);

/* Expert-parallel ranks of a source with AutoEP; 0: it is without. */
uint32_t ckpt_dsw_autoep(const ckpt_state *state);

/* Bytes of the name of AutoEP's expert up to its number; 0: it is none. */
size_t ckpt_dsw_autoep_prefix(const ckpt_state *state, const ckpt_tensor *t);

/* How many parameters from place i of a group's first lane on are one of DeepSpeed's. */
size_t ckpt_dsw_autoep_run(const ckpt_state *state, const ckpt_group *g, size_t i);

/* Find what in a part is one of DeepSpeed's parameters. */
int ckpt_dsw_autoep_part(const ckpt_dsw_job *job, ckpt_arena *scratch, ckpt_dsw_part *p);

/* How many parameters of a part from i on are one of DeepSpeed's; 0: i belongs to one before it. */
static inline uint32_t ckpt_dsw_one(const ckpt_dsw_part *p, size_t i)
{
    return p->one ? p->one[i] : 1;
}

/* Is a parameter of a part an expert of AutoEP's? */
bool ckpt_dsw_autoep_is(const ckpt_dsw_job *job, const ckpt_dsw_part *p, size_t i);

/* The order of round_robin_gradients, in which these move as one. */
int ckpt_dsw_autoep_order(const ckpt_dsw_job *job, ckpt_arena *scratch, const ckpt_group *g,
                          uint32_t world, uint64_t *order);

/* "<prefix>.w1" of "<prefix>.w1.5"; NULL: no memory. */
const char *ckpt_dsw_autoep_name(ckpt_arena *scratch, const char *name);

/* ---- autoep.c ---- */

/*
 * Deal out its experts to the ranks of the target: job->state and how->ep are set.
 *
 * Errors   CKPT_EUNSUPPORTED: frozen experts; a release that knows none, CKPT_EUSAGE if asked for
 */
int ckpt_dsw_autoep_deal(ckpt_dsw_job *job, ckpt_dsw_how *how);

/* Put the experts of all ranks together, in job->state: universal checkpoints know no ranks. */
int ckpt_dsw_autoep_whole(ckpt_dsw_job *job);

/* A file for each expert (stages 1 and 2). */
int ckpt_dsw_autoep_files(const ckpt_dsw_job *job, const ckpt_dsw_how *how);

/* ds_autoep_layers and universal_checkpoint_info of a rank's model file. */
ckpt_value *ckpt_dsw_autoep_layers(ckpt_dsw_file *f, const ckpt_value *old);
ckpt_value *ckpt_dsw_autoep_info(ckpt_dsw_file *f, const ckpt_value *old);

/* ds_zero_partition_groups of a rank's optimizer file (stage 3); NULL: a run without AutoEP. */
ckpt_value *ckpt_dsw_autoep_groups(ckpt_dsw_file *f, const ckpt_value *old);

/* ---- model.c, optim.c ---- */

/* The tree of one rank's file, placed under this name in the target. */
int ckpt_dsw_model_file(const ckpt_dsw_job *job, const ckpt_dsw_how *how,
                        const ckpt_dsw_layout *layout, ckpt_dsw_records *records, uint32_t rank,
                        const char *name);

/* The same of an optimizer file (stages 1 to 3). */
int ckpt_dsw_optim_file(const ckpt_dsw_job *job, const ckpt_dsw_how *how,
                        const ckpt_dsw_layout *layout, ckpt_dsw_records *records, uint32_t rank,
                        const char *name);

/* ---- fields.c ---- */

/*
 * The settings of a group whose checkpoint keeps none (group->fields is NULL): those of its
 * ds_config, or Adam's defaults, with a warning.
 *
 * Errors  CKPT_EUNSUPPORTED: the optimizer is not known; CKPT_ELIMIT
 */
int ckpt_dsw_configured(ckpt_value **out, ckpt_map *to, const ckpt_state *state,
                        const ckpt_group *g, ckpt_err *err);

/*
 * Add what any Adam of DeepSpeed (deepspeed/ops/adam/fused_adam.py, cpu_adam.py) or torch reads of
 * its group in a step; no one minds the keys of another.  False: no memory.
 */
bool ckpt_dsw_adam(ckpt_arena *arena, ckpt_value *fields, ckpt_value *decoupled);

/* param_shapes as the release keeps them, in the model or the optimizer file. */
ckpt_value *ckpt_dsw_param_shapes(ckpt_dsw_file *f, const ckpt_value *old);

/* ---- stage0.c ---- */

/*
 * A source without ZeRO, written for a stage of it: what it keeps beside its optimizer and what has
 * no place there is said (ckpt_dsw_left_out).  clip: the target keeps clip_grad.
 */
int ckpt_dsw_stage0_left_out(const ckpt_dsw_job *job, const ckpt_dsw_how *how, bool clip);

/* The model file's `optimizer`; None under ZeRO. */
ckpt_value *ckpt_dsw_stage0(ckpt_dsw_file *f, const ckpt_value *old);

/* ---- model.c ---- */

/*
 * The map's index of the tensor that entry `self` of the source's module, which the map does not
 * hold itself, is a second name of: both have one place in one storage.  SIZE_MAX: of none, or
 * nothing says.
 */
size_t ckpt_dsw_second(const ckpt_dsw_job *job, ckpt_dict module, uint64_t self);

/* ---- write.c ---- */

/*
 * Objects of unknown classes are neither passed on nor lost without being asked; the target's
 * effects say whether there are any.
 *
 * Errors   CKPT_EUNSAFE: there are, and the target's options say nothing of them
 */
int ckpt_dsw_objects(const ckpt_dsw_job *job);

/* ---- config.c ---- */

/* The run's ds_config, with what depends on world, stage and dtype rewritten. */
ckpt_value *ckpt_dsw_config(ckpt_dsw_file *f, const ckpt_value *old);

/* A value of the source's ds_config, by path ("zero_optimization", "stage"); NULL where it has
 * none. */
const ckpt_value *ckpt_dsw_config_get(const ckpt_state *state, const char *section,
                                      const char *key);

/* A number of it, int or float as JSON has it; otherwise as given. */
uint64_t ckpt_dsw_config_number(const ckpt_state *state, const char *section, const char *key,
                                uint64_t otherwise);

/* Say of a run of another framework at what DeepSpeed of this release clips gradients. */
int ckpt_dsw_clipping(const ckpt_dsw_job *job, int release);

/* True if it is there and not zero. */
bool ckpt_dsw_config_flag(const ckpt_state *state, const char *section, const char *key);

/* Values of a file as the release written has them, beside what the source had (NULL: nothing). */
ckpt_value *ckpt_dsw_version(ckpt_dsw_file *f, const ckpt_value *old);

/* The loss scaler: the source's, or one for another dtype. */
ckpt_value *ckpt_dsw_loss_scaler(ckpt_dsw_file *f, const ckpt_value *old);

/* Is the loss scale dynamic? */
ckpt_value *ckpt_dsw_dynamic(ckpt_dsw_file *f, const ckpt_value *old);

/*
 * Say what was rewritten, once per folder: "rewritten: dp_world_size 8 -> 4".  It begins with the
 * value's path: what is not said must be found again (libckpt/claim).
 */
void ckpt_dsw_say(ckpt_dsw_file *f, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* The same of what has no place in the target, and why: "left out: clip_grad: stage 3 ...", a
 * warning where a run goes on differently without it. */
int ckpt_dsw_left_out(const ckpt_dsw_job *job, ckpt_severity severity, const char *fmt, ...)
    CKPT_PRINTF(3, 4);

/*
 * True for members of a model file that DeepSpeed itself writes; all others are what a program gave
 * to save_checkpoint as client_state.
 */
bool ckpt_dsw_is_own(const char *key);

#endif
