/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.h: the interface between the files of the ZeRO writer (private to it).
 *
 *     write.c    the driver's scatter: settings, files of every rank, `latest`
 *     release.c  keys of each DeepSpeed release, and how it cuts padding
 *     layout.c   distributes parameters over groups (stages 1, 2) or sub-groups (3)
 *     form.c     the form of stage 0's optimizer; frozen parameters
 *     model.c    makes the tree of a model file
 *     optim.c    makes the tree of an optimizer file
 *     stage0.c   stage 0: the optimizer inside the model file
 *     experts.c  files of experts, if the source has none to copy
 *     stored.c   finds AutoEP's experts that are fused into one DeepSpeed parameter
 *     autoep.c   distributes experts under AutoEP
 *     bnb.c      8-bit moments of bitsandbytes, split at block bounds
 *     muon.c     the order of Muon's matrices; momentum that is not partitioned
 *     config.c   values that depend on the world: ds_config, counters
 *
 * The writer fixes job and settings (how) first; later steps only read them.  The layout is pure
 * arithmetic.  Each file is a tree made from these three, and records its storages.  The target's
 * tensors fill the storages at the end.
 *
 * The arithmetic is the inverse of the reader's (libckpt/map/zero_*.h).  The source's trees are the
 * templates: values that depend on world, stage or dtype are made anew, others are copied.
 */
#ifndef CKPT_FORMATS_DS_WRITE_H
#define CKPT_FORMATS_DS_WRITE_H

#include <assert.h>

#include "formats/torch/tree.h"
#include "formats/training/deepspeed_keys.h"
#include "formats/training/ds_config.h"
#include "formats/training/write_job.h"
#include "libckpt/format.h"
#include "libckpt/map/state.h"
#include "libckpt/map/zero_param.h"

enum { CKPT_DS_NEWEST = 19008 }; /* 0.19.8 */

/* The content of a column. */
typedef enum ckpt_dsw_of {
    CKPT_DSW_VALUES, /* the values themselves */
    CKPT_DSW_CODES,  /* codes of 8-bit moments */
    CKPT_DSW_SCALES  /* scales for the codes in the previous column */
} ckpt_dsw_of;

/* A column: the masters of a part, or one kind of its optimizer state. */
typedef struct ckpt_dsw_column {
    const char *key;  /* "exp_avg"; NULL: the masters */
    ckpt_dtype dtype; /* dtype in the file */
    bool zeros;       /* the source has no values to copy, so zeros are written */
    ckpt_dsw_of of;   /* content of the column */
    bool whole;       /* a rank has all of each parameter that its slice touches, as Muon does */
} ckpt_dsw_column;

CKPT_VEC(ckpt_dsw_columns, ckpt_dsw_column);

/*
 * A flat group (stages 1, 2), or a sub-group (stage 3).  With expert parallelism there is one part
 * per expert-parallel rank (lane).
 */
typedef struct ckpt_dsw_part {
    uint32_t group;            /* index of the parameter group */
    uint32_t lane;             /* ranks lane, lane + n_lanes ... hold the part */
    uint32_t world;            /* number of these ranks */
    size_t n;                  /* number of parameters */
    const ckpt_tensor **param; /* in layout order; in the scratch arena */
    size_t *origin;            /* origin[i]: index in the group of the layout's parameter i */
    /*
     * AutoEP: number of parameters from this one on that are fused into one DeepSpeed parameter; 0
     * for the others of them.  NULL: none are fused
     */
    uint32_t *one;
    uint64_t *pad;            /* padding elements after each parameter (parameter_alignment) */
    uint64_t *at;             /* stage 3: element offset in the sub-group */
    uint64_t slice;           /* elements per rank */
    ckpt_zero_flat flat;      /* stages 1, 2 */
    ckpt_zero_flat plain;     /* without round_robin_gradients, for param_slice_mappings */
    uint32_t intervals;       /* stage 1 of 0.3.x: slices per rank; else 1 */
    size_t column, n_columns; /* range of the part's columns in the layout's list */
    size_t slot;              /* index of the part's first record among a rank's records */
} ckpt_dsw_part;

