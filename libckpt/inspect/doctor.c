/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.c: examines a run: whether each tag is complete, the problems of those that are not, and
 * the state of `latest`.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/around.h"
#include "libckpt/base/opts.h"
#include "libckpt/commit/temp_names.h"
#include "libckpt/drivers.h"
#include "libckpt/inspect/doctor.h"
#include "libckpt/io/address.h"

/* The last part of a path, without trailing slashes. */
static const char *doc_base(ckpt_doc *d, const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    return ckpt_arena_string(d->map->arena, path + from, n - from);
}

/* ---- one run ---- */

/* Add a remark about a left-over of an interrupted conversion. */
static int doc_leftover(ckpt_doc *d, ckpt_doc_problems *all, const char *where, const char *name,
                        ckpt_left_kind kind)
{
    const char *text = ckpt_arena_printf(
        d->map->arena, "%s%s%s: %s; `ckpt clean` removes it", where, *where ? "/" : "", name,
        kind == CKPT_LEFT_FOLDER ? "a folder that a run of ckpt has not completed, or writes to now"
                                 : "a temporary file of an interrupted run, or of one at work");

    return ckpt_doc_keep(d, all, CKPT_OK, text);
}

/* Handle one entry of a run folder: a tag, a left-over, or something else. */
static int doc_take(ckpt_doc *d, ckpt_doc_run *run, const ckpt_entry *e)
{
    ckpt_left_kind left = ckpt_left_name(e->name);
    bool found = false, named = run->is.latest && strcmp(run->is.latest, e->name) == 0;
    ckpt_doc_tag t;

    if (left != CKPT_LEFT_NONE && e->is_dir == (left == CKPT_LEFT_FOLDER))
        return doc_leftover(d, &run->problems, run->is.name, e->name, left);
    if (!e->is_dir)
        return CKPT_OK;
    int rc = ckpt_doc_tag_new(d, &t, run, e->name);
    // examine the target of `latest` even if it does not look like a tag
    if (rc == CKPT_OK)
        rc = ckpt_doc_tag_look(d, &t, named, &found);
    if (rc != CKPT_OK || !found)
        return rc;
    t.order = run->tags.n;
    ckpt_doc_tag *slot = ckpt_vec_push(&run->tags);
    if (!slot)
        return ckpt_fail_memory(d->err);
    *slot = t;
    return CKPT_OK;
}

/*
 * Order tags by the numbers in their names for runs of other programs than DeepSpeed, then by
 * steps; if these are equal or unknown, by time; then as listed.
 */
