/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listed.h: reads and writes the statement that a model's signature covers: the list of its files
 * with their SHA-256 (in-toto Statement v1, predicate https://model_signing/signature/v1.0).
 *
 *     {"_type": "https://in-toto.io/Statement/v1",
 *      "subject": [{"name": the folder, "digest": {"sha256": SHA-256 of all digests in order}}],
 *      "predicateType": "https://model_signing/signature/v1.0",
 *      "predicate": {"serialization": {"method": "files", "hash_type": "sha256",
 *                                      "allow_symlinks": false, "ignore_paths": [...]},
 *                    "resources": [{"name": "sub/file", "algorithm": "sha256", "digest": HEX}...]}}
 *
 * A model of one file has one resource, named ".". With the method "shards" each resource is a
 * part of a file, "sub/file:START:END", and an empty file has none.
 *
 * Source: signing.py, manifest.py and hashing.py of model-signing 1.1.1.
 */
#ifndef CKPT_SIGN_LISTED_H
#define CKPT_SIGN_LISTED_H

#include "libckpt/base/vec.h"

/* A file, or a part of one. */
typedef struct ckpt_signed_item {
    const char *name;
    uint8_t digest[32];
    bool met; /* for the comparison: the other side has it */
} ckpt_signed_item;

CKPT_VEC(ckpt_signed_items, ckpt_signed_item);
CKPT_VEC(ckpt_signed_paths, const char *);

typedef struct ckpt_signed_list {
    ckpt_arena *arena;         /* owns the texts */
    const char *model;         /* name of the folder or file when it was signed */
    uint64_t shard;            /* bytes of a part; 0: complete files */
    bool links;                /* symbolic links were followed */
    bool no_leftover;          /* to be signed: refuse the temporary files of interrupted runs */
    ckpt_signed_paths ignored; /* files and folders that are not in the list, relative */
    ckpt_signed_items all;     /* in the order of the list */
} ckpt_signed_list;

/* An empty list. Free it with ckpt_signed_list_free, also after a failure. */
int ckpt_signed_list_new(ckpt_signed_list *out, ckpt_err *err);
void ckpt_signed_list_free(ckpt_signed_list *list);

/*
 * Parse a statement after its signature was checked; name is that of the bundle.
 *
 * Errors   CKPT_EFORMAT: not such a statement, a name twice, or one that leaves the folder;
 *          CKPT_EUNSUPPORTED: another predicate or hash; CKPT_EDIGEST: it does not agree with
 *          itself; CKPT_ELIMIT
 */
int ckpt_signed_list_parse(ckpt_signed_list *out, const char *name, const ckpt_bytes *text,
                           ckpt_err *err);

/* Append the statement as JSON. */
int ckpt_signed_list_write(ckpt_bytes *out, const ckpt_signed_list *list, ckpt_err *err);

/* True if the list leaves this relative path out: it is one of `ignored`, or in one. */
bool ckpt_signed_list_ignores(const ckpt_signed_list *list, const char *path);

/* Compare and sort by name, part by part, as model-signing does ("a/b" before "a-b"). */
int ckpt_signed_item_compare(const void *a, const void *b);
void ckpt_signed_items_sort(ckpt_signed_items *items);

#endif
