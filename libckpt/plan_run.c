/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_run.c: implements the public functions for plans, and connects run/ with the formats.
 */
#include "libckpt/plan_run.h"

#include "libckpt/base/opts.h"
#include "libckpt/dist/run/hooks.h"
#include "libckpt/drivers.h"
#include "libckpt/map/extent.h"
#include "libckpt/readback/readback.h"
#include "libckpt/run/run.h"

int ckpt_plan_new(ckpt_plan **out, const ckpt_map *from, ckpt_map *to, const ckpt_run_opts *opts,
                  ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_run_opts own;
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_run_opts", err);

    if (out)
        *out = NULL;
    if (rc == CKPT_OK && (!out || !from || !to))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no map to plan from, or to, or no place for the plan");
    if (rc == CKPT_OK)
        rc = ckpt_spread_check(to, err);
    return rc == CKPT_OK ? ckpt_plan_make(out, from, to, ckpt_run_block(own.memory, own.jobs), err)
                         : rc;
}

/* Files without a format only have literals. */
int ckpt_plan_seal(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err)
{
    const ckpt_format *format = to->files.at[file].format;

    return format && format->seal ? format->seal(to, file, known, err) : CKPT_OK;
}

static bool plan_seals(const ckpt_map *to, uint32_t file)
{
    const ckpt_format *format = to->files.at[file].format;

    return format && format->seal;
}

static int plan_pack(ckpt_map *to, uint32_t file, ckpt_packing *p, ckpt_err *err)
{
    return to->files.at[file].format->pack(to, file, p, err);
}

/*
 * Add the records of a file that is copied unchanged, because the copy itself does not check them.
 */
static int plan_whole_file(const ckpt_map_file *f, ckpt_map *all, ckpt_err *err)
{
    ckpt_map *read = NULL;
    ckpt_io *io = NULL;
    uint32_t index = 0;
    int rc = ckpt_format_read(&read, f->path, NULL, err);

    ckpt_map_free(read);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(all, f, &index, err);
    if (rc != CKPT_OK || !f->format || !f->format->records)
        return rc;
    rc = ckpt_io_again(&io, f, err);
    if (rc == CKPT_OK)
        rc = f->format->records(all, io, index, err);
    ckpt_io_close(io);
    return rc;
}

/* Add the records of all files of a plan that are copied unchanged. */
static int plan_whole_files(const ckpt_plan *plan, ckpt_map *all, ckpt_err *err)
{
    const ckpt_map *from = plan->from;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < plan->to->tensors.n; i++) {
        const ckpt_tensor *t = plan->origin[i];
        const ckpt_source *s = t && t->n_extents && ckpt_extent_source(t, 0) < from->sources.n
                                   ? &from->sources.at[ckpt_extent_source(t, 0)]
                                   : NULL;

        if (s && s->whole)
            rc = plan_whole_file(&from->files.at[s->file], all, err);
    }
    return rc;
}

/* Check the CRC of every record of the files of `all`. */
static int plan_scrub(ckpt_map *all, const ckpt_run_opts *opts, uint64_t *n_checked, ckpt_err *err)
{
    ckpt_run_report report = {0};
    ckpt_run_opts quiet = opts ? *opts : (ckpt_run_opts){0};
    int rc;

    // This check reports no progress, because the copy that follows counts the same bytes.
    quiet.progress = NULL;
    quiet.cache = CKPT_CACHE_KEEP;
    rc = all->sources.n ? ckpt_run_scrub(all, NULL, &ckpt_team_peers, &quiet, &report, err)
                        : CKPT_OK;
    *n_checked = report.n_records_checked;
    return rc;
}

/* Check the files that are copied unchanged before anything is written. */
static int plan_check_whole(const ckpt_plan *plan, const ckpt_run_opts *opts, uint64_t *n_checked,
                            ckpt_err *err)
{
    ckpt_map *all = NULL;
    int rc = ckpt_map_create(&all, 0, err);

    if (rc == CKPT_OK)
        rc = plan_whole_files(plan, all, err);
    if (rc == CKPT_OK)
        rc = plan_scrub(all, opts, n_checked, err);
    ckpt_map_free(all);
    return rc;
}

int ckpt_plan_check_source(const ckpt_map *from, uint32_t source, ckpt_err *err)
{
    const ckpt_run_opts alone = {.jobs = 1};
    ckpt_map *all = NULL;
    uint64_t n;
    int rc = ckpt_map_create(&all, 0, err);

    if (rc == CKPT_OK)
        rc = plan_whole_file(&from->files.at[from->sources.at[source].file], all, err);
    if (rc == CKPT_OK)
        rc = plan_scrub(all, &alone, &n, err);
    ckpt_map_free(all);
    return rc;
}

int ckpt_plan_check(const ckpt_map *from, ckpt_map *to, const char *where, ckpt_err *err)
{
    const ckpt_open_opts open = {.with_optimizer = true, .keep_slices = true};
    ckpt_map *back = NULL;
    ckpt_err why = {0};
    int rc;

    if (!to->claim.made)
        return CKPT_OK;
    rc = ckpt_open(&back, where, &open, &why);
    if (rc != CKPT_OK)
        return ckpt_fail(err, rc,
                         "%s: the output of converting %.300s could not be read back: %.600s; "
                         "nothing was made visible",
                         to->path, from->path, why.text);
    rc = ckpt_claim_compare(from, to, back, err);
    ckpt_map_free(back);
    return rc;
}

int ckpt_plan_run_in(const ckpt_plan *plan, const char *folder, const ckpt_run_opts *opts,
                     ckpt_run_report *report, ckpt_err *err)
{
    static const ckpt_run_hooks hooks = {.seal = ckpt_plan_seal,
                                         .seals = plan_seals,
                                         .pack = plan_pack,
                                         .check = ckpt_plan_check,
                                         .peers = &ckpt_team_peers};
    uint64_t n_checked = 0;
    ckpt_run_opts own;
    ckpt_run_report done = {0};
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_run_opts", err);

    if (rc == CKPT_OK && !plan)
        rc = ckpt_fail(err, CKPT_EUSAGE, "no plan to run");
    if (rc == CKPT_OK && folder)
        rc = plan_check_whole(plan, &own, &n_checked, err);
    if (rc == CKPT_OK)
        rc = ckpt_run(plan, folder, &own, &hooks, &done, err);
    done.n_records_checked += rc == CKPT_OK ? n_checked : 0;
    ckpt_opts_give(report, &done, sizeof done);
    return rc;
}

int ckpt_plan_run(const ckpt_plan *plan, const ckpt_run_opts *opts, ckpt_run_report *report,
                  ckpt_err *err)
{
    ckpt_err_clear(err);
    return ckpt_plan_run_in(plan, plan ? plan->to->into : NULL, opts, report, err);
}
