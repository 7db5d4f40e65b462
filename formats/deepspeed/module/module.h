/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.h: reads buffers, frozen parameters, 16-bit copies and tied names from the model's
 * state_dict.
 */
#ifndef CKPT_FORMATS_DS_MODULE_H
#define CKPT_FORMATS_DS_MODULE_H

#include "formats/deepspeed/layout/boxes.h"
#include "formats/deepspeed/layout/layout.h"
#include "formats/deepspeed/module/pipe.h"

CKPT_VEC(ckpt_ds_pairs, ckpt_pair);

/* The model's state_dict with the class of each entry. */
typedef struct ckpt_ds_module {
    ckpt_dict dict;        /* `module` of the model file */
    ckpt_ds_index by_name; /* the same, sorted */
    uint8_t *seen;         /* class of each entry; 0: unclassified */
    bool layered;          /* assembled from a pipeline's layer files */
    ckpt_ds_params frozen;
    ckpt_ds_flat *fragment; /* stage 3: frozen.n * world */
    ckpt_ds_pairs tie;      /* AutoEP: router names to tie, as in shared_params */
} ckpt_ds_module;

/*
 * Sets the model file's module to the entries of `more`; with `keep` these follow the present
 * entries instead of replacing them. A name may occur only once.
 */
int ckpt_ds_module_set(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_pairs *more,
                       bool keep);

/*
 * Completes the model file's `module` from the layer and expert files next to it, all of which must
 * be present.
 */
int ckpt_ds_module_gather(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                          const ckpt_ds_pipe *pipe);

/* Indexes the module's entries, marks the buffers and reads the list of frozen parameters. */
int ckpt_ds_module_begin(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module);

/* Separates trained, frozen and tied entries by the list of trained parameters. */
int ckpt_ds_module_sort(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module,
                        const ckpt_ds_params *trained);

/*
 * Returns the run's training dtype: the dtype of the module's first trained floating parameter,
 * because frozen parameters may have another. Without a trained entry it is the dtype of the first
 * floating tensor that is not a buffer. NONE if none exists.
 */
ckpt_dtype ckpt_ds_module_dtype(const ckpt_ds_module *module);

/* Frees the classes and the index; the entries belong to the model file. */
void ckpt_ds_module_free(ckpt_ds_module *module);

/* Adds the buffers to the map. */
int ckpt_ds_module_add_buffers(const ckpt_ds_job *job, ckpt_ds_head *head,
                               const ckpt_ds_module *module);

/* Adds frozen parameters, listed or unlisted, unless the caller set skip_frozen. */
int ckpt_ds_module_add_frozen(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module);

/* Adds tied names; the map must have their owners already. */
int ckpt_ds_module_add_aliases(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module);

/* Notes options of the run that make the module's copies differ from the masters. */
int ckpt_ds_module_note(const ckpt_ds_job *job, const ckpt_ds_head *head);

/* Adds one tensor of a shard to the map. */
int ckpt_ds_module_add(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_text *name,
                       const ckpt_tensor_value *v, ckpt_role role, ckpt_tensor **out);

/* Attaches the module's 16-bit copy to a parameter as its twin, to be compared with it. */
int ckpt_ds_module_twin(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                        ckpt_tensor *t);

/*
 * Checks that the module has each parameter of param_shapes, for readers that take the weights from
 * the module alone.
 */
int ckpt_ds_module_has_all(ckpt_ds_job *job, const ckpt_ds_head *head,
                           const ckpt_ds_module *module);

/* ---- autoep.c ---- */

/* Finds the second names that AutoEP gives its routers. */
int ckpt_ds_autoep_ties(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module);

/*
 * Renames tensors of AutoEP's layers to the hub's names and drops second names of routers. The
 * reader calls this only for weights, because a training state needs DeepSpeed's names.
 */
int ckpt_ds_autoep_hub(const ckpt_ds_job *job, const ckpt_ds_head *head,
                       const ckpt_ds_module *module);

/* ---- frozen.c ---- */

/*
 * Reports an entry of a file's frozen_param_fragments that frozen_param_shapes lacks: DeepSpeed
 * writes both with the same names.
 */
int ckpt_ds_frozen_unlisted(ckpt_ds_job *job, const ckpt_ds_module *module, const char *path,
                            ckpt_dict fragments);

/* Stage 3: reads one rank's fragments of the frozen parameters. */
int ckpt_ds_frozen_read(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module,
                        ckpt_ds_shard *s);

/* Stage 3: maps a frozen parameter's elements to the ranks' fragments. */
int ckpt_ds_frozen_back(const ckpt_ds_job *job, const ckpt_ds_head *head,
                        const ckpt_ds_module *module, size_t frozen, ckpt_tensor *t);

#endif
