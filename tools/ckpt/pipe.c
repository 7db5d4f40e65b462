/* SPDX-License-Identifier: Apache-2.0 */
/* pipe.c: streams the one file of a view to standard output. */
#define _GNU_SOURCE /* F_SETPIPE_SZ */
#include "tools/ckpt/pipe.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "tools/cli/out.h"
#include "tools/cli/progress.h"

int pipe_check(write_args *a, ckpt_err *err)
{
    if (!a->target.format)
        return fail(err, CKPT_EUSAGE, "standard output has no suffix: use --to FORMAT");
    if (ckpt_format_caps(a->target.format) & CKPT_IS_FOLDER)
        return fail(err, CKPT_EUSAGE,
                    "--to %s writes a folder, but standard output takes one file: use safetensors, "
                    "torch, gguf or npz",
                    a->target.format);
    if (!a->cli.dry_run && isatty(STDOUT_FILENO))
        return fail(err, CKPT_EUSAGE,
                    "standard output is a terminal: redirect it to a file or a program");
    if (a->target.deflate)
        return fail(err, CKPT_EUSAGE,
                    "--compress: compressed sizes are known only after writing, but standard "
                    "output is written in order: write to a file");
    if (a->cli.json && !a->cli.dry_run)
        return fail(err, CKPT_EUSAGE,
                    "--json cannot be combined with '-': the file goes to standard output");
    if (a->cli.run.force)
        say_warning("--force has no effect: standard output replaces no file");
    if (a->cli.run.skip_fsync)
        say_warning("--no-fsync has no effect: standard output is not synced to disk");
    // torch names the archive's folder after the file; the output has no name
    a->target.path = "archive";
    return CKPT_OK;
}

static int pipe_write(void *ctx, const void *bytes, uint64_t n, ckpt_err *err)
{
    convert_job *job = ctx;

    out_bytes(bytes, (size_t)n);
    if (job->report.n_written + n == ckpt_map_file_size(job->to, 0))
        out_flush();
    if (out_unread())
        out_die();
    if (!out_broken())
        job->report.n_written += n;
    return out_failure(err);
}

static double pipe_clock(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * Enlarge the pipe to the size of one write, so this program and the next one each work for a
 * while.  Other outputs, and pipes that may not be so large, stay unchanged.
 */
static void pipe_widen(void)
{
    (void)fcntl(STDOUT_FILENO, F_SETPIPE_SZ, 1 << 20);
}

static int pipe_pour(convert_job *job, ckpt_err *err)
{
    const ckpt_view_opts opts = {.size = sizeof opts, .run = &job->run};
    ckpt_view *view = NULL;
    ckpt_view_counts n;
    double start = pipe_clock();
    int rc = ckpt_view_new(&view, job->from, job->to, &opts, err);

    if (rc == CKPT_OK && ckpt_view_file_count(view) != 1)
        rc = fail(err, CKPT_EUSAGE,
                  "the model takes %zu files, but standard output takes one: omit --max-shard-size",
                  ckpt_view_file_count(view));
    pipe_widen();
    if (rc == CKPT_OK)
        rc = ckpt_view_stream(view, 0, pipe_write, job, err);
    if (rc == CKPT_OK) {
        ckpt_view_get_counts(view, &n);
        job_take_counts(job, &n);
    }
    job->report.seconds = pipe_clock() - start;
    ckpt_view_free(view);
    return rc;
}

int pipe_run(convert_job *job, ckpt_err *err)
{
    char closing[CLOSING_ROOM];
    progress p;

    progress_begin(&p, "converting", job->quiet, &job->run);
    p.size = ckpt_map_file_size(job->to, 0);
    int rc = pipe_pour(job, err);
    progress_end(&p);
    if (rc != CKPT_OK) {
        job_explain(job, rc, err);
        if (job->report.n_written > 0 && !out_broken())
            say_warning("the data on standard output is incomplete or damaged");
        return rc;
    }
    job_warn_values(job);
    job_say_findings(job, !job->quiet);
    if (!job->quiet)
        say_note("%s", job_closing(closing, job));
    return CKPT_OK;
}
