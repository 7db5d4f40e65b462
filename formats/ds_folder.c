/*
 * ds_folder.c: from what the user named to one tag folder and its files, sorted by rank.
 *
 * Taken as input: a run folder (holds `latest`, or gets a tag), a tag folder, a folder of HF
 * Trainer runs (checkpoint-N, the highest that holds `latest`).  Everything else that DeepSpeed or
 * torch may have left in such a place is named and refused, never converted by half.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed.h"

enum {
    DSF_MAX_LATEST = 4096, /* bytes of the file `latest` */
    DSF_MAX_DEPTH = 4,     /* folders entered: runs, run, tag */
    DSF_MAX_LISTED = 12    /* names in a message */
};

/* A path below a folder, in the arena; NULL when memory is exhausted. */
static const char *dsf_join(ckpt_map *map, const char *folder, const char *name)
{
    size_t n = strlen(folder);

    return ckpt_arena_printf(map->arena, n && folder[n - 1] == '/' ? "%s%s" : "%s/%s", folder,
                             name);
}

/* The last part of a path. */
static const char *dsf_base(ckpt_map *map, const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    return ckpt_arena_string(map->arena, path + from, n - from);
}

/* True for a tag folder, whole or not. */
static bool dsf_has_shards(const ckpt_listing *list)
{
    for (size_t i = 0; i < list->n; i++) {
        if (!list->entry[i].is_dir && ckpt_ds_name_is_shard(list->entry[i].name))
            return true;
    }
    return false;
}

/* An entry of this name and kind. */
static bool dsf_has(const ckpt_listing *list, const char *name, bool is_dir)
{
    const ckpt_entry *e = ckpt_listing_find(list, name);

    return e && e->is_dir == is_dir;
}

/* The tags of a run folder: sub-folders that hold shards.  "none" when there are none. */
static int dsf_tags(ckpt_ds *ds, const ckpt_listing *list, const char **out)
{
    const char *text = NULL;
    unsigned n = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < list->n && n <= DSF_MAX_LISTED; i++) {
        ckpt_listing sub;
        if (!list->entry[i].is_dir)
            continue;
        const char *path = dsf_join(ds->map, list->folder, list->entry[i].name);
        if (!path)
            return ckpt_fail_memory(ds->err);
        // A folder that cannot be listed is no tag to offer.
        if (ckpt_listing_read(&sub, ds->map, path, NULL) != CKPT_OK || !dsf_has_shards(&sub))
            continue;
        const char *name = n == DSF_MAX_LISTED ? "..." : list->entry[i].name;
        text = text ? ckpt_arena_printf(ds->map->arena, "%s, %s", text, name) : name;
        n++;
        rc = text ? CKPT_OK : ckpt_fail_memory(ds->err);
    }
    *out = text ? text : "none";
    return rc;
}

/* CKPT_EMISSING, with the tags that could have been meant. */
static int dsf_no_tag(ckpt_ds *ds, const ckpt_listing *list, const char *reason, const char *tag)
{
    const char *tags = "none";
    int rc = dsf_tags(ds, list, &tags);

    if (rc != CKPT_OK)
        return rc;
    return ckpt_fail(ds->err, CKPT_EMISSING, "%s: %s%s%s; tags here: %s; choose one with -t/--tag",
                     list->folder, reason, tag ? " " : "", tag ? tag : "", tags);
}

