/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c: checks a checkpoint for every kind of damage that can be found without another copy of
 * it.
 *
 * It checks the structure (by opening it with problems collected), every record's CRC, copies
 * against masters, NaN and infinities. Every byte is read once: first the tensors, with CRCs in
 * passing, then the bytes that no tensor has used.
 */
#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/opts.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/dist/run/hooks.h"
#include "libckpt/format.h"
#include "libckpt/readback/readback.h"
#include "libckpt/run/run.h"

typedef struct ver_state {
    ckpt_finding_fn fn;
    void *ctx;
    int worst;    /* CKPT_OK, or the code that decides the result */
    bool stopped; /* the callback has stopped it */
    const ckpt_run_opts *run;
    ckpt_run_report records, values;
} ver_state;

/* A damaged file outweighs an inconsistency; a refused file outweighs both. */
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

/*
 * Report a finding. After the callback has stopped the verification, findings are no longer
 * reported and no longer change the result.
 */
static void ver_say(ver_state *v, int severity, int code, const char *text)
{
    if (v->stopped)
        return;
    if (severity == CKPT_ERROR && ver_rank(code) > ver_rank(v->worst))
        v->worst = code;
    v->stopped = v->fn && v->fn(v->ctx, severity, code, text) != 0;
}

static void ver_say_all(ver_state *v, const ckpt_map *map)
{
    for (size_t i = 0; i < map->findings.n; i++) {
        const ckpt_finding *f = &map->findings.at[i];
        ver_say(v, (int)f->severity, f->code, f->text);
    }
}

/* ---- records ---- */

/* Order of records by file and offset, to match two maps of the same files. */
static int ver_order(const void *pa, const void *pb)
{
    const ckpt_source *a = *(const ckpt_source *const *)pa, *b = *(const ckpt_source *const *)pb;

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    if (a->n_bytes != b->n_bytes)
        return a->n_bytes < b->n_bytes ? -1 : 1;
    return (a->coding > b->coding) - (a->coding < b->coding);
}

/*
 * Make segments of map's sources refer to the sources of the same records in `all`. If a record is
 * not found there, or differs, its segments are dropped and it is read like any other.
 */
static int ver_translate(ckpt_segments *read, const ckpt_map *map, const ckpt_map *all,
                         ckpt_err *err)
{
    size_t n = all->sources.n, kept = 0;
    const ckpt_source **order = ckpt_alloc((n + 1) * sizeof(const ckpt_source *));

    if (!order)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        order[i] = &all->sources.at[i];
    if (n > 1)
        qsort(order, n, sizeof(const ckpt_source *), ver_order);
    for (size_t i = 0; i < read->n; i++) {
        const ckpt_source *s = &map->sources.at[read->at[i].source], **hit;

        hit = bsearch(&s, order, n, sizeof(const ckpt_source *), ver_order);
        if (!hit || !(*hit)->has_crc || !s->has_crc || (*hit)->crc != s->crc)
            continue;
        read->at[kept] = read->at[i];
        read->at[kept++].source = (uint32_t)(*hit - all->sources.at);
    }
    read->n = kept;
    ckpt_ledger_sort(read);
    ckpt_free(order);
    return CKPT_OK;
}

/* Check an archive that our reader has accepted with libzip too. */
static int ver_second(ckpt_map *all, ckpt_io *io, ckpt_err *err)
{
    ckpt_err other = {0};
    int rc = ckpt_zip_second(io, &other);

    if (rc == CKPT_OK)
        return CKPT_OK;
    return rc == CKPT_EFORMAT ? ckpt_map_problem(all, rc, err, "%s", other.text)
                              : ckpt_fail(err, rc, "%s", other.text);
}

/* List all records of all files, used by a tensor or not. Files have the same numbers as in map. */
static int ver_list_records(ckpt_map *all, const ckpt_map *map, ckpt_err *err)
{
    int rc = CKPT_OK;

    all->collect = true;
    for (uint32_t i = 0; rc == CKPT_OK && i < map->files.n; i++) {
        const ckpt_map_file *f = &map->files.at[i];
        ckpt_io *io = NULL;
        uint32_t index = 0;

        rc = ckpt_map_add_file(all, f, &index, err);
        if (rc != CKPT_OK || !f->format || !f->format->records)
            continue;
        rc = ckpt_io_again(&io, f, err);
        if (rc == CKPT_OK)
            rc = f->format->records(all, io, index, err);
        if (rc == CKPT_OK)
            rc = ver_second(all, io, err);
        ckpt_io_close(io);
    }
    return rc;
}

