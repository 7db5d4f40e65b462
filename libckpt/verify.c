/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c: everything that can be said about a checkpoint's soundness without knowing what it
 * should hold.
 *
 * Structure (by opening it with problems collected), every record's CRC, copies against masters,
 * NaN and infinities.
 */
#include <string.h>

#include "libckpt/claim.h"
#include "libckpt/copy/run.h"
#include "libckpt/format.h"
#include "libckpt/opts.h"

typedef struct ver_state {
    ckpt_finding_fn fn;
    void *ctx;
    int worst; /* CKPT_OK, or the code that decides the outcome */
} ver_state;

/* A damaged file outweighs an inconsistency, a refused one outweighs both. */
static int ver_rank(int code)
{
    switch (code) {
    case CKPT_OK:
        return 0;
    case CKPT_EMISSING:
    case CKPT_EMISMATCH:
        return 1;
    case CKPT_EUNSAFE:
        return 3;
    default:
        return 2;
    }
}

static int ver_say(ver_state *v, int severity, int code, const char *text)
{
    if (severity == CKPT_ERROR && ver_rank(code) > ver_rank(v->worst))
        v->worst = code;
    return v->fn ? v->fn(v->ctx, severity, code, text) : 0;
}

static void ver_say_all(ver_state *v, const ckpt_map *map)
{
    for (size_t i = 0; i < map->findings.n; i++) {
        const ckpt_finding *f = &map->findings.at[i];
        (void)ver_say(v, (int)f->severity, f->code, f->text);
    }
}

/* Check the CRC of every record of every file, whether a tensor uses it or not. */
static int ver_records(ver_state *v, const ckpt_map *map, const ckpt_run_opts *run,
                       ckpt_run_report *report, ckpt_err *err)
{
    ckpt_map *all = NULL;
    int rc = ckpt_map_new(&all, 0, err);

    if (rc == CKPT_OK)
        all->collect = true;
    for (uint32_t i = 0; rc == CKPT_OK && i < map->files.n; i++) {
        const ckpt_map_file *f = &map->files.at[i];
        ckpt_io *io = NULL;
        uint32_t index = 0;
        rc = ckpt_map_add_file(all, f, &index, err);
        if (rc == CKPT_OK && f->format && f->format->records) {
            rc = ckpt_io_open(&io, f->path, err);
            if (rc == CKPT_OK)
                rc = f->format->records(all, io, index, err);
            ckpt_io_close(io);
        }
    }
    if (rc == CKPT_OK)
        rc = ckpt_run_scrub(all, run, report, err);
    if (all)
        ver_say_all(v, all);
    ckpt_map_free(all);
    return rc;
}

/* A target that swallows what is written: reading every tensor compares copies and counts what is
 * not finite. */
static int ver_sink_map(ckpt_map **out, const ckpt_map *map, ckpt_err *err)
{
    const ckpt_source nowhere = {
        .kind = CKPT_SOURCE_ZERO, .n_bytes = UINT64_MAX, .name = "nowhere"};
    uint32_t source = 0;
    ckpt_map *to = NULL;
    int rc = ckpt_map_new(&to, 0, err);

    if (rc == CKPT_OK) {
        to->collect = true;
        to->path = map->path;
        rc = ckpt_map_add_source(to, &nowhere, &source, err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        ckpt_tensor like = *t, *made = NULL;
        if (t->owner || t->n_elems == 0)
            continue;
        like.twin = NULL;
        like.addend = NULL;
        like.flags = 0;
        like.origin = t->name;
        like.n_extents = 0;
        rc = ckpt_map_add(to, t->name, strlen(t->name), &like, &made, err);
        if (rc == CKPT_OK)
            rc = ckpt_map_back_whole(to, made, source, 0, err);
    }
    if (rc == CKPT_OK)
        *out = to;
    else
        ckpt_map_free(to);
    return rc;
}

static int ver_values(ver_state *v, const ckpt_map *map, const ckpt_run_opts *run,
                      ckpt_run_report *report, ckpt_err *err)
{
    ckpt_map *to = NULL;
    ckpt_plan *plan = NULL;
    int rc = ver_sink_map(&to, map, err);

    if (rc == CKPT_OK)
        rc = ckpt_claim_count(map, to, err);
    if (rc == CKPT_OK)
        rc = ckpt_plan_new(&plan, map, to, run, err);
    if (rc == CKPT_OK)
        rc = ckpt_plan_run(plan, NULL, run, report, err);
    if (to)
        ver_say_all(v, to);
    ckpt_plan_free(plan);
    ckpt_map_free(to);
    return rc;
}

/* An outcome that is about the checkpoint becomes a finding; what is about us (memory, I/O,
 * interrupt) stays a failure. */
static int ver_absorb(ver_state *v, int rc, ckpt_err *err)
{
    switch (rc) {
    case CKPT_EFORMAT:
    case CKPT_EUNSUPPORTED:
    case CKPT_EUNSAFE:
    case CKPT_EMISSING:
    case CKPT_EMISMATCH:
        (void)ver_say(v, CKPT_ERROR, rc, err->text);
        err->code = CKPT_OK;
        err->text[0] = 0;
        return CKPT_OK;
    default:
        return rc;
    }
}

int ckpt_verify(const char *path, const ckpt_verify_opts *opts, ckpt_run_report *report,
                ckpt_err *err)
{
    ckpt_verify_opts own;
    ckpt_open_opts open;
    ckpt_run_opts run;
    ckpt_run_report records = {0}, values = {0};
    ver_state v = {0};
    ckpt_err local = {0};
    ckpt_map *map = NULL;

    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_verify_opts", err);
    if (rc == CKPT_OK)
        rc = ckpt_opts_take(&open, sizeof open, own.open, "ckpt_open_opts", err);
    if (rc == CKPT_OK)
        rc = ckpt_opts_take(&run, sizeof run, own.run, "ckpt_run_opts", err);
    if (rc == CKPT_OK && (!path || !*path))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no path to verify");
    if (rc != CKPT_OK)
        return rc;
    v = (ver_state){.fn = own.finding, .ctx = own.finding_ctx};
    open.collect = true;
    open.with_optimizer = true;
    rc = ckpt_open(&map, path, &open, &local);
    if (rc == CKPT_OK) {
        ver_say_all(&v, map);
        rc = ver_absorb(&v, ckpt_map_check(map, &local), &local);
        bool sound = v.worst == CKPT_OK;
        if (rc == CKPT_OK)
            rc = ver_absorb(&v, ver_records(&v, map, &run, &records, &local), &local);
        // values can only be read where the structure holds
        if (rc == CKPT_OK && sound)
            rc = ver_absorb(&v, ver_values(&v, map, &run, &values, &local), &local);
    }
    rc = ver_absorb(&v, rc, &local);
    ckpt_map_free(map);
    values.n_records_checked = records.n_records_checked;
    values.n_records_no_crc = records.n_records_no_crc;
    values.n_read += records.n_read;
    values.seconds += records.seconds;
    ckpt_opts_give(report, &values, sizeof values);
    if (rc != CKPT_OK)
        return ckpt_fail(err, rc, "%s", local.text);
    if (v.worst != CKPT_OK)
        return ckpt_fail(err, v.worst, "%s: %s", path, ckpt_err_text(v.worst));
    return CKPT_OK;
}