static int doc_by_age(const void *a, const void *b)
{
    const ckpt_doc_tag *x = a, *y = b;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    if (x->is.step != y->is.step)
        return x->is.step < y->is.step ? -1 : 1;
    if (x->mtime_s != y->mtime_s)
        return x->mtime_s < y->mtime_s ? -1 : 1;
    if (x->mtime_ns != y->mtime_ns)
        return x->mtime_ns < y->mtime_ns ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* Report everything about a run, in order. */
static int doc_report(ckpt_doc *d, const ckpt_doc_run *run)
{
    const ckpt_doctor_opts *o = d->opts;
    int stop = 0;

    for (size_t i = 0; !stop && i < run->tags.n; i++) {
        const ckpt_doc_tag *t = &run->tags.at[i];
        stop = o->tag ? o->tag(o->ctx, &t->is) : 0;
        for (size_t k = 0; !stop && o->problem && k < t->problems.n; k++)
            stop = o->problem(o->ctx, t->is.name, t->problems.at[k].code, t->problems.at[k].text);
    }
    for (size_t k = 0; !stop && o->problem && k < run->problems.n; k++)
        stop = o->problem(o->ctx, NULL, run->problems.at[k].code, run->problems.at[k].text);
    if (!stop && o->health)
        stop = o->health(o->ctx, &run->is);
    return stop ? ckpt_fail(d->err, CKPT_ECANCELED, "%s: stopped", run->folder) : CKPT_OK;
}

/* Add a remark about the newest tag with a special form of moments. */
static int doc_moments(ckpt_doc *d, ckpt_doc_run *run)
{
    for (size_t i = run->tags.n; i-- > 0;) {
        const ckpt_doc_tag *t = &run->tags.at[i];
        if (t->moments)
            return ckpt_doc_keep(d, &run->problems, CKPT_OK,
                                 ckpt_arena_printf(d->map->arena, "%s: %s", t->dir, t->moments));
    }
    return CKPT_OK;
}

/* Examine a single tag folder from the caller, without a pointer. */
static int doc_alone(ckpt_doc *d, ckpt_doc_run *run)
{
    const char *dir = doc_base(d, run->folder);
    ckpt_doc_tag *t = dir ? ckpt_vec_push(&run->tags) : NULL;
    bool found = false;
    int rc = t ? ckpt_doc_tag_new(d, t, run, dir) : ckpt_fail_memory(d->err);

    if (rc == CKPT_OK)
        rc = ckpt_doc_tag_look(d, t, true, &found);
    if (rc == CKPT_OK)
        rc = ckpt_doc_tag_examine(d, t);
    if (rc != CKPT_OK)
        return rc;
    rc = doc_moments(d, run);
    if (rc != CKPT_OK)
        return rc;
    run->is.pointer = "";
    run->is.newest = t->is.code == CKPT_OK ? dir : NULL;
    run->is.code = t->is.code;
    run->is.reason = t->is.code == CKPT_OK
                         ? ""
                         : ckpt_arena_printf(d->map->arena, "%s: %s",
                                             ckpt_doc_health_name(t->is.health), t->is.reason);
    return run->is.reason ? CKPT_OK : ckpt_fail_memory(d->err);
}

/*
 * Set the number that orders tags: DeepSpeed's names need not contain one, and tags without a
 * layout count like others.
 */
static void doc_number(const ckpt_doc_run *run, ckpt_doc_tag *t)
{
    if (!run->layout)
        t->number = -1;
    else if (t->number < 0)
        t->number = ckpt_run_number(run->layout, t->dir);
}

/*
 * Check a trainer's files beside DeepSpeed's tags. Their problems count for the tag that `latest`
 * names, because a resume uses them with that tag.
 */
static int doc_around(ckpt_doc *d, ckpt_doc_run *run)
{
    ckpt_doc_tag *t = &run->tags.at[run->tags.n - 1];
    ckpt_map *map = NULL;

    for (size_t i = 0; run->is.latest && i < run->tags.n; i++)
        t = strcmp(run->tags.at[i].dir, run->is.latest) == 0 ? &run->tags.at[i] : t;
    int rc = ckpt_map_create(&map, 0, d->err);

    if (rc != CKPT_OK)
        return rc;
    map->collect = true;
    run->list.read = ckpt_format_read;
    rc = ckpt_around(map, &run->list, d->err);
    for (size_t i = 0; rc == CKPT_OK && i < map->findings.n; i++) {
        const char *text = map->findings.at[i].text;
        if (map->findings.at[i].severity > CKPT_INFO)
            rc = ckpt_doc_keep(d, &t->problems, CKPT_OK,
                               ckpt_arena_string(d->map->arena, text, strlen(text)));
    }
    ckpt_map_free(map);
    return rc;
}

/* Examine all tags of one run folder, then judge the run. */
static int doc_run_all(ckpt_doc *d, ckpt_doc_run *run)
{
    int rc = ckpt_doc_latest_read(d, run);

    for (size_t i = 0; rc == CKPT_OK && i < run->list.n; i++)
        rc = doc_take(d, run, &run->list.entry[i]);
    // the tags decide which pointer counts
    if (rc == CKPT_OK)
        rc = ckpt_doc_latest_read(d, run);
    for (size_t i = 0; rc == CKPT_OK && i < run->tags.n; i++)
        rc = ckpt_doc_tag_examine(d, &run->tags.at[i]);
    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; i < run->tags.n; i++)
        doc_number(run, &run->tags.at[i]);
    if (!run->layout && run->tags.n)
        rc = doc_around(d, run);
    if (rc != CKPT_OK)
        return rc;
    if (run->tags.n)
        qsort(run->tags.at, run->tags.n, sizeof *run->tags.at, doc_by_age);
    rc = doc_moments(d, run);
    if (rc != CKPT_OK)
        return rc;
    return ckpt_doc_latest_judge(d, run);
}

/* Examine and report a run, or a single tag; the result goes into d. */
static int doc_run_one(ckpt_doc *d, const char *name, const char *folder, bool alone)
{
    ckpt_doc_run run = {.folder = folder, .alone = alone, .is = {.name = name, .reason = ""}};
    int rc = ckpt_listing_read(&run.list, d->map, folder, d->err);

    if (rc == CKPT_OK)
        rc = alone ? doc_alone(d, &run) : doc_run_all(d, &run);
    if (rc == CKPT_OK)
        rc = doc_report(d, &run);
    if (rc == CKPT_OK) {
        d->code = run.is.code;
        d->why = ckpt_arena_printf(d->map->arena, "%s: %s", folder, run.is.reason);
        rc = d->why ? CKPT_OK : ckpt_fail_memory(d->err);
    }
    for (size_t i = 0; i < run.tags.n; i++)
        ckpt_vec_free(&run.tags.at[i].problems);
    ckpt_vec_free(&run.tags);
    ckpt_vec_free(&run.problems);
    return rc;
}

/* ---- finding runs ---- */

/* True for a subfolder that may be a tag or a run, but not a left-over. */
static bool doc_is_folder(const ckpt_entry *e)
{
    return e->is_dir && ckpt_left_name(e->name) == CKPT_LEFT_NONE;
}

/* True for a folder with the contents of a tag and without a pointer, which would make it a run. */
static bool doc_is_tag(const ckpt_listing *list)
{
    return (ckpt_doc_has_shards(list) || ckpt_doc_is_universal(list)) &&
           !ckpt_doc_has_pointer(list);
}