/*
 * List tensors with checksums in files of formats without a list of records: each chunk of a
 * .distcp file is its own archive.
 */
static int ver_list_tensors(ckpt_map *all, const ckpt_map *map, ckpt_err *err)
{
    uint32_t index = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < map->sources.n; i++) {
        const ckpt_source *s = &map->sources.at[i];
        const ckpt_map_file *f = s->kind == CKPT_SOURCE_FILE ? &map->files.at[s->file] : NULL;

        if (f && s->has_crc && !(f->format && f->format->records))
            rc = ckpt_map_add_source(all, s, &index, err);
    }
    return rc;
}

/* Check the CRC of every record; the CRCs of bytes read before are known. */
static int ver_records(ver_state *v, const ckpt_map *map, ckpt_segments *read, ckpt_err *err)
{
    ckpt_map *all = NULL;
    int rc = ckpt_map_create(&all, 0, err);

    if (rc == CKPT_OK)
        rc = ver_list_records(all, map, err);
    if (rc == CKPT_OK)
        rc = ver_list_tensors(all, map, err);
    if (rc == CKPT_OK)
        rc = ver_translate(read, map, all, err);
    if (rc == CKPT_OK)
        rc = ckpt_run_scrub(all, read, &ckpt_team_peers, v->run, &v->records, err);
    if (all)
        ver_say_all(v, all);
    ckpt_map_free(all);
    return rc;
}

/* True if each byte of the tensor is in a file's record that has a checksum. */
static bool ver_vouched(const ckpt_map *map, const ckpt_tensor *t)
{
    ckpt_box room;

    for (uint32_t i = 0; i < t->n_extents; i++) {
        const ckpt_source *s = &map->sources.at[ckpt_extent_of(t, i, &room)->source];
        if (s->kind == CKPT_SOURCE_FILE && !s->has_crc)
            return false;
    }
    return true;
}

/* Count the bytes of values, and those without a checksum. */
static void ver_payload(ver_state *v, const ckpt_map *map)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        uint64_t n = 0;

        if (t->owner)
            continue;
        (void)ckpt_dtype_bytes(t->dtype, t->n_elems, &n); // checked when the tensor was added
        v->values.n_payload += n;
        v->values.n_unvouched += ver_vouched(map, t) ? 0 : n;
    }
}

/* ---- values ---- */

/*
 * Make a target that drops its bytes: reading every tensor compares copies and counts values that
 * are not finite.
 */
