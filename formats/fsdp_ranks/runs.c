/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs.c: goes from a run of verl or SkyRL to the folder of one model's files.
 *
 *     RUN/latest_checkpointed_iteration.txt   verl: "3"
 *     RUN/latest_ckpt_global_step.txt         SkyRL
 *     RUN/global_step_3/actor/                policy/ with SkyRL; critic/ beside it
 *
 * The path may be the run (with its tracker, a tag "global_step_3" or "3", or its newest step), a
 * step, or the model's folder itself.  A step with several models is refused, because none of them
 * is the obvious one.  `ckpt doctor` uses both kinds of runs.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/fsdp_ranks/ranks.h"
#include "libckpt/base/number.h"
#include "libckpt/io/io.h"

enum {
    RRN_MAX_TRACKER = 4096, /* bytes */
    RRN_MAX_LISTED = 12,    /* limit of names in a message */
    RRN_MAX_DIGITS = 18
};

static const char rrn_step[] = "global_step_";
static const char rrn_verl[] = "latest_checkpointed_iteration.txt",
                  rrn_skyrl[] = "latest_ckpt_global_step.txt", rrn_policy[] = "policy";
static const char *const rrn_tracker[] = {rrn_verl, rrn_skyrl};

/* Parse a whole text as the number of a step. */
static bool rrn_parse(const char *text, int64_t *out)
{
    uint64_t n = 0;
    bool ok = ckpt_parse_u64(text, &n) && strlen(text) <= RRN_MAX_DIGITS;

    *out = ok ? (int64_t)n : -1;
    return ok;
}

/* The number of a step's folder, or -1. */
static int64_t rrn_number(const ckpt_entry *e)
{
    int64_t number;

    return e->is_dir && strncmp(e->name, rrn_step, sizeof rrn_step - 1) == 0 &&
                   rrn_parse(e->name + sizeof rrn_step - 1, &number)
               ? number
               : -1;
}

bool ckpt_ranks_is_run(const ckpt_listing *list)
{
    bool is = false;

    for (size_t i = 0; !is && i < list->n; i++)
        is = rrn_number(&list->entry[i]) >= 0;
    return is;
}

/* True if the folder itself is a step's. */
static bool rrn_is_step(const ckpt_listing *list)
{
    const char *slash = strrchr(list->folder, '/');
    const ckpt_entry e = {.name = slash ? slash + 1 : list->folder, .is_dir = true};

    return rrn_number(&e) >= 0;
}

bool ckpt_ranks_is_step(const ckpt_listing *list)
{
    bool dirs = false;

    for (size_t i = 0; !dirs && i < list->n; i++)
        dirs = list->entry[i].is_dir;
    return dirs && rrn_is_step(list);
}

/* Append a name to a list; NULL: no memory. */
static const char *rrn_more(ckpt_map *map, const char *list, const char *name)
{
    return list ? ckpt_arena_printf(map->arena, "%s, %s", list, name) : name;
}

/* ---- a step ---- */

/* The folders of a step with per-rank files: their number, one of them, and all names. */
typedef struct rrn_roles {
    unsigned n;
    const char *one, *all;
    ckpt_listing list; /* content of the folder `one` */
} rrn_roles;

