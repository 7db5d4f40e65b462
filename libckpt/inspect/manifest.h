/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h: defines the manifest of a checkpoint: the SHA-256 of its files and tensors.
 */
#ifndef CKPT_INSPECT_MANIFEST_H
#define CKPT_INSPECT_MANIFEST_H

#include "ckpt_extra.h"
#include "libckpt/base/vec.h"
#include "libckpt/io/thread_pool.h"

#define CKPT_MANIFEST_SCHEMA "ckpt-manifest/1"

CKPT_VEC(ckpt_hashed_vec, ckpt_hashed);

struct ckpt_manifest {
    ckpt_arena *arena;
    const char *path;   /* the file of the manifest */
    const char *format; /* of the checkpoint, for people; or NULL */
    bool slices;        /* tensor-parallel slices are separate tensors */
    ckpt_hashed_vec files, tensors;
};

/* The place of a checkpoint, and of its manifest. Texts are in an arena. */
typedef struct ckpt_manifest_place {
    const char *folder; /* the folder that the names of files begin in */
    const char *file;   /* the manifest */
    bool whole;         /* the checkpoint is the folder, with all files below it */
} ckpt_manifest_place;

/*
 * Find the place of the checkpoint at `path`: a folder, in a run the folder of a tag, or a file.
 *
 * tag      of a run; NULL: the newest, which `latest` or the folder names
 * map      the opened checkpoint, which knows tag and files; NULL: it cannot be opened
 */
int ckpt_manifest_place_of(ckpt_manifest_place *out, ckpt_arena *a, const char *path,
                           const char *tag, const ckpt_map *map, ckpt_err *err);

/* An entry of a folder that a manifest cannot list: a link to a folder, a pipe, a device. */
typedef struct ckpt_unlisted {
    const char *name;
    const char *what; /* in a sentence: "a link to a folder" */
} ckpt_unlisted;

CKPT_VEC(ckpt_unlisted_vec, ckpt_unlisted);

/*
 * Add the names and sizes of all files below a folder, without manifests, sorted by name.
 *
 * unlisted  gets the entries that are neither files nor folders; NULL: they are refused
 * Errors    CKPT_EUNSUPPORTED: such an entry; CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_manifest_list(ckpt_hashed_vec *out, ckpt_unlisted_vec *unlisted, ckpt_arena *a,
                       const char *folder, ckpt_err *err);

/* An empty manifest. */
int ckpt_manifest_new(ckpt_manifest **out, ckpt_err *err);

/* Compute the missing hashes (sha256[0] is 0) of files below a folder. */
int ckpt_manifest_hash_files(ckpt_hashed_vec *files, const char *folder, const ckpt_run_opts *run,
                             ckpt_err *err);

/*
 * Compute the missing hashes of tensors, which have the numbers of the map's tensors.
 *
 * damaged  hash records with a wrong CRC too; a tensor that cannot be read gets no hash
 */
int ckpt_manifest_hash_tensors(ckpt_hashed_vec *tensors, const ckpt_map *map, bool damaged,
                               const ckpt_run_opts *run, ckpt_err *err);

/* Open a checkpoint to hash its tensors: with optimizer state, and slices apart if `slices`. */
int ckpt_manifest_open(ckpt_map **out, const char *path, const ckpt_open_opts *open, bool *slices,
                       ckpt_err *err);

/* List the tensors of a map, without hashes; texts stay the map's. */
int ckpt_manifest_tensors(ckpt_hashed_vec *out, const ckpt_map *map, ckpt_err *err);

/* The item of this name, or NULL; items are sorted by ckpt_hashed_sort. */
const ckpt_hashed *ckpt_hashed_find(const ckpt_hashed *const *sorted, size_t n, const char *name);

/* Pointers to all items, sorted by name; free them with ckpt_free. NULL: out of memory. */
const ckpt_hashed **ckpt_hashed_sort(const ckpt_hashed_vec *items);

#endif
