/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.h: declares the types and functions shared by the files that read stage 0; private to them.
 *
 *     stage0.c reads the module's entries, ties and masters, and adds the weights to the map
 *     name.c   matches unnamed masters and states to parameters
 *     muon.c   does the same for Muon's groups, which are sorted by size
 *     optim.c  reads optimizer state, step counts, and groups for writers
 */
#ifndef CKPT_FORMATS_DS_ENTRY_H
#define CKPT_FORMATS_DS_ENTRY_H

#include "formats/deepspeed/module/module.h"

#define CKPT_DSU_NONE UINT32_MAX

/* An entry of the module that is not a buffer. */
typedef struct ckpt_dsu_entry {
    const ckpt_pair *pair;
    const ckpt_tensor_value *copy;
    size_t owner;   /* entry with the same elements; own index if not tied */
    uint32_t group; /* optimizer group; CKPT_DSU_NONE: no group, or unknown */
    uint64_t slot;  /* fused: element offset in the group's flat tensor; else index in its list */
    size_t state;   /* index in the optimizer's `state`; SIZE_MAX: no state */
    double step;    /* step count of its state; fused: of its group */
    bool has_step;
} ckpt_dsu_entry;

CKPT_VEC(ckpt_dsu_entries, ckpt_dsu_entry);

/* A number in the optimizer's `state` dict. */
typedef struct ckpt_dsu_number {
    int64_t number;
    size_t at;    /* index in `state` */
    bool claimed; /* a group lists the number */
} ckpt_dsu_number;

CKPT_VEC(ckpt_dsu_numbers, ckpt_dsu_number);

typedef struct ckpt_dsu {
    ckpt_ds_job *job;
    ckpt_ds_head *head;
    ckpt_ds_module *module;
    ckpt_dsu_entries entry; /* in module order */
    const char *path;       /* the file with the optimizer, for messages */
    const ckpt_value *optimizer;
    ckpt_seq masters;        /* per group a list, or (fused) a flat tensor; n 0: fp32 run */
    ckpt_seq param_groups;   /* `param_groups` of the optimizer's own dict */
    ckpt_dict states;        /* `state` of that dict: {number: {exp_avg: tensor, ...}} */
    ckpt_dsu_numbers number; /* `states`, sorted by number */
    ckpt_dsu_entry **sorted; /* sorted by group and slot; entries without group last */
    size_t n_groups;
    bool fused;
    bool named;   /* group and slot of every parameter are certain */
    size_t doubt; /* number of entries without a certain group and slot */
} ckpt_dsu;

/* ---- entry.c ---- */

/* Returns whether both tensors have the same shape. */
bool ckpt_dsu_same_shape(const ckpt_tensor_value *a, const ckpt_tensor_value *b);

/* Returns a tensor value's number of elements; overflow cannot occur, because the file's reader has
 * checked the shape. */
uint64_t ckpt_dsu_elems(const ckpt_tensor_value *t);

/* Returns whether the entry is a parameter of a known group. */
bool ckpt_dsu_is_trained(const ckpt_dsu *u, const ckpt_dsu_entry *e);

/* Returns the dict with 'state' and 'param_groups', in the model file or in a copy of its tree. */
const ckpt_value *ckpt_dsu_base(const ckpt_value *optimizer);

/* Sorts the optimizer's states by number. */
int ckpt_dsu_index(ckpt_dsu *u);

/* Returns the index in `states` for a slot of a group; SIZE_MAX if it has no state. */
size_t ckpt_dsu_state_at(ckpt_dsu *u, size_t group, uint64_t slot);

/* ---- name.c ---- */

/* Finds the group and slot of every entry; uncertain entries remain without, and `doubt` counts
 * them. */
int ckpt_dsu_name(ckpt_dsu *u);

/* ---- muon.c ---- */

/* Returns whether the group's list is sorted by matrix size. */
bool ckpt_dsu_is_muon(const ckpt_dsu *u, size_t group);

/* Returns false if the group is one half of Muon and the parameter belongs to the other half. */
bool ckpt_dsu_muon_takes(const ckpt_dsu *u, size_t group, const ckpt_dsu_entry *e);

/*
 * Finds the items of a sorted list that have an entry's shape, which are adjacent: *n items from
 * *first on.
 */
void ckpt_dsu_muon_run(ckpt_dsu *u, size_t group, const ckpt_dsu_entry *e, uint64_t *first,
                       uint64_t *n);

/* ---- optim.c ---- */

/* Adds optimizer state to the map, and the run's state for writers. */
int ckpt_dsu_add_optimizer(ckpt_dsu *u);

#endif