static int rrn_look(ckpt_map *map, const ckpt_listing *step, rrn_roles *out, ckpt_err *err)
{
    *out = (rrn_roles){0};
    for (size_t i = 0; i < step->n; i++) {
        ckpt_err local = {0};
        ckpt_listing sub;
        const char *path =
            step->entry[i].is_dir
                ? ckpt_arena_printf(map->arena, "%s/%s", step->folder, step->entry[i].name)
                : NULL;
        if (!path || ckpt_listing_read(&sub, map, path, &local) != CKPT_OK ||
            !ckpt_ranks_is_one(&sub))
            continue;
        out->list = sub;
        out->one = step->entry[i].name;
        if (out->n++ < RRN_MAX_LISTED)
            out->all = rrn_more(map, out->all, out->one);
        if (!out->all)
            return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

/* Go from a step to its only model. */
static int rrn_role(ckpt_map *map, ckpt_listing *list, ckpt_err *err)
{
    ckpt_read_file *read = list->read;
    rrn_roles roles;
    int rc = rrn_look(map, list, &roles, err);

    if (rc != CKPT_OK)
        return rc;
    if (roles.n == 0)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: no folder of this step holds files of FSDP's ranks", list->folder);
    if (roles.n > 1)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: holds several models (%s): name the folder of one, %s/%s",
                         list->folder, roles.all, list->folder, roles.one);
    *list = roles.list;
    list->read = read;
    map->path = list->folder;
    return ckpt_map_fact(map, err, "model", "%s", roles.one);
}

/* ---- a run ---- */

static bool rrn_is_tag(const ckpt_listing *run, const ckpt_entry *e, const void *ctx)
{
    (void)run;
    (void)ctx;
    return rrn_number(e) >= 0;
}

static int rrn_none(const ckpt_listing *run, const char *why, ckpt_err *err)
{
    return ckpt_run_no_tag(run, rrn_is_tag, NULL, why, err);
}

/* The folder for a number or a folder's name, or NULL. */
static const ckpt_entry *rrn_named(const ckpt_listing *run, const char *text, size_t n)
{
    uint64_t asked = 0;
    bool digits = n <= RRN_MAX_DIGITS && ckpt_scan_u64(text, &asked) == text + n;

    for (size_t i = 0; i < run->n; i++) {
        const ckpt_entry *e = &run->entry[i];
        int64_t number = rrn_number(e);
        bool same = strlen(e->name) == n && memcmp(e->name, text, n) == 0;
        if (number >= 0 && (same || (digits && (int64_t)asked == number)))
            return e;
    }
    return NULL;
}

/* Find the step in the tracker; *out stays NULL without a tracker. */
static int rrn_tracked(ckpt_map *map, const ckpt_listing *run, const ckpt_entry **out,
                       ckpt_err *err)
{
    const char *name = NULL, *path;
    char *text = NULL;
    uint64_t n = 0;
    int rc;

    for (size_t i = 0; i < sizeof rrn_tracker / sizeof *rrn_tracker && !name; i++)
        name = ckpt_listing_find(run, rrn_tracker[i]) ? rrn_tracker[i] : NULL;
    if (!name)
        return CKPT_OK;
    path = ckpt_arena_printf(map->arena, "%s/%s", run->folder, name);
    rc = path ? ckpt_io_slurp(&text, &n, path, RRN_MAX_TRACKER, err) : ckpt_fail_memory(err);
    while (rc == CKPT_OK && n > 0 && memchr(" \t\r\n", text[n - 1], 4))
        n--;
    if (rc == CKPT_OK)
        text[n] = '\0';
    if (rc == CKPT_OK && (n == 0 || strspn(text, "0123456789") != n || n > RRN_MAX_DIGITS))
        rc = ckpt_fail(err, CKPT_EFORMAT,
                       "%s: '%.40s' is not the number of a step; choose one with -t/--tag", path,
                       text);
    if (rc == CKPT_OK && !(*out = rrn_named(run, text, n))) {
        path = ckpt_arena_printf(map->arena, "%s names a step that does not exist: %s%s", name,
                                 rrn_step, text);
        rc = path ? rrn_none(run, path, err) : ckpt_fail_memory(err);
    }
    ckpt_free(text);
    return rc;
}

/* The newest step, for runs without a tracker. */
static const ckpt_entry *rrn_newest(const ckpt_listing *run)
{
    const ckpt_entry *best = NULL;

    for (size_t i = 0; i < run->n; i++) {
        if (rrn_number(&run->entry[i]) > (best ? rrn_number(best) : -1))
            best = &run->entry[i];
    }
    return best;
}

static int rrn_choose(ckpt_map *map, const ckpt_listing *run, const char *asked,
                      const ckpt_entry **out, ckpt_err *err)
{
    const char *why;
    int rc;

    *out = NULL;
    if (asked) {
        *out = rrn_named(run, asked, strlen(asked));
        why = *out ? NULL : ckpt_arena_printf(map->arena, "no folder for the tag %s", asked);
        return *out ? CKPT_OK : why ? rrn_none(run, why, err) : ckpt_fail_memory(err);
    }
    rc = rrn_tracked(map, run, out, err);
    if (rc != CKPT_OK || *out)
        return rc;
    *out = rrn_newest(run);
    return ckpt_map_note(map, CKPT_INFO, err,
                         "%s: the tracker file is missing: ckpt uses the newest step, %s",
                         run->folder, (*out)->name);
}

int ckpt_ranks_descend(ckpt_map *map, ckpt_listing *list, const char *asked, ckpt_err *err)
{
    assert(map && list);
    ckpt_read_file *read = list->read;
    const ckpt_entry *step = NULL;
    const char *path;
    int rc;

    if (!asked && ckpt_ranks_is_one(list))
        return CKPT_OK;
    if (!ckpt_ranks_is_run(list) && !asked && ckpt_ranks_is_step(list))
        return rrn_role(map, list, err);
    if (!ckpt_ranks_is_run(list))
        return ckpt_fail(err, CKPT_EMISSING, "%s: not a run: --tag needs folders named %sN",
                         list->folder, rrn_step);
    rc = rrn_choose(map, list, asked, &step, err);
    if (rc != CKPT_OK)
        return rc;
    map->known.tag = step->name;
    path = ckpt_arena_printf(map->arena, "%s/%s", list->folder, step->name);
    rc = path ? ckpt_listing_read(list, map, path, err) : ckpt_fail_memory(err);
    list->read = read;
    if (rc == CKPT_OK)
        rc = ckpt_map_fact(map, err, "tag", "%s", map->known.tag);
    // a step's folder may contain the files themselves
    if (rc == CKPT_OK && ckpt_ranks_is_one(list)) {
        map->path = list->folder;
        return CKPT_OK;
    }
    return rc == CKPT_OK ? rrn_role(map, list, err) : rc;
}

/* ---- for ckpt doctor ---- */

static bool rrn_is_skyrl(const ckpt_listing *list)
{
    const ckpt_entry *policy = ckpt_listing_find(list, rrn_policy);

    return policy && policy->is_dir && ckpt_ranks_is_step(list);
}

static bool rrn_folder(char out[CKPT_RUN_NAME], const char *text)
{
    int64_t number;

    return rrn_parse(text, &number) &&
           snprintf(out, CKPT_RUN_NAME, "%s%" PRId64, rrn_step, number) > 0;
}

static bool rrn_text(char out[CKPT_RUN_NAME], const char *folder)
{
    const ckpt_entry e = {.name = folder, .is_dir = true};
    int64_t number = rrn_number(&e);

    return number >= 0 && snprintf(out, CKPT_RUN_NAME, "%" PRId64, number) > 0;
}

const ckpt_run_layout ckpt_ranks_skyrl = {
    .is_tag = rrn_is_skyrl,
    .pointer = rrn_skyrl,
    .is_run = ckpt_ranks_is_run,
    .several = true,
    .folder = rrn_folder,
    .text = rrn_text,
};

const ckpt_run_layout ckpt_ranks_verl = {
    .is_tag = ckpt_ranks_is_step,
    .pointer = rrn_verl,
    .is_run = ckpt_ranks_is_run,
    .several = true,
    .folder = rrn_folder,
    .text = rrn_text,
};
