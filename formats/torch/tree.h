/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: building the tree of a torch file that is to be written.
 *
 * Nodes, storages, views of them, and copies of trees that another map holds, their tensors
 * included.  Between begin and end one file is built in a scratch arena; end pickles it, fixes its
 * place, and frees the tree, so that a folder of thousands of files never has two trees in memory.
 *
 * Errors stick: makers return NULL after the first failure, and take NULL, so that only end need be
 * checked.
 */
#ifndef CKPT_FORMATS_TORCH_TREE_H
#define CKPT_FORMATS_TORCH_TREE_H

#include "libckpt/map/map.h"

typedef struct ckpt_torch_copied { /* a storage of the other map, as this file has it */
    const ckpt_storage *from;
    ckpt_storage *to;
} ckpt_torch_copied;

CKPT_VEC(ckpt_torch_copies, ckpt_torch_copied);

typedef struct ckpt_torch_tree {
    ckpt_map *to;         /* the target map; its tensors get their donors and extents here */
    const ckpt_map *from; /* that copied trees belong to */
    uint32_t file;        /* in to->files */
    ckpt_arena *scratch;
    ckpt_torch_copies copied;
    bool drop_objects; /* copies leave out objects of unknown classes */
    int rc;
    ckpt_err *err;
} ckpt_torch_tree;

/* Begin a torch file of that name (relative to the target folder) in `to`. */
int ckpt_tt_begin(ckpt_torch_tree *t, ckpt_map *to, const ckpt_map *from, const char *name,
                  ckpt_err *err);

/* Begin one more archive in a torch file of `to`, behind those that it has. */
int ckpt_tt_more(ckpt_torch_tree *t, ckpt_map *to, const ckpt_map *from, uint32_t file,
                 ckpt_err *err);

/* Pickle the tree and place the file; frees the scratch arena, also on failure. */
int ckpt_tt_end(ckpt_torch_tree *t, ckpt_value *root);

/* What a file was made of: it, and the target's sources and tensors that came with it. */
typedef struct ckpt_torch_made {
    uint32_t file;
    size_t source, n_sources, tensor, n_tensors;
} ckpt_torch_made;

/*
 * One more file like one that was made: the same pickle over records of its own, which are filled
 * from the same donors.
 */
int ckpt_tt_again(ckpt_map *to, const ckpt_torch_made *made, const char *name,
                  ckpt_torch_made *again, ckpt_err *err);

/* ---- nodes ---- */

ckpt_value *ckpt_tt_new(ckpt_torch_tree *t, ckpt_value_kind kind); /* an empty container, or None */
ckpt_value *ckpt_tt_int(ckpt_torch_tree *t, int64_t i);
ckpt_value *ckpt_tt_float(ckpt_torch_tree *t, double f);
ckpt_value *ckpt_tt_bool(ckpt_torch_tree *t, bool b);
ckpt_value *ckpt_tt_str(ckpt_torch_tree *t, const char *s);
ckpt_value *ckpt_tt_global(ckpt_torch_tree *t, const char *module, const char *name);

/* module.name(*args) with a state given by BUILD (or NULL). */
ckpt_value *ckpt_tt_object(ckpt_torch_tree *t, const char *module, const char *name,
                           ckpt_object_form form, ckpt_value *args, ckpt_value *state);

/* Append to a container; put replaces the value of a key that is there. */
void ckpt_tt_add(ckpt_torch_tree *t, ckpt_value *seq, ckpt_value *item);
void ckpt_tt_put(ckpt_torch_tree *t, ckpt_value *dict, const char *key, ckpt_value *value);
void ckpt_tt_put_at(ckpt_torch_tree *t, ckpt_value *dict, ckpt_value *key, ckpt_value *value);

/* ---- tensors ---- */

/* A record of n elements; bytes that no target tensor covers are zero. */
ckpt_storage *ckpt_tt_storage(ckpt_torch_tree *t, ckpt_dtype dtype, uint64_t n);

/* A contiguous view of a storage from element `offset` on. */
ckpt_value *ckpt_tt_view(ckpt_torch_tree *t, ckpt_storage *s, uint64_t offset,
                         const uint64_t *shape, uint32_t ndim);

/* A 1-axis view. */
ckpt_value *ckpt_tt_flat(ckpt_torch_tree *t, ckpt_storage *s, uint64_t offset, uint64_t n);

/* A tensor of its own storage that takes the values of `donor`, converted to dtype; of zeros where
 * there is no donor. */
ckpt_value *ckpt_tt_whole(ckpt_torch_tree *t, const ckpt_tensor *donor, ckpt_dtype dtype);
ckpt_value *ckpt_tt_zeros(ckpt_torch_tree *t, ckpt_dtype dtype, const uint64_t *shape,
                          uint32_t ndim);

/* What a target tensor is filled with. */
typedef struct ckpt_torch_fill {
    const char *kind; /* makes its name unique: "fp32", "exp_avg" */
    const ckpt_tensor *donor;
    ckpt_dtype dtype; /* as written */
} ckpt_torch_fill;

/* A tensor of the target that takes the values of the donor; its n extents lie in storages'
 * sources. */
int ckpt_tt_fill(ckpt_map *to, const ckpt_torch_fill *fill, const ckpt_extent *extent, uint32_t n,
                 ckpt_err *err);

/* The same, with extents that follow a rule. */
int ckpt_tt_fill_cut(ckpt_map *to, const ckpt_torch_fill *fill, const ckpt_cut *cut, ckpt_err *err);

/* ---- trees of the other map ---- */

/* A copy of a tree of t->from: what is shared stays shared, tensors' records are copied whole. */
ckpt_value *ckpt_tt_copy(ckpt_torch_tree *t, const ckpt_value *v);

/* Append to a LIST the full names of all classes in a tree that are unknown here, once each. */
int ckpt_tt_unknown(const ckpt_value *v, ckpt_value *names, ckpt_arena *arena, ckpt_err *err);

#endif
