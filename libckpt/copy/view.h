/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h: the files that a plan would write, read in any order without being written.
 *
 * Bytes are made when they are asked for, by the jobs that the executor would carry out; the last
 * ones are kept.  Headers and directories are the plan's literals.  Where a format stores checksums
 * of data, they are left out as its own writer can leave them out (format.h's bare); without such a
 * way the data of a file are read once before its first byte.
 *
 * What the executor proves at its end is proved here as soon as it can be: a record's CRC when all
 * of it was read, a value's range when it was converted, a copy when it was compared.  The read
 * that finds it fails, and so do those of that record that follow.
 *
 * ckpt.h has what there is to do with a view.
 */
#ifndef CKPT_COPY_VIEW_H
#define CKPT_COPY_VIEW_H

#include "libckpt/copy/plan.h"
#include "libckpt/copy/proof.h"
#include "libckpt/copy/run.h"

typedef struct ckpt_view ckpt_view;

/* The functions of ckpt.h but ckpt_view_new, documented there. */
CKPT_API void ckpt_view_free(ckpt_view *view);
CKPT_API size_t ckpt_view_n_files(const ckpt_view *view);
CKPT_API const char *ckpt_view_path(const ckpt_view *view, size_t i);
CKPT_API uint64_t ckpt_view_size(const ckpt_view *view, size_t i);
CKPT_API int ckpt_view_read(ckpt_view *view, size_t i, void *buf, uint64_t n, uint64_t at,
                            ckpt_err *err);
CKPT_API int ckpt_view_ahead(ckpt_view *view, size_t i, uint64_t n, uint64_t at, ckpt_err *err);
CKPT_API int ckpt_view_stream(ckpt_view *view, size_t i, ckpt_view_write_fn write, void *ctx,
                              ckpt_err *err);
CKPT_API void ckpt_view_count(ckpt_view *view, ckpt_view_counts *out);

/* What the wiring above this room hands down. */
typedef struct ckpt_view_hooks {
    ckpt_run_seal_fn seal;
    bool (*sums)(const ckpt_map *to, uint32_t file); /* seal needs checksums of the data */
    bool (*bare)(const ckpt_map *to, uint32_t file); /* and they may be left out */
    /* checks what is inside a file that is passed on as it is */
    int (*whole)(const ckpt_map *from, uint32_t source, ckpt_err *err);
} ckpt_view_hooks;

/* Bytes that a job of a view's plan should take at most. */
uint64_t ckpt_view_block(const ckpt_map *to, uint64_t memory, unsigned jobs);

/* A view of a plan made with ckpt_view_block; plan is the view's to free, also on failure. */
int ckpt_view_make(ckpt_view **out, ckpt_plan *plan, const ckpt_run_opts *run, bool check_first,
                   const ckpt_view_hooks *hooks, ckpt_err *err);

#endif