CKPT_VEC(ckpt_dsw_parts, ckpt_dsw_part);

/* The settings, fixed from target and source before the layout. */
typedef struct ckpt_dsw_how {
    int stage, from_stage;
    uint32_t world;
    int release, from_release;
    ckpt_dtype dtype;     /* training dtype */
    bool new_dtype;       /* differs from the source's */
    bool fresh;           /* moments become zero */
    bool ranked;          /* partitions equal the source's, so per-rank values are kept */
    bool client;          /* each rank keeps its own values of the training program */
    bool layers, experts; /* parts of the module are separate files, which are copied */
    bool made;            /* the writer makes files of experts, because the source has none */
    bool legacy, lean, bf16_optimizer, round_robin, aligned;
    uint64_t sub_group_size, interval;
    uint32_t ep; /* AutoEP: expert-parallel size; 0 without AutoEP */
} ckpt_dsw_how;

/* The layout: parts with their columns. */
typedef struct ckpt_dsw_layout {
    ckpt_arena *scratch;
    const ckpt_tensor **given; /* the state's parameters, in the order of the target's optimizer */
    ckpt_dsw_parts part;
    ckpt_dsw_columns column;
    size_t n_slots;      /* flat tensors in one rank's optimizer file */
    ckpt_tensors frozen; /* stage 3: parameters partitioned over the model files */
    /* by tensor of the map: 1 + the part with it as a parameter, or 0 */
    uint32_t *home;
    size_t *home_at; /* and its index in that part */
    /* by tensor of the map: DeepSpeed's number (named_parameters order), or -1 */
    int64_t *ds_id;
} ckpt_dsw_layout;

/* The storages of all ranks' files, recorded while the files are made. */
typedef struct ckpt_dsw_records {
    uint32_t *record; /* world * per_rank */
    size_t per_rank;
    uint32_t *fragment; /* storages of frozen fragments: world * frozen.n */
    /* stage 3: the model file of rank 1; later ranks' files have the same pickle */
    ckpt_torch_made second;
} ckpt_dsw_records;

/* The current file. */
typedef struct ckpt_dsw_file {
    const ckpt_train_job *job;
    const ckpt_dsw_how *how;
    const ckpt_dsw_layout *layout;
    ckpt_dsw_records *records;
    uint32_t rank;
    ckpt_torch_tree t;
} ckpt_dsw_file;

/* ---- write.c ---- */

/*
 * Leave trained parameters without elements out of job->state, and report it, because ZeRO counts
 * them as frozen from release 0.19.8 on.
 */
int ckpt_dsw_put_aside(ckpt_train_job *job, const ckpt_dsw_how *how);

/* ---- form.c ---- */

/* The form of stage 0's optimizer. */
typedef enum ckpt_dsw_stage0_form {
    CKPT_DSW_ZERO, /* a ZeRO stage: separate optimizer files */
    CKPT_DSW_PLAIN,
    CKPT_DSW_LISTED,
    CKPT_DSW_FLAT
} ckpt_dsw_stage0_form;

/* The form of the target: the same as the source's. */
ckpt_dsw_stage0_form ckpt_dsw_form_of(const ckpt_train_job *job, const ckpt_dsw_how *how);

/* True for a parameter of this rank that is written as frozen. */
bool ckpt_dsw_is_frozen(const ckpt_train_job *job, const ckpt_tensor *t);

/* ---- release.c ---- */

/* Parse "0.12.6"; NULL means a release before 0.4.0, which stored no version.  -1: not a
 * version. */
int ckpt_dsw_release(const char *version);

/* Makes the value of a key; old is the template's value, or NULL.  It may return NULL without an
 * error to leave the key out. */
typedef ckpt_value *(*ckpt_dsw_make)(ckpt_dsw_file *f, const ckpt_value *old);

typedef struct ckpt_dsw_key {
    const char *key;
    int since, until;   /* first release with the key, and first without it again (0: none) */
    ckpt_dsw_make make; /* NULL: copy; None if the template lacks it */
} ckpt_dsw_key;

