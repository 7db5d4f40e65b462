/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: declares how the tree of a torch output file is built.
 *
 * A tree has nodes, storages, views of storages, and copies of another map's trees with their
 * tensors. Between begin and end one file is built in a scratch arena; end pickles the tree, places
 * the file and frees the tree, so that a folder of thousands of files never needs memory for two
 * trees.
 *
 * The first error is kept: afterwards all makers return NULL, and they accept NULL arguments, so
 * that only the result of end must be checked.
 */
#ifndef CKPT_FORMATS_TORCH_TREE_H
#define CKPT_FORMATS_TORCH_TREE_H

#include "libckpt/map/map.h"

typedef struct ckpt_torch_copied { /* a storage of the other map, and its copy in this file */
    const ckpt_storage *from;
    ckpt_storage *to;
} ckpt_torch_copied;

CKPT_VEC(ckpt_torch_copies, ckpt_torch_copied);

typedef struct ckpt_torch_tree {
    ckpt_map *to;         /* the target map; tensors get donors and extents here */
    const ckpt_map *from; /* the map of the copied trees */
    uint32_t file;        /* index of the file in the target map */
    ckpt_arena *scratch;
    ckpt_torch_copies copied;
    bool drop_objects; /* copies leave out objects of unknown classes */
    int rc;
    ckpt_err *err;
} ckpt_torch_tree;

/* Begin a torch file with a path relative to the target folder. */
int ckpt_tt_begin(ckpt_torch_tree *t, ckpt_map *to, const ckpt_map *from, const char *name,
                  ckpt_err *err);

/* Begin another archive in a torch file, after its last one. */
int ckpt_tt_more(ckpt_torch_tree *t, ckpt_map *to, const ckpt_map *from, uint32_t file,
                 ckpt_err *err);

/* Pickle the tree and place the file; frees the scratch arena, after a failure too. */
int ckpt_tt_end(ckpt_torch_tree *t, ckpt_value *root);

/* A file, and the ranges of sources and tensors that were added to the target with it. */
typedef struct ckpt_torch_made {
    uint32_t file;
    size_t source, n_sources, tensor, n_tensors;
} ckpt_torch_made;

/*
 * Add another file like one that was made: the same pickle over separate records, with the same
 * donors.
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

/* Make module.name(*args), with a state for BUILD or NULL. */
ckpt_value *ckpt_tt_object(ckpt_torch_tree *t, const char *module, const char *name,
                           ckpt_object_form form, ckpt_value *args, ckpt_value *state);

/* Append to a container; put replaces the value of an existing key. */
void ckpt_tt_add(ckpt_torch_tree *t, ckpt_value *seq, ckpt_value *item);
void ckpt_tt_put(ckpt_torch_tree *t, ckpt_value *dict, const char *key, ckpt_value *value);
void ckpt_tt_put_at(ckpt_torch_tree *t, ckpt_value *dict, ckpt_value *key, ckpt_value *value);

/* ---- tensors ---- */

/* Make a record of n elements; bytes without a target tensor are zero. */
ckpt_storage *ckpt_tt_storage(ckpt_torch_tree *t, ckpt_dtype dtype, uint64_t n);

/* Make a contiguous view of a storage from element `offset` on. */
ckpt_value *ckpt_tt_view(ckpt_torch_tree *t, ckpt_storage *s, uint64_t offset,
                         const uint64_t *shape, uint32_t ndim);

/* Make a view with one axis. */
ckpt_value *ckpt_tt_flat(ckpt_torch_tree *t, ckpt_storage *s, uint64_t offset, uint64_t n);

/* Make a tensor with its own storage, with the donor's values converted to dtype, or with zeros. */
ckpt_value *ckpt_tt_whole(ckpt_torch_tree *t, const ckpt_tensor *donor, ckpt_dtype dtype);
ckpt_value *ckpt_tt_zeros(ckpt_torch_tree *t, ckpt_dtype dtype, const uint64_t *shape,
                          uint32_t ndim);

/* The content of a target tensor. */
typedef struct ckpt_torch_fill {
    const char *kind; /* part of its name, to make it unique: "fp32", "exp_avg" */
    const ckpt_tensor *donor;
    ckpt_dtype dtype; /* the dtype in the file */
} ckpt_torch_fill;

/* Add a target tensor with the donor's values; its n extents are in the sources of storages. */
int ckpt_tt_fill(ckpt_map *to, const ckpt_torch_fill *fill, const ckpt_extent *extent, uint32_t n,
                 ckpt_err *err);

/* Add such a tensor with extents given by a rule. */
int ckpt_tt_fill_cut(ckpt_map *to, const ckpt_torch_fill *fill, const ckpt_cut *cut, ckpt_err *err);

/* ---- trees of the other map ---- */

/* Copy a tree of t->from. Shared values stay shared; records of tensors are copied completely. */
ckpt_value *ckpt_tt_copy(ckpt_torch_tree *t, const ckpt_value *v);

/* Append the full names of all unknown classes in a tree to a LIST, each once. */
int ckpt_tt_unknown(const ckpt_value *v, ckpt_value *names, ckpt_arena *arena, ckpt_err *err);

#endif
