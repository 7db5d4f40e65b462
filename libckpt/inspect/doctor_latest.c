/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_latest.c: examines the file `latest` of a run, and makes it name another tag.
 *
 * The doctor only writes here: on request, one small file, replaced by a rename.
 */
#include <string.h>

#include "libckpt/commit/latest.h"
#include "libckpt/inspect/doctor.h"

enum { DOL_MAX_POINTER = 4096 /* bytes of `latest` */ };

static const char dol_latest[] = "latest", dol_latest_universal[] = "latest_universal";

/* ---- `latest` ---- */

/* Record the reason why the pointer is useless. */
static int dol_bad_pointer(ckpt_doc *d, ckpt_doc_run *run, int code, const char *why)
{
    run->is.code = code;
    run->is.reason = ckpt_arena_printf(d->map->arena, "`%s` %s", run->is.pointer, why);
    return run->is.reason ? CKPT_OK : ckpt_fail_memory(d->err);
}

/*
 * Find the tag for a pointer's text: a folder's name, or the folder that the run's layout derives
 * from it.
 */
static int dol_names(ckpt_doc *d, ckpt_doc_run *run, const char *text)
{
    char folder[CKPT_RUN_NAME];

    if (!text)
        return ckpt_fail_memory(d->err);
    run->is.latest = text;
    if (!run->layout)
        return CKPT_OK;
    run->is.latest = NULL;
    if (!run->layout->folder(folder, text))
        return dol_bad_pointer(d, run, CKPT_EFORMAT, "names no checkpoint of such runs");
    run->is.latest = ckpt_arena_string(d->map->arena, folder, strlen(folder));
    return run->is.latest ? CKPT_OK : ckpt_fail_memory(d->err);
}

/*
 * Read a pointer: the name of one folder beside it, without trailing white space; else is.code gets
 * the reason.
 */
static int dol_read(ckpt_doc *d, ckpt_doc_run *run)
{
    const ckpt_entry *e = ckpt_listing_find(&run->list, run->is.pointer);
    const char *path = ckpt_doc_join(d->map, run->folder, run->is.pointer);
    ckpt_err local = {0};
    char *text = NULL;
    uint64_t n = 0;

    if (!path)
        return ckpt_fail_memory(d->err);
    if (!e)
        return dol_bad_pointer(d, run, CKPT_EMISSING,
                               "is missing: a resumed run would begin at step 0");
    if (e->is_dir || e->size > DOL_MAX_POINTER)
        return dol_bad_pointer(d, run, CKPT_EFORMAT, "is not a file that names a tag");
    int rc = ckpt_io_slurp(&text, &n, path, DOL_MAX_POINTER, &local);
    if (rc != CKPT_OK)
        return dol_bad_pointer(d, run, rc, "cannot be read");
    // not strchr, because a NUL is not white space
    while (n > 0 && memchr(" \t\r\n\v\f", text[n - 1], 6))
        n--;
    if (n == 0)
        rc = dol_bad_pointer(d, run, CKPT_EMISSING, "is empty");
    else if (!ckpt_path_part_ok(text, n))
        rc = dol_bad_pointer(d, run, CKPT_EUNSAFE,
                             "is unsafe: it holds no plain name of a folder beside it");
    else
        rc = dol_names(d, run, ckpt_arena_string(d->map->arena, text, n));
    ckpt_free(text);
    return rc;
}

static ckpt_doc_tag *dol_find(const ckpt_doc_run *run, const char *dir)
{
    for (size_t i = 0; dir && i < run->tags.n; i++) {
        if (strcmp(run->tags.at[i].dir, dir) == 0)
            return &run->tags.at[i];
    }
    return NULL;
}

/* True for the pointer of universal checkpoints, which have their own. */
static bool dol_is_universal_pointer(const ckpt_doc_run *run)
{
    return run->is.pointer == dol_latest_universal;
}

/* Judge the tag that the pointer names. */
static const char *dol_judge_tag(ckpt_doc *d, const ckpt_doc_run *run, const ckpt_doc_tag *t,
                                 int *code)
{
    ckpt_arena *arena = d->map->arena;

    *code = t->is.code;
    if (t->is.code != CKPT_OK && !*run->is.pointer)
        return ckpt_arena_printf(arena, "%s, the newest finished one, is %s: %s", t->dir,
                                 ckpt_doc_health_name(t->is.health), t->is.reason);
    if (t->is.code != CKPT_OK)
        return ckpt_arena_printf(arena, "`%s` names %s, which is %s: %s", run->is.pointer, t->dir,
                                 ckpt_doc_health_name(t->is.health), t->is.reason);
    if (t->is.is_universal == dol_is_universal_pointer(run))
        return "";
    *code = CKPT_EMISMATCH;
    return ckpt_arena_printf(
        arena, "`%s` names %s, which is %s: that is what `%s` is for", run->is.pointer, t->dir,
        t->is.is_universal ? "a universal checkpoint" : "not a universal checkpoint",
        t->is.is_universal ? dol_latest_universal : dol_latest);
}

/* Judge the pointer after all tags are examined. */
static int dol_judge(ckpt_doc *d, ckpt_doc_run *run)
{
    ckpt_doc_tag *t = dol_find(run, run->is.latest);

    if (!run->is.latest)
        return CKPT_OK;
    if (t) {
        t->is.is_latest = true;
        run->is.reason = dol_judge_tag(d, run, t, &run->is.code);
    } else {
        run->is.code = CKPT_EMISSING;
        run->is.reason = ckpt_arena_printf(d->map->arena, "`%s` names %s, which is not there",
                                           run->is.pointer, run->is.latest);
    }
    return run->is.reason ? CKPT_OK : ckpt_fail_memory(d->err);
}