/*
 * True if the source's files have the target's release, so their keys can be copied.  Values from
 * another framework have no DeepSpeed layout.
 */
bool ckpt_dsw_follows(const ckpt_train_job *job, const ckpt_dsw_how *how);

/*
 * Make a dict by a table of keys (ends with a NULL key).  follow: take the template's keys;
 * otherwise the release's keys, then the template's keys that are not in the table.
 */
ckpt_value *ckpt_dsw_dict(ckpt_dsw_file *f, const ckpt_value *old, const ckpt_dsw_key *table,
                          bool follow);

/* Elements of a rank's slice that are saved; releases cut padding in different ways. */
uint64_t ckpt_dsw_saved(const ckpt_dsw_how *how, const ckpt_dsw_part *p, uint32_t index);

/* The rank's padding as stored in group_paddings. */
uint64_t ckpt_dsw_padding(const ckpt_dsw_how *how, const ckpt_dsw_part *p, uint32_t index);

/* ---- layout.c ---- */

/*
 * Compute groups, parts, columns and records of the target.  After a failure too the caller must
 * call ckpt_dsw_layout_free.
 */
int ckpt_dsw_layout_new(const ckpt_train_job *job, const ckpt_dsw_how *how,
                        ckpt_dsw_layout *layout);

/* Free a layout, also after ckpt_dsw_layout_new has failed. */
void ckpt_dsw_layout_free(ckpt_dsw_layout *layout);

/* Allocate the records of all ranks. */
int ckpt_dsw_records_new(const ckpt_train_job *job, const ckpt_dsw_how *how,
                         const ckpt_dsw_layout *layout, ckpt_dsw_records *records);

/* Free the records; after a failure too. */
void ckpt_dsw_records_free(ckpt_dsw_records *records);

/* True if a rank holds a part; *index is its number among the part's ranks. */
bool ckpt_dsw_holds(const ckpt_dsw_part *p, const ckpt_group *group, uint32_t rank,
                    uint32_t *index);

/*
 * The name of a part's parameter in files: experts are numbered within their rank, and fused
 * experts of AutoEP have the name "<prefix>.w1".
 */
const char *ckpt_dsw_stored_name(const ckpt_train_job *job, const ckpt_dsw_layout *layout,
                                 const ckpt_dsw_part *p, size_t i);

/* The tensor to read for values of a dtype: the checkpoint's copy of that dtype, or the masters,
 * which are rounded. */
const ckpt_tensor *ckpt_dsw_donor(const ckpt_tensor *t, ckpt_dtype d);

/* The record of a part's column (and interval) in a rank's file. */
static inline uint32_t *ckpt_dsw_record(const ckpt_dsw_records *records, uint32_t rank,
                                        const ckpt_dsw_part *p, size_t column, uint32_t interval)
{
    assert(records->record && column < p->n_columns && interval < p->intervals);
    return &records->record[rank * records->per_rank + p->slot + interval * p->n_columns + column];
}

/*
 * Elements of a column's record on rank `index` of the part; all are saved if the column is not
 * partitioned.
 */
uint64_t ckpt_dsw_size(const ckpt_dsw_layout *layout, const ckpt_dsw_part *p, size_t column,
                       uint32_t index);

/* Make the target tensors of all flat tensors and frozen fragments; all ranks' files must be
 * made. */
int ckpt_dsw_fill(const ckpt_train_job *job, const ckpt_dsw_how *how, const ckpt_dsw_layout *layout,
                  const ckpt_dsw_records *records);

/* ---- muon.c ---- */

/*
 * Make layout->given.  Below stage 3 MuonWithAuxAdam sorts its matrices by size.  In stage 3 it
 * does too, but under zero.Init parameters have no shape to sort by, so the source's order is kept.
 */
int ckpt_dsw_given(const ckpt_train_job *job, const ckpt_dsw_how *how, ckpt_dsw_layout *layout);

/*
 * True for a group's state that cannot be zeroed key by key: lists, dicts, and bitsandbytes'
 * moments, because the code of zero differs between its maps.  The writer leaves all of it out, and
 * the optimizer creates it.
 */
