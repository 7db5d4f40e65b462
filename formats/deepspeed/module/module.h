/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.h: the model's state_dict: buffers, frozen parameters, 16-bit copies, shared names.
 */
#ifndef CKPT_FORMATS_DS_MODULE_H
#define CKPT_FORMATS_DS_MODULE_H

#include "formats/deepspeed/layout/boxes.h"
#include "formats/deepspeed/layout/layout.h"
#include "formats/deepspeed/module/pipe.h"

CKPT_VEC(ckpt_ds_pairs, ckpt_pair);

/* The model's state_dict, and what each entry of it is. */
typedef struct ckpt_ds_module {
    ckpt_dict dict;        /* model's "module" */
    ckpt_ds_index by_name; /* the same, sorted */
    uint8_t *seen;         /* per entry: what it is; 0: not accounted for */
    bool layered;          /* put together from the files of a pipeline's layers */
    ckpt_ds_params frozen;
    ckpt_ds_flat *fragment; /* stage 3: frozen.n * world */
    ckpt_ds_pairs tie;      /* AutoEP: second names of routers, as shared_params would have them */
} ckpt_ds_module;

/*
 * Give the model file another module: the entries of `more` behind those that it has (keep), or in
 * their place.  No name may be there twice.
 */
int ckpt_ds_module_set(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_pairs *more,
                       bool keep);

/* Complete the model file's `module` from the files beside it, which must all be there. */
int ckpt_ds_module_gather(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                          const ckpt_ds_pipe *pipe);

/* Find the module's entries, those that are buffers, and the frozen parameters that are listed. */
int ckpt_ds_module_begin(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module);

/* Tell trained, frozen and tied entries apart, given the parameters that are trained. */
int ckpt_ds_module_sort(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module,
                        const ckpt_ds_params *trained);

/*
 * What the run trained in: the dtype of the module's first floating parameter that is trained, as
 * frozen ones may have another; where none is marked so, of the first that is no buffer.  NONE:
 * there is none.
 */
ckpt_dtype ckpt_ds_module_dtype(const ckpt_ds_module *module);

/* Free what is noted about the entries; they are the model file's. */
void ckpt_ds_module_free(ckpt_ds_module *module);

/* The buffers as tensors of the map. */
int ckpt_ds_module_add_buffers(const ckpt_ds_job *job, ckpt_ds_head *head,
                               const ckpt_ds_module *module);

/* Frozen parameters, listed or left over, unless they are to be left out (no_frozen). */
int ckpt_ds_module_add_frozen(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module);

/* Tied names; their owners must be there. */
int ckpt_ds_module_add_aliases(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module);

/* Say what about the module's copies is not as in other runs. */
int ckpt_ds_module_note(const ckpt_ds_job *job, const ckpt_ds_head *head);

/* Add one tensor of a shard under a name. */
int ckpt_ds_module_add(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_text *name,
                       const ckpt_tensor_value *v, ckpt_role role, ckpt_tensor **out);

/* The 16-bit copy of a parameter as its twin. */
int ckpt_ds_module_twin(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                        ckpt_tensor *t);

/* ---- autoep.c ---- */

/* Find the second names that AutoEP gives its routers. */
int ckpt_ds_autoep_ties(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module);

/*
 * Give the map's tensors of AutoEP's layers the hub's names; second names of routers go.  For
 * weights alone: a training state is about DeepSpeed's names.
 */
int ckpt_ds_autoep_hub(const ckpt_ds_job *job, const ckpt_ds_head *head,
                       const ckpt_ds_module *module);

/* ---- frozen.c: stage 3 ---- */

/* Take in one rank's fragments of the frozen parameters. */
int ckpt_ds_frozen_read(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module,
                        ckpt_ds_shard *s);

/* Give a frozen parameter its elements, from each rank's fragment. */
int ckpt_ds_frozen_back(const ckpt_ds_job *job, const ckpt_ds_head *head,
                        const ckpt_ds_module *module, size_t frozen, ckpt_tensor *t);

#endif