static int ver_sink_map(ckpt_map **out, const ckpt_map *map, ckpt_err *err)
{
    const ckpt_source nowhere = {
        .kind = CKPT_SOURCE_ZERO, .n_bytes = UINT64_MAX, .name = "nowhere"};
    uint32_t source = 0;
    ckpt_map *to = NULL;
    int rc = ckpt_map_create(&to, 0, err);

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

/* Read every tensor; *out, the target, has the findings. */
static int ver_values(ver_state *v, const ckpt_map *map, ckpt_map **out, ckpt_segments *read,
                      ckpt_err *err)
{
    const ckpt_run_hooks hooks = {.read = read, .peers = &ckpt_team_peers};
    ckpt_plan *plan = NULL;
    int rc = ver_sink_map(out, map, err);

    if (rc == CKPT_OK)
        rc = ckpt_claim_count(map, *out, err);
    if (rc == CKPT_OK)
        rc = ckpt_plan_new(&plan, map, *out, v->run, err);
    if (rc == CKPT_OK)
        rc = ckpt_run(plan, NULL, v->run, &hooks, &v->values, err);
    ckpt_plan_free(plan);
    return rc;
}

/*
 * A result about the checkpoint becomes a finding; a failure of this process (memory, I/O,
 * interrupt) stays a failure.
 */
static int ver_absorb(ver_state *v, int rc, ckpt_err *err)
{
    switch (rc) {
    case CKPT_EFORMAT:
    case CKPT_EUNSUPPORTED:
    case CKPT_EUNSAFE:
    case CKPT_EMISSING:
    case CKPT_EMISMATCH:
        ver_say(v, CKPT_ERROR, rc, err->text);
        err->code = CKPT_OK;
        err->text[0] = 0;
        return CKPT_OK;
    default:
        return rc;
    }
}

/*
 * Check the bytes of tensors and of all records. Findings about records come first, because damage
 * explains more than a differing copy.
 */
static int ver_bytes(ver_state *v, const ckpt_map *map, ckpt_err *err)
{
    ckpt_segments read = {0};
    ckpt_err later = {0};
    ckpt_map *to = NULL;
    int rc, rc_values = CKPT_OK;

    // values can only be read if the structure is correct
    if (v->worst == CKPT_OK)
        rc_values = ver_values(v, map, &to, &read, &later);
    rc =
        rc_values == CKPT_ECANCELED ? CKPT_OK : ver_absorb(v, ver_records(v, map, &read, err), err);
    if (to)
        ver_say_all(v, to);
    if (rc == CKPT_OK)
        rc = ver_absorb(v, rc_values, &later);
    if (rc != CKPT_OK)
        rc = ckpt_fail(err, rc, "%s", later.text);
    ckpt_map_free(to);
    ckpt_vec_free(&read);
    return rc;
}

/* Check everything about one checkpoint and report each finding. */
static int ver_all(ver_state *v, const char *path, const ckpt_verify_opts *opts,
                   const ckpt_open_opts *open, ckpt_err *err)
{
    ckpt_map *map = NULL;
    int rc = ckpt_open(&map, path, open, err);

    if (rc == CKPT_OK) {
        ver_say_all(v, map);
        rc = ver_absorb(v, ckpt_map_check(map, err), err);
    }
    bool whole = rc == CKPT_OK && v->worst == CKPT_OK && !v->stopped;
    if (whole && opts->opened)
        opts->opened(v->ctx, map);
    if (rc == CKPT_OK && map && !v->stopped)
        rc = ver_bytes(v, map, err);
    if (rc == CKPT_OK && map)
        ver_payload(v, map);
    if (whole && opts->map)
        *opts->map = map;
    else
        ckpt_map_free(map);
    return ver_absorb(v, rc, err);
}

int ckpt_verify(const char *path, const ckpt_verify_opts *opts, ckpt_run_report *report,
                ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_verify_opts own;
    ckpt_open_opts open;
    ckpt_run_opts run;
    ckpt_err local = {0};
    ver_state v;

    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_verify_opts", err);
    if (rc == CKPT_OK)
        rc = ckpt_opts_take(&open, sizeof open, own.open, "ckpt_open_opts", err);
    if (rc == CKPT_OK)
        rc = ckpt_opts_take(&run, sizeof run, own.run, "ckpt_run_opts", err);
    if (rc == CKPT_OK && (!path || !*path))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no path to verify");
    if (rc != CKPT_OK)
        return rc;
    if (own.map)
        *own.map = NULL;
    v = (ver_state){.fn = own.finding, .ctx = own.finding_ctx, .run = &run};
    open.collect = true;
    open.with_optimizer = true;
    rc = ver_all(&v, path, &own, &open, &local);
    v.values.n_records_checked = v.records.n_records_checked;
    v.values.n_records_no_crc = v.records.n_records_no_crc;
    v.values.n_read += v.records.n_read;
    v.values.seconds += v.records.seconds;
    ckpt_opts_give(report, &v.values, sizeof v.values);
    if (rc != CKPT_OK)
        return ckpt_fail(err, rc, "%s", local.text);
    if (v.stopped)
        return ckpt_fail(err, CKPT_ECANCELED, "%s: verifying was stopped by its caller", path);
    if (v.worst != CKPT_OK)
        return ckpt_fail(err, v.worst, "%s: %s", path, ckpt_err_text(v.worst));
    return CKPT_OK;
}
