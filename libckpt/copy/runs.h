/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs.h: describes how a program keeps the checkpoints of a run, for its driver and for
 * `ckpt doctor`.
 */
#ifndef CKPT_RUNS_H
#define CKPT_RUNS_H

#include "libckpt/io/listing.h"

/* A name in a run's folder, with its terminator. */
#define CKPT_RUN_NAME 256

/*
 * How a run keeps several checkpoints, for commands that examine all of them: each in its own
 * folder of the run, beside a small file that names the checkpoint to resume from.
 */
typedef struct ckpt_run_layout {
    /* true if a folder is one checkpoint, complete or not */
    bool (*is_tag)(const ckpt_listing *list);
    const char *pointer; /* the name of the file; "": none, the newest finished checkpoint counts */
    /* for layouts without a pointer: true if the checkpoint's save has finished */
    bool (*is_done)(const ckpt_listing *list);
    /* true for a folder of a save that was cut before it became a tag; NULL: not recognised */
    bool (*is_cut)(const ckpt_listing *folder);
    const char *last; /* the file that a save writes last, for messages; NULL: none is known */
    /*
     * for layouts that have the same pointer name: true if the folder is a run of this one; NULL:
     * the probe of the driver decides
     */
    bool (*is_run)(const ckpt_listing *list);
    bool several; /* a checkpoint is a folder of folders, one per model */
    /*
     * folder: the folder that the text in the pointer names (NULL without a pointer). text: the
     * pointer's text for a folder, which is a number. false: there is none
     */
    bool (*folder)(char out[CKPT_RUN_NAME], const char *text);
    bool (*text)(char out[CKPT_RUN_NAME], const char *folder);
} ckpt_run_layout;

/* The number in a checkpoint folder's name, by which a run is ordered; -1: not a checkpoint's. */
int64_t ckpt_run_number(const ckpt_run_layout *run, const char *folder);

/* True if a folder in the run's folder is a checkpoint that --tag can name. */
typedef bool ckpt_run_entry_fn(const ckpt_listing *run, const ckpt_entry *e, const void *ctx);

/* The names of a run's checkpoints for a message, at most twelve of them; NULL if it has none. */
int ckpt_run_tags(const char **out, const ckpt_listing *run, ckpt_run_entry_fn *is_tag,
                  const void *ctx, ckpt_err *err);

/* Fail with CKPT_EMISSING, the reason `why`, and the checkpoints that there are. */
int ckpt_run_no_tag(const ckpt_listing *run, ckpt_run_entry_fn *is_tag, const void *ctx,
                    const char *why, ckpt_err *err);

#endif
