/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.h: what the files that read stage 0 share.  Not for anyone else.
 *
 *     stage0.c        the module's entries, ties and masters; the map's weights
 *     name.c   which parameter a master or a state without a name belongs to
 *     muon.c   the same of Muon's groups, which are sorted by size
 *     optim.c  optimizer state, step counts, groups for writers
 */
#ifndef CKPT_FORMATS_DS_ENTRY_H
#define CKPT_FORMATS_DS_ENTRY_H

#include "formats/deepspeed/module/module.h"

#define CKPT_DSU_NONE UINT32_MAX

/* An entry of the module that is not a buffer. */
typedef struct ckpt_dsu_entry {
    const ckpt_pair *pair;
    const ckpt_tensor_value *copy;
    size_t owner;   /* index of the entry whose elements it shares; its own index otherwise */
    uint32_t group; /* of the optimizer; CKPT_DSU_NONE: in none, or not known */
    uint64_t slot;  /* fused: element offset in the group's flat tensor; else place in its list */
    size_t state;   /* of its state in the optimizer's `state`; SIZE_MAX: it has none */
    double step;    /* that its state counts; of fused runs, its group's */
    bool has_step;
} ckpt_dsu_entry;

CKPT_VEC(ckpt_dsu_entries, ckpt_dsu_entry);

/* The state of a number, as the optimizer's `state` lists it. */
typedef struct ckpt_dsu_number {
    int64_t number;
    size_t at;    /* in `state` */
    bool claimed; /* a group lists the number */
} ckpt_dsu_number;

CKPT_VEC(ckpt_dsu_numbers, ckpt_dsu_number);

typedef struct ckpt_dsu {
    ckpt_ds_job *job;
    ckpt_ds_head *head;
    ckpt_ds_module *module;
    ckpt_dsu_entries entry; /* in module order */
    const ckpt_value *optimizer;
    ckpt_seq masters;        /* per group a list, or (fused) a flat tensor; n 0: a plain fp32 run */
    ckpt_seq param_groups;   /* of the optimizer's own dict */
    ckpt_dict states;        /* {number: {exp_avg: tensor, ...}}, of the same */
    ckpt_dsu_numbers number; /* the same by number, ascending */
    ckpt_dsu_entry **sorted; /* entries by group and slot, those of no group last */
    size_t n_groups;
    bool fused;
    bool named;   /* it is known for every parameter which group and slot it has */
    size_t doubt; /* entries whose place is not certain */
} ckpt_dsu;

/* ---- entry.c ---- */

/* Equal in every axis. */
bool ckpt_dsu_same_shape(const ckpt_tensor_value *a, const ckpt_tensor_value *b);

/* Elements of a tensor value; its shape was checked when it was read. */
uint64_t ckpt_dsu_elems(const ckpt_tensor_value *t);

/* Is it a parameter of a known group? */
bool ckpt_dsu_is_trained(const ckpt_dsu *u, const ckpt_dsu_entry *e);

/* What holds 'state' and 'param_groups', in the model file or in a copy of its tree. */
const ckpt_value *ckpt_dsu_base(const ckpt_value *optimizer);

/* Index the optimizer's states by number. */
int ckpt_dsu_index(ckpt_dsu *u);

/* Index in `states` of the state of a slot of a group; SIZE_MAX: it has none. */
size_t ckpt_dsu_state_at(ckpt_dsu *u, size_t group, uint64_t slot);

/* ---- name.c ---- */

/* Find the group and slot of every entry; what is not certain is left without, and counted. */
int ckpt_dsu_name(ckpt_dsu *u);

/* ---- muon.c ---- */

/* The group's list is sorted by the sizes of its matrices. */
bool ckpt_dsu_is_muon(const ckpt_dsu *u, size_t group);

/* False: the group is a half of Muon that does not take such a parameter. */
bool ckpt_dsu_muon_takes(const ckpt_dsu *u, size_t group, const ckpt_dsu_entry *e);

/*
 * The items of a sorted list that are shaped like an entry, which stand together: *n of them, from
 * *first on.
 */
void ckpt_dsu_muon_run(ckpt_dsu *u, size_t group, const ckpt_dsu_entry *e, uint64_t *first,
                       uint64_t *n);

/* ---- optim.c ---- */

/* Optimizer state as tensors, and the run as a state for writers. */
int ckpt_dsu_add_optimizer(ckpt_dsu *u);

#endif
