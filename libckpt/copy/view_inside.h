/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_inside.h: defines the state that view.c and stream.c share: view.c caches blocks and answers
 * reads, stream.c passes a file on from front to back.
 */
#ifndef CKPT_COPY_VIEW_INSIDE_H
#define CKPT_COPY_VIEW_INSIDE_H

#include "libckpt/copy/view.h"
#include "libckpt/copy/work.h"
#include "libckpt/io/block_cache.h"
#include "libckpt/io/unwritten.h"

enum { VIEW_WINDOW = 1024 * 1024 }; /* bytes that a stream computes at a time */

typedef enum view_state {
    VIEW_NEW,
    VIEW_BUSY,  /* a thread prepares or streams the file */
    VIEW_READY, /* the file's literals are complete */
    VIEW_SPENT  /* a stream of it has failed: some of its literals are missing */
} view_state;

typedef struct view_file {
    size_t first, end; /* range of the file's jobs in the plan */
    /* per job: the furthest end of it and all before it; NULL: no two jobs overlap */
    uint64_t *reach;
    ckpt_literal *literal; /* n_literals literals in the output, ascending */
    size_t n_literals;
    bool placed; /* reach and literal are set */
    uint8_t state;
} view_file;

/* A worker, and whether it is free. */
typedef struct view_hand {
    ckpt_worker worker;
    bool idle;
} view_hand;

struct ckpt_view {
    ckpt_plan *plan;
    ckpt_run_opts opts;
    ckpt_view_hooks hooks;
    ckpt_work work; /* its lock protects the target map */
    ckpt_proof *proof;
    const char **path; /* per file, and the pointer's */
    ckpt_unwritten files;
    unsigned address; /* of these files; 0: none yet */
    size_t n_files;   /* with the pointer */
    uint32_t *source; /* sources of the target's files, grouped by file */
    size_t *group;

    pthread_mutex_t lock; /* protects all members below */
    pthread_cond_t change;
    view_file *file;
    view_hand *hand;
    unsigned n_hands;
    ckpt_blocks blocks;
    ckpt_tally tally; /* counts of all values computed so far */
    uint64_t n_elems, n_compared;
};

/*
 * Prepare a file for reads: index its jobs once, and copy its current literals. The caller has set
 * VIEW_BUSY, so no other thread uses the file.
 */
int ckpt_view_place(ckpt_view *v, uint32_t file, ckpt_err *err);

/* Compute bytes [at, at + n) from jobs and the literals of the view_file. */
int ckpt_view_window(ckpt_view *v, uint32_t file, uint8_t *buf, uint64_t n, uint64_t at,
                     ckpt_err *err);

/*
 * Compute the whole file in order; its literals are complete afterwards. The file must be placed
 * and busy.
 *
 * write    NULL: only the checksums are needed
 */
int ckpt_view_pour(ckpt_view *v, uint32_t file, ckpt_view_write_fn write, void *ctx, ckpt_err *err);

#endif