/* Read `latest`: one safe path part, white space at its end cut. */
static int dsf_latest(ckpt_ds *ds, const ckpt_listing *list, const char **tag)
{
    char *text = NULL;
    uint64_t n = 0;
    const char *path = dsf_join(ds->map, list->folder, "latest");
    const ckpt_entry *e = ckpt_listing_find(list, "latest");

    if (!path)
        return ckpt_fail_memory(ds->err);
    if (e->size > DSF_MAX_LATEST)
        return ckpt_fail(ds->err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " bytes, expected the name of a tag (1 to %d bytes)", path,
                         e->size, DSF_MAX_LATEST);
    int rc = ckpt_io_slurp(&text, &n, path, DSF_MAX_LATEST, ds->err);
    if (rc != CKPT_OK)
        return rc;
    // Not strchr: a NUL is no white space, and makes the name unsafe.
    while (n > 0 && memchr(" \t\r\n\v\f", text[n - 1], 6))
        n--;
    if (n == 0)
        rc = ckpt_fail(ds->err, CKPT_EFORMAT,
                       "%s: empty, expected the name of a tag; choose one with -t/--tag", path);
    else if (!ckpt_path_part_ok(text, n))
        rc = ckpt_fail(ds->err, CKPT_EUNSAFE,
                       "%s: '%.*s' is not the plain name of a folder beside it", path,
                       n < 200 ? (int)n : 200, text);
    else if (!(*tag = ckpt_arena_string(ds->map->arena, text, n)))
        rc = ckpt_fail_memory(ds->err);
    ckpt_free(text);
    return rc;
}

/* Enter a sub-folder. */
static int dsf_enter(ckpt_ds *ds, ckpt_listing *list, const char *name)
{
    const char *path = dsf_join(ds->map, list->folder, name);

    return path ? ckpt_listing_read(list, ds->map, path, ds->err) : ckpt_fail_memory(ds->err);
}

/* Enter the highest checkpoint-N that holds `latest`.  *found is false when there is none. */
static int dsf_enter_run(ckpt_ds *ds, ckpt_listing *list, bool *found)
{
    const ckpt_entry *best = NULL;
    uint64_t highest = 0, number = 0;

    for (size_t i = 0; i < list->n; i++) {
        ckpt_listing sub;
        if (!list->entry[i].is_dir || !ckpt_ds_name_run(list->entry[i].name, &number) ||
            (best && number < highest))
            continue;
        const char *path = dsf_join(ds->map, list->folder, list->entry[i].name);
        if (!path)
            return ckpt_fail_memory(ds->err);
        if (ckpt_listing_read(&sub, ds->map, path, NULL) != CKPT_OK ||
            !dsf_has(&sub, "latest", false))
            continue;
        best = &list->entry[i];
        highest = number;
    }
    *found = best != NULL;
    if (!best)
        return CKPT_OK;
    int rc =
        ckpt_map_note(ds->map, CKPT_INFO, ds->err, "%s: taken %s, the highest of its checkpoints",
                      list->folder, best->name);
    return rc == CKPT_OK ? dsf_enter(ds, list, best->name) : rc;
}

/* Layouts that are recognised but not handled, by what stands in the folder. */
static int dsf_refuse(ckpt_ds *ds, const ckpt_listing *list)
{
    const char *what = NULL;

    if (dsf_has(list, ".metadata", false))
        what = "a torch.distributed.checkpoint folder (.metadata), which this driver does not read";
    else if (dsf_has(list, "zero", true) || (dsf_has(list, "latest_universal", false) &&
                                             !dsf_has(list, "latest", false) && !ds->opts->tag))
        what = "a universal checkpoint, which is not supported yet; give the checkpoint it was "
               "made from";
    return what ? ckpt_fail(ds->err, CKPT_EUNSUPPORTED, "%s: %s", list->folder, what) : CKPT_OK;
}

/* A tag given by the caller: the sub-folder of that name. */
static int dsf_enter_tag(ckpt_ds *ds, ckpt_listing *list, const char *tag)
{
    bool found = false;

    if (!ckpt_path_part_ok(tag, strlen(tag)))
        return ckpt_fail(ds->err, CKPT_EUNSAFE, "tag '%s' is not the plain name of a folder", tag);
    int rc = CKPT_OK;
    if (!dsf_has(list, tag, true))
        rc = dsf_enter_run(ds, list, &found);
    if (rc == CKPT_OK && !dsf_has(list, tag, true))
        rc = dsf_no_tag(ds, list, "no folder for the tag", tag);
    return rc == CKPT_OK ? dsf_enter(ds, list, tag) : rc;
}