/*
 * Judge the second pointer of a run with ordinary and universal tags: its problem is a remark with
 * a code.
 */
static int dol_judge_second(ckpt_doc *d, ckpt_doc_run *run)
{
    ckpt_doc_run other = {.folder = run->folder, .list = run->list, .tags = run->tags};

    if (run->is.pointer != dol_latest || !ckpt_doc_has(&run->list, dol_latest_universal, false))
        return CKPT_OK;
    other.is =
        (ckpt_run_health){.name = run->is.name, .pointer = dol_latest_universal, .reason = ""};
    int rc = dol_read(d, &other);
    if (rc == CKPT_OK)
        rc = dol_judge(d, &other);
    return rc == CKPT_OK && other.is.code != CKPT_OK
               ? ckpt_doc_keep(d, &run->problems, other.is.code, other.is.reason)
               : rc;
}

/* Find the newest tag that the pointer could name; the tags are sorted. */
static void dol_find_newest(ckpt_doc_run *run)
{
    for (size_t i = 0; i < run->tags.n; i++) {
        const ckpt_doc_tag *t = &run->tags.at[i];
        if (t->is.code == CKPT_OK && t->is.is_universal == dol_is_universal_pointer(run))
            run->is.newest = t->dir;
    }
}

/* ---- changing `latest` ---- */

/* Report the reason why the pointer is not replaced. */
static int dol_leave(ckpt_doc *d, ckpt_doc_run *run, const char *why)
{
    run->is.reason =
        ckpt_arena_printf(d->map->arena, "%s%s%sso `%s` is left as it is", run->is.reason,
                          *run->is.reason ? "; " : "", why, run->is.pointer);
    return run->is.reason ? CKPT_OK : ckpt_fail_memory(d->err);
}

/* Make `latest` name the newest whole tag; without one nothing changes. */
static int dol_fix(ckpt_doc *d, ckpt_doc_run *run)
{
    ckpt_doc_tag *was = dol_find(run, run->is.latest);
    ckpt_err local = {0};

    if (!d->opts->fix_latest || dol_is_universal_pointer(run))
        return CKPT_OK;
    if (!*run->is.pointer)
        return ckpt_doc_keep(d, &run->problems, CKPT_OK,
                             "no file names one of them: there is nothing to fix");
    if (run->is.latest && run->is.newest && strcmp(run->is.latest, run->is.newest) == 0)
        return CKPT_OK;
    // a tag that could not be judged may be whole, and newer
    if (was && was->is.health == CKPT_TAG_UNKNOWN)
        return dol_leave(d, run, "");
    if (!run->is.newest) {
        run->is.code = CKPT_EMISSING;
        return dol_leave(d, run, "no tag here is whole, ");
    }
    char text[CKPT_RUN_NAME];
    const char *to = run->is.newest;
    if (run->layout && run->layout->text(text, to))
        to = text;
    if (ckpt_latest_replace(run->folder, run->is.pointer, to, &local) != CKPT_OK) {
        run->is.code = local.code;
        run->is.reason = ckpt_arena_printf(d->map->arena, "%s", local.text);
        return run->is.reason ? CKPT_OK : ckpt_fail_memory(d->err);
    }
    if (was)
        was->is.is_latest = false;
    dol_find(run, run->is.newest)->is.is_latest = true;
    run->is.fixed = run->is.newest;
    run->is.code = CKPT_OK;
    run->is.reason = "";
    return CKPT_OK;
}

/* ---- for the runs ---- */

/* Without a pointer a resume uses the newest finished tag. */
static int dol_newest(ckpt_doc_run *run)
{
    int64_t best = INT64_MIN;

    for (size_t i = 0; i < run->tags.n; i++) {
        const ckpt_doc_tag *t = &run->tags.at[i];
        if (t->done && t->number >= best) {
            best = t->number;
            run->is.latest = t->dir;
        }
    }
    if (run->is.latest)
        return CKPT_OK;
    run->is.code = CKPT_EMISSING;
    run->is.reason = "no checkpoint here is finished: a resumed run would begin at step 0";
    return CKPT_OK;
}

/* Choose the layout by its pointer: `latest` is DeepSpeed's, even beside others. */
static const ckpt_run_layout *dol_layout(const ckpt_doc_run *run)
{
    const ckpt_run_layout *layout = NULL;

    if (ckpt_doc_has_deepspeed(&run->list))
        return NULL;
    layout = ckpt_doc_pointed(&run->list);
    for (size_t i = 0; !layout && i < run->tags.n; i++)
        layout = run->tags.at[i].layout;
    return layout;
}

/* The pointer is `latest`, unless there are only universal checkpoints and their own pointer. */
int ckpt_doc_latest_read(ckpt_doc *d, ckpt_doc_run *run)
{
    bool universal = !ckpt_doc_has(&run->list, dol_latest, false) &&
                     ckpt_doc_has(&run->list, dol_latest_universal, false);

    for (size_t i = 0; universal && i < run->tags.n; i++)
        universal = run->tags.at[i].is.is_universal;
    run->layout = dol_layout(run);
    run->is.pointer = run->layout ? run->layout->pointer
                      : universal ? dol_latest_universal
                                  : dol_latest;
    run->is.latest = NULL;
    run->is.code = CKPT_OK;
    run->is.reason = "";
    return *run->is.pointer ? dol_read(d, run) : dol_newest(run);
}

int ckpt_doc_latest_judge(ckpt_doc *d, ckpt_doc_run *run)
{
    dol_find_newest(run);
    int rc = dol_judge(d, run);
    if (rc == CKPT_OK)
        rc = dol_judge_second(d, run);
    return rc == CKPT_OK ? dol_fix(d, run) : rc;
}
