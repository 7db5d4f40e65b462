/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_folders.c: finds the checkpoint to read in a run's folder, as torchtitan
 * (checkpoint/step-N), accelerate (checkpoints/checkpoint_N) and the Trainer of transformers
 * (checkpoint-N) lay it out.
 *
 * The driver decides which folder is a checkpoint and whether its save finished (ckpt_run_layout),
 * so formats with one file per rank or one for all use this too.  No file names the current
 * checkpoint: the finished one with the highest number at the end of its name is read.  Newer ones
 * whose save did not finish are skipped with a note.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "formats/training/step_folders.h"
#include "libckpt/base/number.h"

enum {
    DST_MAX_LOOKED = 256, /* subfolders that a probe reads, the newest first */
    DST_MAX_DIGITS = 18
};

/* ---- one folder ---- */

bool ckpt_train_number_of(char out[CKPT_RUN_NAME], const char *folder)
{
    assert(out && folder);
    size_t n = strlen(folder), from = n;

    while (from > 0 && folder[from - 1] >= '0' && folder[from - 1] <= '9')
        from--;
    if (from == n || n - from > DST_MAX_DIGITS)
        return false;
    (void)snprintf(out, CKPT_RUN_NAME, "%s", folder + from);
    return true;
}

/* ---- a run ---- */

/* A checkpoint of a run. */
typedef struct drn_step {
    const char *name;
    int64_t number;
    bool is, done;
    bool cut; /* the save ended before the folder had the form of a checkpoint */
} drn_step;

/* The folder with the checkpoints, and their kind. */
typedef struct drn_run {
    ckpt_listing list;
    const ckpt_run_layout *kind;
} drn_run;

static drn_step drn_look(ckpt_map *map, const ckpt_listing *list, const ckpt_entry *e,
                         const ckpt_run_layout *kind)
{
    drn_step s = {.name = e->name, .number = ckpt_run_number(kind, e->name)};
    const char *path =
        e->is_dir ? ckpt_arena_printf(map->arena, "%s/%s", list->folder, e->name) : NULL;
    ckpt_listing sub;

    if (path && ckpt_listing_read(&sub, map, path, NULL) == CKPT_OK) {
        s.is = kind->is_tag(&sub);
        s.done = kind->is_done(&sub);
        s.cut = !s.is && kind->is_cut && kind->is_cut(&sub);
    }
    return s;
}

/* The subfolder with the checkpoints, as torchtitan and accelerate have it. */
static const char *drn_below(const ckpt_listing *list)
{
    static const char *const names[] = {"checkpoint", "checkpoints"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ckpt_entry *e = ckpt_listing_find(list, names[i]);
        if (e && e->is_dir)
            return names[i];
    }
    return NULL;
}

static bool drn_holds(ckpt_map *map, const ckpt_listing *list, const ckpt_run_layout *kind)
{
    unsigned looked = 0;

    for (size_t i = list->n; i-- > 0 && looked < DST_MAX_LOOKED;) {
        if (!list->entry[i].is_dir)
            continue;
        looked++;
        if (drn_look(map, list, &list->entry[i], kind).is)
            return true;
    }
    return false;
}

/* List the folder with the checkpoints: the given one, or one below it; false if neither has
 * any. */
static bool drn_find_run(ckpt_map *map, const ckpt_listing *list, const ckpt_run_layout *kind,
                         ckpt_listing *run)
{
    const char *name = drn_below(list), *path;

    *run = *list;
    if (drn_holds(map, list, kind))
        return true;
    path = name ? ckpt_arena_printf(map->arena, "%s/%s", list->folder, name) : NULL;
    return path && ckpt_listing_read(run, map, path, NULL) == CKPT_OK && !kind->is_tag(run) &&
           drn_holds(map, run, kind);
}

bool ckpt_train_is_run(const ckpt_listing *list, const ckpt_run_layout *kind)
{
    assert(list && kind && kind->is_tag);
    ckpt_listing run;

    return drn_find_run(list->map, list, kind, &run);
}

int64_t ckpt_train_newest(const ckpt_listing *list, const ckpt_run_layout *kind)
{
    assert(list && kind);
    ckpt_listing run;
    int64_t newest = -1;

    if (!drn_find_run(list->map, list, kind, &run))
        return -1;
    for (size_t i = 0; i < run.n; i++) {
        drn_step s = drn_look(list->map, &run, &run.entry[i], kind);
        newest = s.is && s.done && s.number > newest ? s.number : newest;
    }
    return newest;
}