/* Go down until the folder itself holds shards. */
static int dsf_resolve(ckpt_ds *ds, ckpt_listing *list)
{
    const char *tag = NULL;
    bool found = true;
    int rc = dsf_refuse(ds, list);

    if (rc == CKPT_OK && ds->opts->tag)
        rc = dsf_enter_tag(ds, list, ds->opts->tag);
    for (int depth = 0; rc == CKPT_OK && depth < DSF_MAX_DEPTH; depth++) {
        rc = dsf_refuse(ds, list);
        if (rc != CKPT_OK || (dsf_has_shards(list) && !dsf_has(list, "latest", false)))
            return rc;
        if (dsf_has(list, "latest", false)) {
            rc = dsf_latest(ds, list, &tag);
            if (rc == CKPT_OK && !dsf_has(list, tag, true))
                rc = dsf_no_tag(ds, list, "`latest` names a tag that does not exist:", tag);
            if (rc == CKPT_OK)
                rc = dsf_enter(ds, list, tag);
            if (rc == CKPT_OK && !dsf_has_shards(list) && dsf_refuse(ds, list) == CKPT_OK)
                rc = ckpt_fail(ds->err, CKPT_EMISSING,
                               "%s: the tag folder holds no *_states.pt files", list->folder);
        } else {
            rc = dsf_enter_run(ds, list, &found);
            if (rc == CKPT_OK && !found)
                rc = dsf_no_tag(ds, list, "no file `latest` and no tag given", NULL);
        }
    }
    return rc;
}

/* Append a rank's file. */
static int dsf_add(ckpt_ds *ds, ckpt_ds_parts *parts, const ckpt_ds_name *name, const char *path)
{
    ckpt_ds_part *p = ckpt_vec_push(parts);

    if (!p)
        return ckpt_fail_memory(ds->err);
    p->path = path;
    p->rank = name->dp;
    p->bf16 = name->bf16;
    return CKPT_OK;
}

/* What DeepSpeed's own scripts take for an optimizer file, because of the end of its name. */
static bool dsf_like_shard(const char *name)
{
    static const char end[] = "_optim_states.pt";
    size_t n = strlen(name);

    return n >= sizeof end - 1 && strcmp(name + n - (sizeof end - 1), end) == 0;
}

/* Note one entry of the tag folder. */
static int dsf_take(ckpt_ds *ds, const ckpt_listing *list, const ckpt_entry *e)
{
    ckpt_ds_name name = ckpt_ds_name_parse(e->name);
    const char *why = NULL;

    if (!e->is_dir && name.kind == CKPT_DS_OTHER && dsf_like_shard(e->name))
        return ckpt_ds_problem(ds, CKPT_EMISMATCH,
                               "%s/%s: named like an optimizer file, but of no known rank: move it "
                               "away",
                               list->folder, e->name);
    if (e->is_dir || name.kind == CKPT_DS_OTHER)
        return CKPT_OK;
    if (name.kind == CKPT_DS_LAYER)
        why = "a pipeline-parallel checkpoint (layer_* files)";
    else if (name.kind == CKPT_DS_EXPERT)
        why = "a mixture-of-experts checkpoint (expert files)";
    else if (name.mp > 0)
        why = "a checkpoint of several model-parallel (tensor or pipeline) ranks";
    if (why)
        return ckpt_fail(ds->err, CKPT_EUNSUPPORTED, "%s: %s, such as %s: not supported yet",
                         list->folder, why, e->name);
    const char *path = dsf_join(ds->map, list->folder, e->name);
    if (!path)
        return ckpt_fail_memory(ds->err);
    if (name.kind == CKPT_DS_MODEL)
        ds->dir.model = path;
    else
        return dsf_add(ds, name.kind == CKPT_DS_OPTIM ? &ds->dir.optims : &ds->dir.models, &name,
                       path);
    return CKPT_OK;
}

