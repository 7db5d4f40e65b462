/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.c: finds the converter's output folder from the user's path, and lists its files.
 *
 * The path may be a run folder with `latest_universal` (or with --tag) or the output folder itself.
 * The folders below zero/ have the parameters' names; a name with slashes is a nested folder. Paths
 * are built from directory listings only, never from names inside files, because a file can name
 * anything.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/universal/universal.h"

enum {
    UF_SURE = 98,         /* above the deepspeed driver, which accepts the same model files */
    UF_MAX_LATEST = 4096, /* limit of the file `latest_universal` in bytes */
    UF_MAX_DEPTH = 16,    /* folders below zero/ */
    UF_MAX_LISTED = 12    /* limit of names in a message */
};

/* The length of a .pt file's name without its suffix; 0 for other files. */
static size_t uf_stem(const ckpt_entry *e)
{
    size_t n = strlen(e->name);

    return !e->is_dir && n > 3 && strcmp(e->name + n - 3, ".pt") == 0 ? n - 3 : 0;
}

/* ---- probing ---- */

/* List a folder below another. *there becomes false if the folder cannot be listed. */
static int uf_list(ckpt_map *map, ckpt_listing *out, const char *folder, const char *name,
                   bool *there, ckpt_err *err)
{
    const char *path = ckpt_path_join(map->arena, folder, name);
    ckpt_err own = {0};
    int rc = path ? ckpt_listing_read(out, map, path, &own) : ckpt_fail_memory(&own);

    *there = rc == CKPT_OK;
    return rc == CKPT_ELIMIT ? ckpt_fail(err, rc, "%s", own.text) : CKPT_OK;
}

/* True if a folder's zero/ holds optimizer_state.pt or a folder with fp32.pt. */
static int uf_is_zero(ckpt_map *map, const char *folder, bool *is, ckpt_err *err)
{
    ckpt_listing list, sub;
    bool there = false;
    int rc = uf_list(map, &list, folder, "zero", &there, err);

    *is = rc == CKPT_OK && there && ckpt_listing_has(&list, "optimizer_state.pt", false);
    for (size_t i = 0; rc == CKPT_OK && there && !*is && i < list.n && i < UF_MAX_LISTED; i++) {
        bool below = false;
        if (list.entry[i].is_dir)
            rc = uf_list(map, &sub, list.folder, list.entry[i].name, &below, err);
        *is = below && ckpt_listing_has(&sub, "fp32.pt", false);
    }
    return rc;
}

int ckpt_uni_probe(const ckpt_listing *list)
{
    bool found = false;

    // A run with both kinds of checkpoint is read as native, because training resumes from that
    // one.
    if (ckpt_listing_has(list, "latest_universal", false) &&
        !ckpt_listing_has(list, "latest", false))
        return UF_SURE;
    if (!ckpt_listing_has(list, "zero", true))
        return 0;
    (void)uf_is_zero(list->map, list->folder, &found, NULL);
    return found ? UF_SURE : 0;
}

/* ---- the folder ---- */

/* The names of a run folder's universal checkpoints, for a message. */
static int uf_tags(ckpt_uni *u, const ckpt_listing *list, const char **out)
{
    ckpt_map *map = u->job.map;
    const char *text = NULL;
    unsigned n = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < list->n && n <= UF_MAX_LISTED; i++) {
        bool is = false;
        const char *path = list->entry[i].is_dir
                               ? ckpt_path_join(map->arena, list->folder, list->entry[i].name)
                               : NULL;
        if (path)
            rc = uf_is_zero(map, path, &is, u->job.err);
        if (!is)
            continue;
        const char *name = n++ == UF_MAX_LISTED ? "..." : list->entry[i].name;
        text = text ? ckpt_arena_printf(map->arena, "%s, %s", text, name) : name;
        rc = text ? CKPT_OK : ckpt_fail_memory(u->job.err);
    }
    *out = text ? text : "none";
    return rc;
}

/* Fail with CKPT_EMISSING and list the folders that --tag could name. */
static int uf_no_tag(ckpt_uni *u, const ckpt_listing *list, const char *tag)
{
    const char *tags = "none";
    int rc = uf_tags(u, list, &tags);

    if (rc != CKPT_OK)
        return rc;
    return ckpt_fail(
        u->job.err, CKPT_EMISSING,
        "%s: no folder %s with a universal checkpoint; found here: %s; choose one with -t/--tag",
        list->folder, tag, tags);
}