static bool drn_is_tag(const ckpt_listing *run, const ckpt_entry *e, const void *kind)
{
    return drn_look(run->map, run, e, kind).is;
}

static int drn_none(const drn_run *run, const char *why, ckpt_err *err)
{
    return ckpt_run_no_tag(&run->list, drn_is_tag, run->kind, why, err);
}

/* Find the newest finished checkpoint, and note newer unfinished ones. */
static int drn_newest(ckpt_map *map, const drn_run *run, const char **out, ckpt_err *err)
{
    drn_step best = {.number = -1}, late = {.number = -1};
    const char *last = run->kind->last;
    char why[96] = "no checkpoint here is finished", lacks[64] = "";
    size_t n_done = 0;

    for (size_t i = 0; i < run->list.n; i++) {
        drn_step s = drn_look(map, &run->list, &run->list.entry[i], run->kind);
        if (s.cut && s.number > late.number)
            late = s;
        if (!s.is)
            continue;
        if (s.done && (n_done++ == 0 || s.number > best.number))
            best = s;
        else if (s.done && s.number == best.number)
            return drn_none(run, "the folder names do not end in different numbers", err);
        if (!s.done && s.number > late.number)
            late = s;
    }
    if (last) {
        (void)snprintf(why, sizeof why, "no checkpoint here is finished (%s is written last)",
                       last);
        (void)snprintf(lacks, sizeof lacks, " (no %s)", last);
    }
    if (n_done == 0)
        return drn_none(run, why, err);
    *out = best.name;
    if (late.number <= best.number)
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s/%s: its save did not finish%s: %s is used instead", run->list.folder,
                         late.name, lacks, best.name);
}

/* Find the caller's tag: the name of a folder, or the number at the end of a single one's name. */
static int drn_asked(ckpt_map *map, const drn_run *run, const char *asked, const char **out,
                     ckpt_err *err)
{
    const ckpt_entry *e = ckpt_listing_find(&run->list, asked);
    uint64_t number = 0;
    bool digits = ckpt_parse_u64(asked, &number) && strlen(asked) <= DST_MAX_DIGITS;
    const char *found = NULL, *why;

    if (!ckpt_path_part_ok(asked, strlen(asked)))
        return ckpt_fail(err, CKPT_EUNSAFE, "tag '%s' is not the plain name of a folder", asked);
    if (e && e->is_dir)
        found = e->name;
    for (size_t i = 0; !e && digits && i < run->list.n; i++) {
        if (ckpt_run_number(run->kind, run->list.entry[i].name) != (int64_t)number ||
            !drn_look(map, &run->list, &run->list.entry[i], run->kind).is)
            continue;
        if (found)
            return drn_none(run, "several folders have this number", err);
        found = run->list.entry[i].name;
    }
    *out = found;
    if (found)
        return CKPT_OK;
    why = ckpt_arena_printf(map->arena, "no folder for the tag %s", asked);
    return why ? drn_none(run, why, err) : ckpt_fail_memory(err);
}

int ckpt_train_find_step(ckpt_map *map, ckpt_listing *list, const ckpt_run_layout *kind,
                         const char *asked, ckpt_err *err)
{
    assert(map && list && kind && kind->is_tag);
    ckpt_read_file *read = list->read;
    drn_run run = {.kind = kind};
    const char *tag = NULL, *path;
    int rc;

    if (!asked && kind->is_tag(list))
        return CKPT_OK;
    if (!drn_find_run(map, list, kind, &run.list))
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: not a run: no folder in it is a checkpoint of this format",
                         list->folder);
    rc = asked ? drn_asked(map, &run, asked, &tag, err) : drn_newest(map, &run, &tag, err);
    if (rc != CKPT_OK)
        return rc;
    path = ckpt_arena_printf(map->arena, "%s/%s", run.list.folder, tag);
    rc = path ? ckpt_listing_read(list, map, path, err) : ckpt_fail_memory(err);
    list->read = read;
    map->path = path;
    map->known.tag = path ? strrchr(path, '/') + 1 : NULL;
    return rc == CKPT_OK ? ckpt_map_fact(map, err, "tag", "%s", map->known.tag) : rc;
}
