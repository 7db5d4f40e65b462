/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.c: goes from the user's path to the folder of one iteration.
 *
 * The path may be a run's folder, with its tracker file or a tag, or an iteration's folder itself.
 * A tag is a folder's name ("iter_0000003", "release"), or the number in the tracker ("3").  NeMo 2
 * has no tracker; in its folder of a checkpoint, the iteration is the folder "weights".
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/legacy.h"
#include "libckpt/base/number.h"

enum {
    MGF_MAX_TRACKER = 4096 /* limit of the tracker file in bytes */
};

/* True for a folder with one checkpoint, complete or not. */
static bool mgf_is_one(const ckpt_listing *list)
{
    return ckpt_meg_is_dist(list) || ckpt_meg_is_legacy(list) || ckpt_meg_is_fsdp(list);
}

static const char *mgf_path(ckpt_map *map, const ckpt_listing *list, const char *name)
{
    size_t n = strlen(list->folder);

    return ckpt_arena_printf(map->arena, n && list->folder[n - 1] == '/' ? "%s%s" : "%s/%s",
                             list->folder, name);
}

static bool mgf_has(const ckpt_listing *list, const char *name)
{
    const ckpt_entry *e = ckpt_listing_find(list, name);

    return e && e->is_dir;
}

static bool mgf_is_tag(const ckpt_listing *run, const ckpt_entry *e, const void *ctx)
{
    (void)run;
    (void)ctx;
    return ckpt_meg_is_iter(e->name) || strcmp(e->name, "release") == 0;
}

/* Fail with CKPT_EMISSING and list the iterations that --tag could name. */
static int mgf_no_tag(const ckpt_listing *list, const char *reason, const char *tag, ckpt_err *err)
{
    const char *why =
        ckpt_arena_printf(list->map->arena, "%s%s%s", reason, tag ? " " : "", tag ? tag : "");

    return why ? ckpt_run_no_tag(list, mgf_is_tag, NULL, why, err) : ckpt_fail_memory(err);
}

bool ckpt_meg_folder(char out[CKPT_RUN_NAME], const char *text)
{
    uint64_t n = 0;

    if (strcmp(text, "release") == 0)
        (void)snprintf(out, CKPT_RUN_NAME, "release");
    else if (strlen(text) <= CKPT_MEG_DIGITS && ckpt_parse_u64(text, &n))
        (void)snprintf(out, CKPT_RUN_NAME, "iter_%07" PRIu64, n);
    else
        return false;
    return true;
}

bool ckpt_meg_text(char out[CKPT_RUN_NAME], const char *folder)
{
    uint64_t n = 0;

    if (strcmp(folder, "release") == 0)
        (void)snprintf(out, CKPT_RUN_NAME, "release");
    else if (ckpt_meg_is_iter(folder) && ckpt_parse_u64(folder + 5, &n))
        (void)snprintf(out, CKPT_RUN_NAME, "%" PRIu64, n);
    else
        return false;
    return true;
}

bool ckpt_meg_is_tag(const ckpt_listing *list)
{
    const char *slash = strrchr(list->folder, '/');
    bool named = ckpt_meg_is_iter(slash ? slash + 1 : list->folder);

    // a save that did not finish may have only data files, because .metadata is written last
    for (size_t i = 0; named && i < list->n; i++) {
        const char *dot = strrchr(list->entry[i].name, '.');
        if (!list->entry[i].is_dir && dot && strcmp(dot, ".distcp") == 0)
            return true;
    }
    return mgf_is_one(list);
}

/* Convert the tracker's content to the name of a folder. */
static int mgf_named(ckpt_map *map, const char *path, const char *text, uint64_t n,
                     const char **tag, ckpt_err *err)
{
    while (n > 0 && memchr(" \t\r\n\v\f", text[n - 1], 6))
        n--;
    if (n == 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: empty, expected the number of an iteration or 'release'; choose one "
                         "with -t/--tag",
                         path);
    if (!ckpt_path_part_ok(text, n))
        return ckpt_fail(err, CKPT_EUNSAFE,
                         "%s: '%.*s' is neither the number of an iteration nor 'release'", path,
                         n < 200 ? (int)n : 200, text);
    char folder[CKPT_RUN_NAME];
    const char *name = ckpt_arena_string(map->arena, text, n);
    if (!name)
        return ckpt_fail_memory(err);
    if (!ckpt_meg_folder(folder, name))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: '%.200s' is neither the number of an iteration nor 'release'; "
                         "choose one with -t/--tag",
                         path, name);
    *tag = ckpt_arena_string(map->arena, folder, strlen(folder));
    return *tag ? CKPT_OK : ckpt_fail_memory(err);
}

static int mgf_tracker(ckpt_map *map, const ckpt_listing *list, const char **tag, ckpt_err *err)
{
    const char *path = mgf_path(map, list, CKPT_MEG_TRACKER);
    char *text = NULL;
    uint64_t n = 0;
    int rc = path ? ckpt_io_slurp(&text, &n, path, MGF_MAX_TRACKER, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = mgf_named(map, path, text, n, tag, err);
    ckpt_free(text);
    if (rc == CKPT_OK && !mgf_has(list, *tag))
        rc = mgf_no_tag(list, CKPT_MEG_TRACKER " names an iteration that does not exist:", *tag,
                        err);
    return rc;
}

/* Find the folder of the caller's tag: a folder's name or a number. */
static int mgf_tag(ckpt_map *map, const ckpt_listing *list, const char *asked, const char **tag,
                   ckpt_err *err)
{
    char folder[CKPT_RUN_NAME];
    bool numbered = ckpt_meg_folder(folder, asked);

    if (!ckpt_path_part_ok(asked, strlen(asked)))
        return ckpt_fail(err, CKPT_EUNSAFE, "tag '%s' is not the plain name of a folder", asked);
    *tag = numbered && !mgf_has(list, asked) ? ckpt_arena_string(map->arena, folder, strlen(folder))
                                             : asked;
    if (!*tag)
        return ckpt_fail_memory(err);
    return mgf_has(list, *tag) ? CKPT_OK : mgf_no_tag(list, "no folder for the tag", asked, err);
}

int ckpt_meg_find(ckpt_map *map, ckpt_listing *list, const ckpt_open_opts *opts, ckpt_err *err)
{
    assert(map && list && opts);
    const ckpt_entry *tracker = ckpt_listing_find(list, CKPT_MEG_TRACKER);
    ckpt_read_file *read = list->read;
    const char *tag = NULL, *path;
    int rc;

    if (!opts->tag && mgf_is_one(list))
        return CKPT_OK;
    if (!opts->tag && ckpt_meg_is_nemo(list))
        tag = CKPT_MEG_WEIGHTS, rc = CKPT_OK;
    else if (opts->tag)
        rc = mgf_tag(map, list, opts->tag, &tag, err);
    else if (tracker && !tracker->is_dir)
        rc = mgf_tracker(map, list, &tag, err);
    else
        rc = mgf_no_tag(list, "no " CKPT_MEG_TRACKER " and no tag given", NULL, err);
    if (rc != CKPT_OK)
        return rc;
    path = mgf_path(map, list, tag);
    rc = path ? ckpt_listing_read(list, map, path, err) : ckpt_fail_memory(err);
    list->read = read;
    if (rc == CKPT_OK && !mgf_is_one(list))
        rc = ckpt_fail(err, CKPT_EMISSING,
                       "%s: holds neither " CKPT_MEG_COMMON " and " CKPT_MEG_DONE
                       " nor folders mp_rank_*: the save did not finish, or was not copied whole",
                       list->folder);
    return rc;
}