bool ckpt_dsw_begins_whole(const ckpt_group *g);

/* True if the state of this key is not partitioned. */
bool ckpt_dsw_is_whole(const ckpt_train_job *job, const ckpt_dsw_how *how, const ckpt_group *g,
                       const char *key);

/* ---- bnb.c ---- */

/*
 * Fail for bitsandbytes' two moments of 32 bits per parameter, as files of torch have them: in
 * ZeRO's files a reader takes them for Adam's moments, under other names.
 */
int ckpt_dsw_bnb_plain(const ckpt_train_job *job);

/*
 * How many bits the moments of a part have, of a group that bitsandbytes saved (group->stored): 8,
 * 32; 0: the part has no elements.
 *
 * Errors  CKPT_EUNSUPPORTED: some moments have 8 bits and others 32, or the target's form cannot
 *         keep such state
 */
int ckpt_dsw_bnb_bits(const ckpt_train_job *job, const ckpt_dsw_how *how, const ckpt_dsw_part *p,
                      uint32_t *bits);

/*
 * Fill the records of all ranks with the codes and scales of a part.
 *
 * Errors  CKPT_EUNSUPPORTED: a block of the target would have elements of two blocks of the source
 */
int ckpt_dsw_bnb_fill(const ckpt_train_job *job, const ckpt_dsw_how *how,
                      const ckpt_dsw_layout *layout, const ckpt_dsw_records *records,
                      const ckpt_dsw_part *p);

/* ---- experts.c ---- */

/* True if the source has parameters of experts. */
bool ckpt_dsw_has_experts(const ckpt_train_job *job);

/* Write a file for each expert. */
int ckpt_dsw_expert_files(const ckpt_train_job *job, const ckpt_dsw_how *how,
                          const ckpt_dsw_layout *layout);

/* Make num_experts of the model file: a list over the layers with experts. */
ckpt_value *ckpt_dsw_num_experts(ckpt_dsw_file *f);

/* ---- stored.c ---- */

/* Bytes of an AutoEP expert's name before its number; 0 for other names. */
size_t ckpt_dsw_autoep_prefix(const ckpt_state *state, const ckpt_tensor *t);

/* Number of parameters, from index i of a group's first lane on, that are fused into one. */
size_t ckpt_dsw_autoep_run(const ckpt_state *state, const ckpt_group *g, size_t i);

/* Set p->one: find the fused parameters of a part. */
int ckpt_dsw_autoep_part(const ckpt_train_job *job, ckpt_arena *scratch, ckpt_dsw_part *p);

/* Number of parameters from i on that are fused into one; 0 if i is not the first of them. */
static inline uint32_t ckpt_dsw_one(const ckpt_dsw_part *p, size_t i)
{
    assert(i < p->n);
    return p->one ? p->one[i] : 1;
}

/* True if a parameter of a part is an expert of AutoEP. */
bool ckpt_dsw_autoep_is(const ckpt_train_job *job, const ckpt_dsw_part *p, size_t i);

/* Compute the order of round_robin_gradients, in which fused parameters move together. */
int ckpt_dsw_autoep_order(const ckpt_train_job *job, ckpt_arena *scratch, const ckpt_group *g,
                          uint32_t world, uint64_t *order);

/* "<prefix>.w1" of "<prefix>.w1.5"; NULL: no memory. */
const char *ckpt_dsw_autoep_name(ckpt_arena *scratch, const char *name);

/* True if the world and every layer's experts can be divided by `ep`. */
bool ckpt_dsw_autoep_fits(const ckpt_state *state, uint32_t world, uint32_t ep);

/*
 * Distribute a group of experts over `ep` expert-parallel ranks (lanes).  Experts keep their order
 * in the layer: lane e gets those from e * experts / ep on of every parameter.
 *
 * to      the group with its new lanes; `first` does not change
 * param   [from->n * from->n_lanes] its parameters, lane by lane
 */
void ckpt_dsw_autoep_lanes(const ckpt_state *s, const ckpt_group *from, uint32_t ep, ckpt_group *to,
                           ckpt_tensor **param);

/* ---- autoep.c ---- */