/* Read `latest_universal`: the name of one folder, without trailing white space. */
static int uf_latest(ckpt_uni *u, const ckpt_listing *list, const char **tag)
{
    const ckpt_entry *e = ckpt_listing_find(list, "latest_universal");
    const char *path = ckpt_path_join(u->job.map->arena, list->folder, "latest_universal");
    char *text = NULL;
    uint64_t n = 0;

    if (!path)
        return ckpt_fail_memory(u->job.err);
    if (!e) // the file disappeared after the listing
        return ckpt_fail(u->job.err, CKPT_EMISSING, "%s: does not exist", path);
    if (e->size > UF_MAX_LATEST)
        return ckpt_fail(u->job.err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " bytes, expected the name of a folder (1 to %d bytes)",
                         path, e->size, UF_MAX_LATEST);
    int rc = ckpt_io_slurp(&text, &n, path, UF_MAX_LATEST, u->job.err);
    if (rc != CKPT_OK)
        return rc;
    while (n > 0 && memchr(" \t\r\n\v\f", text[n - 1], 6))
        n--;
    // DeepSpeed's converter writes an empty file if its output folder was given with a trailing
    // slash.
    if (n == 0)
        rc = ckpt_fail(u->job.err, CKPT_EFORMAT,
                       "%s: empty, expected the name of a folder beside it; choose one with "
                       "-t/--tag, or give the folder itself",
                       path);
    else if (!ckpt_path_part_ok(text, n))
        rc = ckpt_fail(u->job.err, CKPT_EUNSAFE,
                       "%s: '%.*s' is not the plain name of a folder beside it", path,
                       n < 200 ? (int)n : 200, text);
    else if (!(*tag = ckpt_arena_string(u->job.map->arena, text, n)))
        rc = ckpt_fail_memory(u->job.err);
    ckpt_free(text);
    return rc;
}

/* Go from the run folder to the checkpoint's folder, unless the user gave the latter. */
static int uf_resolve(ckpt_uni *u, ckpt_listing *list)
{
    const char *tag = u->job.opts->tag;
    int rc = CKPT_OK;
    bool is = false;

    if (!tag && ckpt_listing_has(list, "zero", true) &&
        !ckpt_listing_has(list, "latest_universal", false))
        return CKPT_OK;
    if (!tag)
        rc = uf_latest(u, list, &tag);
    else if (!ckpt_path_part_ok(tag, strlen(tag)))
        rc = ckpt_fail(u->job.err, CKPT_EUNSAFE, "tag '%s' is not the plain name of a folder", tag);
    if (rc != CKPT_OK)
        return rc;
    const char *path = ckpt_path_join(u->job.map->arena, list->folder, tag);
    if (!path)
        return ckpt_fail_memory(u->job.err);
    if (ckpt_listing_has(list, tag, true))
        rc = uf_is_zero(u->job.map, path, &is, u->job.err);
    if (rc == CKPT_OK && !is)
        rc = uf_no_tag(u, list, tag);
    if (rc != CKPT_OK)
        return rc;
    return ckpt_listing_read(list, u->job.map, path, u->job.err);
}

