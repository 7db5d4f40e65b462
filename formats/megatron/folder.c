/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.c: owns the way from what the user named to the folder of one iteration.
 *
 * Taken as input: a run's folder, by its tracker file or a tag, and an iteration's folder itself.
 * A tag is a folder's name ("iter_0000003", "release"), or the number as the tracker has it ("3").
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/legacy.h"

enum {
    MGF_MAX_TRACKER = 4096, /* bytes of the tracker file */
    MGF_DIGITS = 18,        /* of an iteration's number */
    MGF_MAX_LISTED = 12     /* names in a message */
};

bool ckpt_meg_is_iter(const char *name)
{
    size_t n = strlen(name);

    return n > 5 && n - 5 <= MGF_DIGITS && strncmp(name, "iter_", 5) == 0 &&
           strspn(name + 5, "0123456789") == n - 5;
}

bool ckpt_meg_is_dist(const ckpt_listing *list)
{
    const ckpt_entry *common = ckpt_listing_find(list, CKPT_MEG_COMMON),
                     *done = ckpt_listing_find(list, CKPT_MEG_DONE);

    return (common && !common->is_dir) ||
           (done && !done->is_dir && ckpt_listing_find(list, CKPT_DCP_METADATA));
}

/* A folder with one checkpoint, whole or not. */
static bool mgf_is_one(const ckpt_listing *list)
{
    return ckpt_meg_is_dist(list) || ckpt_meg_is_legacy(list);
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

/* CKPT_EMISSING, with the iterations that could have been meant. */
static int mgf_no_tag(ckpt_map *map, const ckpt_listing *list, const char *reason, const char *tag,
                      ckpt_err *err)
{
    const char *text = NULL;
    unsigned n = 0;

    for (size_t i = 0; i < list->n && n <= MGF_MAX_LISTED; i++) {
        const char *name = list->entry[i].name;
        if (!list->entry[i].is_dir || !(ckpt_meg_is_iter(name) || strcmp(name, "release") == 0))
            continue;
        name = n++ == MGF_MAX_LISTED ? "..." : name;
        text = text ? ckpt_arena_printf(map->arena, "%s, %s", text, name) : name;
        if (!text)
            return ckpt_fail_memory(err);
    }
    return ckpt_fail(err, CKPT_EMISSING, "%s: %s%s%s; tags here: %s; choose one with -t/--tag",
                     list->folder, reason, tag ? " " : "", tag ? tag : "", text ? text : "none");
}

/* The folder's name for a number as the tracker has it; NULL: no number. */
static const char *mgf_numbered(ckpt_map *map, const char *text)
{
    size_t n = strlen(text);

    if (n == 0 || n > MGF_DIGITS || strspn(text, "0123456789") != n)
        return NULL;
    return ckpt_arena_printf(map->arena, "iter_%07" PRIu64, (uint64_t)strtoull(text, NULL, 10));
}

/* What the tracker names, as a folder's name. */
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
    const char *name = ckpt_arena_string(map->arena, text, n);
    if (!name)
        return ckpt_fail_memory(err);
    *tag = strcmp(name, "release") == 0 ? name : mgf_numbered(map, name);
    return *tag ? CKPT_OK
                : ckpt_fail(err, CKPT_EFORMAT,
                            "%s: '%.200s' is neither the number of an iteration nor 'release'; "
                            "choose one with -t/--tag",
                            path, name);
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
        rc = mgf_no_tag(map, list,
                        CKPT_MEG_TRACKER " names an iteration that does not exist:", *tag, err);
    return rc;
}

/* The caller's tag: a folder, or a number. */
static int mgf_tag(ckpt_map *map, const ckpt_listing *list, const char *asked, const char **tag,
                   ckpt_err *err)
{
    const char *numbered = mgf_numbered(map, asked);

    if (!ckpt_path_part_ok(asked, strlen(asked)))
        return ckpt_fail(err, CKPT_EUNSAFE, "tag '%s' is not the plain name of a folder", asked);
    *tag = numbered && !mgf_has(list, asked) ? numbered : asked;
    return mgf_has(list, *tag) ? CKPT_OK
                               : mgf_no_tag(map, list, "no folder for the tag", asked, err);
}

int ckpt_meg_find(ckpt_map *map, ckpt_listing *list, const ckpt_open_opts *opts, ckpt_err *err)
{
    const ckpt_entry *tracker = ckpt_listing_find(list, CKPT_MEG_TRACKER);
    ckpt_read_file *read = list->read;
    const char *tag = NULL, *path;
    int rc;

    if (!opts->tag && mgf_is_one(list))
        return CKPT_OK;
    if (opts->tag)
        rc = mgf_tag(map, list, opts->tag, &tag, err);
    else if (tracker && !tracker->is_dir)
        rc = mgf_tracker(map, list, &tag, err);
    else
        rc = mgf_no_tag(map, list, "no " CKPT_MEG_TRACKER " and no tag given", NULL, err);
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