/*
 * Distribute AutoEP's experts over the target's ranks; sets job->state and how->ep.
 *
 * Errors   CKPT_EUNSUPPORTED: frozen experts, or a release without AutoEP (CKPT_EUSAGE if the user
 * asked
 *          for it)
 */
int ckpt_dsw_autoep_deal(ckpt_train_job *job, ckpt_dsw_how *how);

/* Join the experts of all ranks in job->state, because universal checkpoints do not depend on
 * ranks. */
int ckpt_dsw_autoep_whole(ckpt_train_job *job);

/* Write a file for each expert (stages 1 and 2). */
int ckpt_dsw_autoep_files(const ckpt_train_job *job, const ckpt_dsw_how *how);

/* Make ds_autoep_layers and universal_checkpoint_info of a rank's model file. */
ckpt_value *ckpt_dsw_autoep_layers(ckpt_dsw_file *f, const ckpt_value *old);
ckpt_value *ckpt_dsw_autoep_info(ckpt_dsw_file *f, const ckpt_value *old);

/* Make ds_zero_partition_groups of a rank's optimizer file (stage 3); NULL without AutoEP. */
ckpt_value *ckpt_dsw_autoep_groups(ckpt_dsw_file *f, const ckpt_value *old);

/* ---- model.c, optim.c ---- */

/* Make one rank's model file under a name in the target. */
int ckpt_dsw_model_file(const ckpt_train_job *job, const ckpt_dsw_how *how,
                        const ckpt_dsw_layout *layout, ckpt_dsw_records *records, uint32_t rank,
                        const char *name);

/* Make one rank's optimizer file (stages 1 to 3). */
int ckpt_dsw_optim_file(const ckpt_train_job *job, const ckpt_dsw_how *how,
                        const ckpt_dsw_layout *layout, ckpt_dsw_records *records, uint32_t rank,
                        const char *name);

/* Make param_shapes in the release's form, for the model or the optimizer file. */
ckpt_value *ckpt_dsw_param_shapes(ckpt_dsw_file *f, const ckpt_value *old);

/* ---- stage0.c ---- */

/*
 * Report values that stage 0 stores with its optimizer but a ZeRO stage cannot store
 * (ckpt_train_left_out). clip: the target stores clip_grad.
 */
int ckpt_dsw_stage0_left_out(const ckpt_train_job *job, const ckpt_dsw_how *how, bool clip);

/* Make the model file's `optimizer`; None under ZeRO. */
ckpt_value *ckpt_dsw_stage0(ckpt_dsw_file *f, const ckpt_value *old);

/* ---- model.c ---- */

/*
 * The index of the map's tensor that entry `self` of the source's module, which is not in the map,
 * is a second name of: both view the same elements.  SIZE_MAX: none, or unknown.
 */
size_t ckpt_dsw_second(const ckpt_train_job *job, ckpt_dict module, uint64_t self);

/* ---- config.c ---- */

/* Make ds_config with the values rewritten that depend on world, stage and dtype. */
ckpt_value *ckpt_dsw_config(ckpt_dsw_file *f, const ckpt_value *old);

/* Report at which norm DeepSpeed of this release will clip gradients of another framework's run. */
int ckpt_dsw_clipping(const ckpt_train_job *job, int release);

/* Make values in the release's form from the source's value (NULL: none). */
ckpt_value *ckpt_dsw_version(ckpt_dsw_file *f, const ckpt_value *old);

/* Make the loss scaler: the source's, or one for another dtype. */
ckpt_value *ckpt_dsw_loss_scaler(ckpt_dsw_file *f, const ckpt_value *old);

/* Make dynamic_loss_scale. */
ckpt_value *ckpt_dsw_dynamic(ckpt_dsw_file *f, const ckpt_value *old);

/*
 * Report a rewritten value, once per folder: "rewritten: dp_world_size 8 -> 4".  The text must
 * begin with the value's path, because libckpt/readback looks for every unreported value in the
 * output.
 */
void ckpt_dsw_say(ckpt_dsw_file *f, const char *fmt, ...) CKPT_PRINTF(2, 3);

#endif