/* Compare ranks as numbers, because "10" sorts before "9" as text. */
static int uf_by_rank(const void *a, const void *b)
{
    const ckpt_ds_part *x = a, *y = b;

    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Collect the model files. */
static int uf_models(ckpt_uni *u, const ckpt_listing *list)
{
    for (size_t i = 0; i < list->n; i++) {
        ckpt_ds_name name = ckpt_ds_name_parse(list->entry[i].name);
        bool whole = name.kind == CKPT_DS_MODEL;
        if (list->entry[i].is_dir || (!whole && name.kind != CKPT_DS_MODEL_RANK))
            continue;
        if (name.mp >= u->dir.n_mp)
            u->dir.n_mp = name.mp + 1;
        if (!whole && name.mp > 0)
            continue;
        ckpt_ds_part *p = ckpt_vec_push(whole ? &u->dir.whole : &u->dir.parts);
        if (!p)
            return ckpt_fail_memory(u->job.err);
        p->path = ckpt_path_join(u->job.map->arena, list->folder, list->entry[i].name);
        p->rank = whole ? name.mp : name.dp;
        if (!p->path)
            return ckpt_fail_memory(u->job.err);
    }
    if (u->dir.whole.n)
        qsort(u->dir.whole.at, u->dir.whole.n, sizeof *u->dir.whole.at, uf_by_rank);
    if (u->dir.parts.n)
        qsort(u->dir.parts.at, u->dir.parts.n, sizeof *u->dir.parts.at, uf_by_rank);
    return CKPT_OK;
}

/* ---- zero/ ---- */

/* A folder that the walk has not listed yet. */
typedef struct uf_todo {
    const char *path;
    const char *name; /* relative to zero/ */
    unsigned depth;
} uf_todo;

CKPT_VEC(uf_todos, uf_todo);

static int uf_later(ckpt_uni *u, uf_todos *todo, const uf_todo *in, const char *name)
{
    ckpt_map *map = u->job.map;
    uf_todo *t;

    if (in->depth >= UF_MAX_DEPTH)
        return ckpt_fail(u->job.err, CKPT_ELIMIT, "%s: more than %d folders deep", in->path,
                         UF_MAX_DEPTH);
    t = ckpt_vec_push(todo);
    if (!t)
        return ckpt_fail_memory(u->job.err);
    t->path = ckpt_path_join(map->arena, in->path, name);
    t->name = *in->name ? ckpt_path_join(map->arena, in->name, name) : name;
    t->depth = in->depth + 1;
    return t->path && t->name ? CKPT_OK : ckpt_fail_memory(u->job.err);
}

/* List one folder: make an entry of its .pt files, and queue its sub-folders. */
static int uf_look(ckpt_uni *u, uf_todos *todo, const uf_todo *at)
{
    ckpt_uni_entry *entry = NULL;
    ckpt_listing list;
    int rc = ckpt_listing_read(&list, u->job.map, at->path, u->job.err);

    for (size_t i = 0; rc == CKPT_OK && i < list.n; i++) {
        size_t n = uf_stem(&list.entry[i]);
        const char **file;
        if (list.entry[i].is_dir)
            rc = uf_later(u, todo, at, list.entry[i].name);
        if (n == 0 || !*at->name)
            continue;
        if (!entry) {
            entry = ckpt_vec_push(&u->dir.entry);
            if (!entry)
                return ckpt_fail_memory(u->job.err);
            *entry = (ckpt_uni_entry){at->name, at->path, u->dir.file.n, 0};
        }
        file = ckpt_vec_push(&u->dir.file);
        if (!file || !(*file = ckpt_arena_string(u->job.map->arena, list.entry[i].name, n)))
            return ckpt_fail_memory(u->job.err);
        entry->n++;
    }
    // Only reported with collect, because copies of buffers and tied names may be absent.
    if (rc == CKPT_OK && *at->name && list.n == 0 && u->job.map->collect)
        rc = ckpt_map_problem(u->job.map, CKPT_EMISSING, u->job.err,
                              "%s: the folder is empty: fp32.pt was not copied", at->path);
    return rc;
}

static int uf_by_name(const void *a, const void *b)
{
    const ckpt_uni_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Walk all folders below zero/ with a queue instead of recursion. */
static int uf_walk(ckpt_uni *u, const char *zero)
{
    uf_todos todo = {0};
    uf_todo *first = ckpt_vec_push(&todo);
    int rc = first ? CKPT_OK : ckpt_fail_memory(u->job.err);

    if (first)
        *first = (uf_todo){zero, "", 0};
    while (rc == CKPT_OK && todo.n > 0) {
        uf_todo at = todo.at[--todo.n];
        rc = uf_look(u, &todo, &at);
    }
    ckpt_vec_free(&todo);
    if (rc == CKPT_OK && u->dir.entry.n == 0)
        rc = ckpt_fail(u->job.err, CKPT_EMISSING,
                       "%s: holds no parameters (folders with fp32.pt, exp_avg.pt ...): the "
                       "conversion did not finish, or they were not copied",
                       zero);
    if (rc == CKPT_OK)
        qsort(u->dir.entry.at, u->dir.entry.n, sizeof *u->dir.entry.at, uf_by_name);
    return rc;
}

int ckpt_uni_folder_find(ckpt_uni *u, const ckpt_listing *list)
{
    assert(u && list);
    ckpt_map *map = u->job.map;
    ckpt_listing at = *list, zero;
    int rc = uf_resolve(u, &at);

    if (rc != CKPT_OK)
        return rc;
    map->path = at.folder;
    u->tag = ckpt_path_base(map->arena, at.folder);
    const char *path = ckpt_path_join(map->arena, at.folder, "zero");
    if (!u->tag || !path)
        return ckpt_fail_memory(u->job.err);
    rc = uf_models(u, &at);
    if (rc == CKPT_OK)
        rc = ckpt_listing_read(&zero, map, path, u->job.err);
    if (rc == CKPT_OK && ckpt_listing_has(&zero, "optimizer_state.pt", false) &&
        !(u->dir.optim = ckpt_path_join(map->arena, path, "optimizer_state.pt")))
        rc = ckpt_fail_memory(u->job.err);
    return rc == CKPT_OK ? uf_walk(u, path) : rc;
}

void ckpt_uni_folder_free(ckpt_uni_folder *dir)
{
    ckpt_vec_free(&dir->whole);
    ckpt_vec_free(&dir->parts);
    ckpt_vec_free(&dir->entry);
    ckpt_vec_free(&dir->file);
}

size_t ckpt_uni_entry_find(const ckpt_uni_folder *dir, const char *name)
{
    assert(dir && name);
    const ckpt_uni_entry key = {.name = name};
    const ckpt_uni_entry *e =
        dir->entry.n ? bsearch(&key, dir->entry.at, dir->entry.n, sizeof key, uf_by_name) : NULL;

    return e ? (size_t)(e - dir->entry.at) : SIZE_MAX;
}