/* By number, not by text: rank 2 stands before rank 10. */
static int dsf_by_rank(const void *a, const void *b)
{
    const ckpt_ds_part *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return strcmp(x->path, y->path);
}

int ckpt_ds_folder_find(ckpt_ds *ds, const ckpt_listing *list)
{
    ckpt_listing at = *list;
    int rc = dsf_resolve(ds, &at);

    // Layer files come after expert files and before mp_rank files in the listing: the whole folder
    // is looked through for the kinds that decide first.
    for (int pass = 0; rc == CKPT_OK && pass < 2; pass++) {
        for (size_t i = 0; rc == CKPT_OK && i < at.n; i++) {
            ckpt_ds_kind kind = ckpt_ds_name_parse(at.entry[i].name).kind;
            if ((kind == CKPT_DS_EXPERT || kind == CKPT_DS_LAYER) == (pass == 0))
                rc = dsf_take(ds, &at, &at.entry[i]);
        }
    }
    if (rc != CKPT_OK)
        return rc;
    if (ds->dir.optims.n)
        qsort(ds->dir.optims.at, ds->dir.optims.n, sizeof *ds->dir.optims.at, dsf_by_rank);
    if (ds->dir.models.n)
        qsort(ds->dir.models.at, ds->dir.models.n, sizeof *ds->dir.models.at, dsf_by_rank);
    ds->dir.path = at.folder;
    ds->dir.offloaded = dsf_has(&at, "offloaded_tensors", true);
    ds->dir.tag = dsf_base(ds->map, at.folder);
    return ds->dir.tag ? CKPT_OK : ckpt_fail_memory(ds->err);
}

void ckpt_ds_folder_free(ckpt_ds_folder *dir)
{
    ckpt_vec_free(&dir->models);
    ckpt_vec_free(&dir->optims);
}

/* The first ranks missing from a sorted list, as text. */
static const char *dsf_missing(ckpt_map *map, const ckpt_ds_parts *parts)
{
    const char *text = NULL;
    uint32_t want = 0;
    unsigned n = 0;

    for (size_t i = 0; i < parts->n; i++) {
        for (; want < parts->at[i].rank && n <= DSF_MAX_LISTED; want++, n++) {
            const char *before = text;
            text = n == DSF_MAX_LISTED
                       ? ckpt_arena_printf(map->arena, "%s ...", before ? before : "")
                       : ckpt_arena_printf(map->arena, "%s%s%" PRIu32, before ? before : "",
                                           before ? ", " : "", want);
            if (!text)
                return NULL;
        }
        want = parts->at[i].rank + 1;
    }
    return text;
}

int ckpt_ds_folder_check(ckpt_ds *ds, const ckpt_ds_parts *parts, const char *what)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i + 1 < parts->n; i++) {
        const ckpt_ds_part *a = &parts->at[i], *b = &parts->at[i + 1];
        if (a->rank == b->rank)
            rc = ckpt_ds_problem(ds, CKPT_EMISMATCH,
                                 "%s: rank %" PRIu32
                                 " has two %s files, this and %s: one of them was left behind by "
                                 "another run; move it away",
                                 a->path, a->rank, what, b->path);
        else if (a->bf16 != b->bf16)
            rc = ckpt_ds_problem(ds, CKPT_EMISMATCH,
                                 "%s: the %s files of ranks %" PRIu32 " and %" PRIu32
                                 " differ in the prefix bf16_: "
                                 "they are from different runs",
                                 b->path, what, a->rank, b->rank);
        if (ds->broken)
            break;
    }
    const char *missing =
        parts->n && parts->at[parts->n - 1].rank >= parts->n ? dsf_missing(ds->map, parts) : NULL;
    if (rc == CKPT_OK && missing)
        rc = ckpt_ds_problem(ds, CKPT_EMISSING,
                             "%s: %zu %s files up to rank %" PRIu32
                             ", but none of rank %s: a process did not save, or "
                             "shards of an earlier run were left behind",
                             ds->dir.path, parts->n, what, parts->at[parts->n - 1].rank, missing);
    return rc;
}
