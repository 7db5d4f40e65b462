/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_inside.h: what the files of the view share: view.c keeps blocks and answers reads, stream.c
 * hands a file out from front to back.
 */
#ifndef CKPT_COPY_VIEW_INSIDE_H
#define CKPT_COPY_VIEW_INSIDE_H

#include "libckpt/copy/blocks.h"
#include "libckpt/copy/view.h"
#include "libckpt/copy/work.h"

enum { VIEW_WINDOW = 1024 * 1024 }; /* bytes that a stream makes at a time */

typedef enum view_state {
    VIEW_NEW,
    VIEW_BUSY,  /* somebody makes it ready, or streams it */
    VIEW_READY, /* its literals are complete */
    VIEW_SPENT  /* a stream of it has failed: some of its literals are missing */
} view_state;

typedef struct view_file {
    size_t first, end; /* its jobs in the plan */
    uint64_t *reach;   /* per job: where it and those before it end; NULL: none meets the next */
    ckpt_literal *literal; /* n_literals, ascending: those that are given out */
    size_t n_literals;
    bool placed; /* reach and literals are there */
    uint8_t state;
} view_file;

/* A worker, and whether it has nothing to do. */
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
    size_t n_files;    /* with the pointer */
    uint32_t *source;  /* sources of the target's files, grouped by file */
    size_t *group;

    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t change;
    view_file *file;
    view_hand *hand;
    unsigned n_hands;
    ckpt_blocks blocks;
    ckpt_tally tally; /* of all that was made */
    uint64_t n_elems, n_compared;
};

/* Bytes [at, at + n) as jobs and the literals of the view_file make them. */
int ckpt_view_window(ckpt_view *v, uint32_t file, uint8_t *buf, uint64_t n, uint64_t at,
                     ckpt_err *err);

/*
 * The whole file, in order; its literals are complete afterwards.  The file is placed, and busy.
 *
 * write   NULL: the bytes are of no use but for their checksums
 */
int ckpt_view_pour(ckpt_view *v, uint32_t file, ckpt_view_write_fn write, void *ctx, ckpt_err *err);

#endif
