/* SPDX-License-Identifier: Apache-2.0 */
/* tags.h: declares the checkpoints of a run, copied from the library's report (ckpt_doctor). */
#ifndef TOOLS_TAGS_H
#define TOOLS_TAGS_H

#include "ckpt.h"
#include "libckpt/base/vec.h"

typedef struct tag {
    char *name, *reason;
    ckpt_tag_health health;
    int64_t step;   /* -1: not known */
    int stage;      /* -1: not known */
    uint32_t world; /* 0: not known */
    uint64_t n_bytes;
    bool is_latest, is_universal;
    bool is_newest; /* the newest complete tag of its run */
    size_t run;
} tag;

/* The state of a run's pointer, if it has one. */
typedef struct tags_run {
    char *name, *pointer, *latest, *newest, *reason;
    bool good; /* true: the pointer names a complete tag */
} tags_run;

CKPT_VEC(tags_runs, tags_run);

typedef struct tags {
    tag *at; /* run by run, the oldest first */
    size_t n, room;
    tags_runs run;
    uint64_t most_bytes; /* size of the largest tag */
    bool lost;           /* out of memory */
} tags;

/*
 * Read the tags of a run.  A path that is not a run has none, which is not an error.
 *
 * Errors   CKPT_ELIMIT, CKPT_ECANCELED
 */
int tags_make(tags *out, const char *path, const ckpt_run_opts *run, ckpt_err *err);
void tags_free(tags *t);

/* Names of states: "complete", "partial", "damaged", "mixed", "unknown". */
const char *tags_state(ckpt_tag_health health);

#endif