/* Set *is if a folder contains tags or a pointer. */
static int doc_is_run(ckpt_doc *d, const ckpt_listing *list, bool *is)
{
    int rc = CKPT_OK;

    *is = ckpt_doc_has_pointer(list);
    for (size_t i = 0; rc == CKPT_OK && !*is && i < list->n; i++) {
        ckpt_listing sub;
        ckpt_map *map = NULL;
        bool listed = false;
        if (!doc_is_folder(&list->entry[i]))
            continue;
        rc = ckpt_map_create(&map, 0, d->err);
        const char *path =
            rc == CKPT_OK ? ckpt_doc_join(map, list->folder, list->entry[i].name) : NULL;
        rc = path ? ckpt_doc_list(&sub, &listed, map, path, d->err) : ckpt_fail_memory(d->err);
        *is = listed && doc_is_tag(&sub);
        ckpt_map_free(map);
    }
    return rc;
}

/* Examine the runs in a folder: subfolders with tags or a pointer, as a Trainer leaves them. */
static int doc_each_run(ckpt_doc *d, const ckpt_listing *list, size_t *n_runs)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        ckpt_listing sub;
        bool is = false, listed = false;
        if (!doc_is_folder(&list->entry[i]))
            continue;
        const char *path = ckpt_doc_join(d->map, list->folder, list->entry[i].name);
        rc = path ? ckpt_doc_list(&sub, &listed, d->map, path, d->err) : ckpt_fail_memory(d->err);
        // tags belong to the parent folder's run
        if (listed && !doc_is_tag(&sub))
            rc = doc_is_run(d, &sub, &is);
        if (rc == CKPT_OK && is) {
            rc = doc_run_one(d, list->entry[i].name, path, false);
            (*n_runs)++;
        }
    }
    return rc;
}

/* Report a folder without tags and runs; it may contain an unfinished output. */
static int doc_nothing(ckpt_doc *d, const ckpt_listing *list)
{
    const char *left = NULL;

    for (size_t i = 0; !left && i < list->n; i++) {
        if (list->entry[i].is_dir && ckpt_left_name(list->entry[i].name) == CKPT_LEFT_FOLDER)
            left = list->entry[i].name;
    }
    return ckpt_fail(d->err, CKPT_EMISSING,
                     "%s: no run here: neither `latest` nor folders with *_states.pt files "
                     "(DeepSpeed), nor iterations of Megatron-LM, nor folders with .metadata "
                     "(PyTorch DCP), nor with files of each rank (FSDP)%s%s%s",
                     d->path, left ? "; " : "", left ? left : "",
                     left ? " is what a run of ckpt has not completed" : "");
}

/* Examine the caller's folder: a tag, a run, or a folder of runs. */
static int doc_folder(ckpt_doc *d, const ckpt_listing *list)
{
    bool self = false;
    size_t n_runs = 0;

    if (doc_is_tag(list)) {
        if (d->opts->fix_latest)
            return ckpt_fail(
                d->err, CKPT_EUSAGE,
                "%s: this is a tag folder; give the run folder above it, which names its tags",
                d->path);
        return doc_run_one(d, "", d->path, true);
    }
    int rc = doc_is_run(d, list, &self);
    if (rc == CKPT_OK)
        rc = doc_each_run(d, list, &n_runs);
    // the folder's own run comes last, because its result counts
    if (rc == CKPT_OK && self)
        return doc_run_one(d, "", d->path, false);
    return rc == CKPT_OK && n_runs == 0 ? doc_nothing(d, list) : rc;
}

int ckpt_doctor(const char *path, const ckpt_doctor_opts *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_doctor_opts own;
    ckpt_err local = {0};
    ckpt_doc d = {.path = path, .opts = &own, .err = &local};
    ckpt_listing list;
    struct stat st;
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_doctor_opts", err);

    if (rc == CKPT_OK)
        rc = ckpt_opts_take(&d.run, sizeof d.run, own.run, "ckpt_run_opts", err);
    if (rc == CKPT_OK && (!path || !*path))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no folder to examine");
    if (rc != CKPT_OK)
        return rc;
    if (ckpt_address_is(path))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: this is an address, but ckpt doctor examines only local folders "
                         "(ckpt verify reads addresses)",
                         path);
    if (stat(path, &st) != 0)
        return ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot be opened", path);
    if (!S_ISDIR(st.st_mode))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: not a folder; give the run folder, which holds `latest`", path);
    rc = ckpt_map_create(&d.map, 0, &local);
    if (rc == CKPT_OK)
        rc = ckpt_listing_read(&list, d.map, path, &local);
    if (rc == CKPT_OK)
        rc = doc_folder(&d, &list);
    if (rc != CKPT_OK)
        rc = ckpt_fail(err, rc, "%s", local.text);
    else if (d.code != CKPT_OK)
        rc = ckpt_fail(err, d.code, "%s", d.why);
    ckpt_map_free(d.map);
    return rc;
}
