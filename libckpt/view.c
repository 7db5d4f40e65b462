/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c: implements the public function that makes views, and connects copy/ with the formats.
 */
#include <limits.h>
#include <stdio.h>

#include "ckpt_extra.h"
#include "libckpt/base/opts.h"
#include "libckpt/copy/view_inside.h"
#include "libckpt/format.h"
#include "libckpt/plan_run.h"

static bool view_sums(const ckpt_map *to, uint32_t file)
{
    const ckpt_format *format = to->files.at[file].format;

    return format && format->seal;
}

static bool view_bare(const ckpt_map *to, uint32_t file)
{
    return to->files.at[file].format->bare;
}

int ckpt_view_new(ckpt_view **out, const ckpt_map *from, ckpt_map *to, const ckpt_view_opts *opts,
                  ckpt_err *err)
{
    ckpt_err_clear(err);
    static const ckpt_view_hooks hooks = {.seal = ckpt_plan_seal,
                                          .sums = view_sums,
                                          .bare = view_bare,
                                          .whole = ckpt_plan_check_source};
    ckpt_view_opts own;
    ckpt_run_opts run;
    ckpt_plan *plan = NULL;
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_view_opts", err);

    if (out)
        *out = NULL;
    if (rc == CKPT_OK)
        rc = ckpt_opts_take(&run, sizeof run, own.run, "ckpt_run_opts", err);
    if (rc == CKPT_OK && (!out || !from || !to))
        rc = ckpt_fail(
            err, CKPT_EUSAGE,
            "ckpt_view_new: from, to or out is NULL, or `to` was not laid out from `from`");
    if (rc == CKPT_OK)
        rc = ckpt_plan_make(&plan, from, to, ckpt_view_block(to, run.memory, run.jobs), err);
    return rc == CKPT_OK ? ckpt_view_make(out, plan, &run, own.check_first, &hooks, err) : rc;
}

/* ---- as files ---- */

static const char *view_file_path(void *view, size_t i)
{
    return ckpt_view_file_path(view, i);
}

static uint64_t view_file_size(void *view, size_t i)
{
    return ckpt_view_file_size(view, i);
}

static int view_file_read(void *view, size_t i, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    return ckpt_view_read(view, i, buf, n, at, err);
}

/* The address of the files, until ckpt_view_free. */
static int view_address(unsigned *number, ckpt_view *v, ckpt_err *err)
{
    int rc = CKPT_OK;

    pthread_mutex_lock(&v->lock);
    v->files = (ckpt_unwritten){v, v->n_files, view_file_path, view_file_size, view_file_read};
    if (v->address == 0)
        rc = ckpt_unwritten_add(&v->address, &v->files, err);
    *number = v->address;
    pthread_mutex_unlock(&v->lock);
    return rc;
}

int ckpt_view_open(ckpt_map **out, ckpt_view *view, const ckpt_open_opts *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    char address[PATH_MAX];
    unsigned number = 0;

    if (out)
        *out = NULL;
    if (!out || !view)
        return ckpt_fail(err, CKPT_EUSAGE, "no view to open, or no place for what is opened");
    const ckpt_map *to = view->plan->to;
    const bool folder = ckpt_format_caps(to->format) & CKPT_IS_FOLDER;
    // without a pointer, only the path of a tag leads to it
    const char *below = !folder ? view->path[0] : to->folder && !to->pointer ? to->folder : "";
    int rc = view_address(&number, view, err);

    if (rc == CKPT_OK && snprintf(address, sizeof address, CKPT_UNWRITTEN "%u/%s", number, below) >=
                             (int)sizeof address)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%.200s: the path is too long", to->path);
    return rc == CKPT_OK ? ckpt_open(out, address, opts, err) : rc;
}
