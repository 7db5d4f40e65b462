/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.c: finds the tag folder for the user's path, and lists its files by rank.
 *
 * Input is a run folder (has `latest`, or the user gives a tag), a tag folder, or a folder of HF
 * Trainer runs (the highest checkpoint-N with `latest`). Other layouts of DeepSpeed or torch in
 * such a folder fail with a message that names them, because a partial conversion would be wrong.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/folder/folder.h"

enum {
    DSF_MAX_LATEST = 4096, /* limit of the file `latest` in bytes */
    DSF_MAX_DEPTH = 4,     /* limit of folders entered one below another: runs, run, tag */
    DSF_MAX_LISTED = 12    /* limit of names in a message */
};

/* Returns whether the folder is a tag folder, complete or not. */
static bool dsf_has_shards(const ckpt_listing *list)
{
    for (size_t i = 0; i < list->n; i++) {
        if (!list->entry[i].is_dir && ckpt_ds_name_is_shard(list->entry[i].name))
            return true;
    }
    return false;
}

/* A tag is a sub-folder with shards. An unreadable folder cannot be offered as one. */
static bool dsf_is_tag(const ckpt_listing *run, const ckpt_entry *e, const void *ctx)
{
    const char *path = ckpt_path_join(run->map->arena, run->folder, e->name);
    ckpt_listing sub;

    (void)ctx;
    return path && ckpt_listing_read(&sub, run->map, path, NULL) == CKPT_OK && dsf_has_shards(&sub);
}

/* Fails with CKPT_EMISSING and lists the possible tags. */
static int dsf_no_tag(const ckpt_ds_job *job, const ckpt_listing *list, const char *reason,
                      const char *tag)
{
    const char *tags = NULL;
    int rc = ckpt_run_tags(&tags, list, dsf_is_tag, NULL, job->err);

    if (rc != CKPT_OK)
        return rc;
    if (!tags)
        return ckpt_fail(job->err, CKPT_EMISSING,
                         "%s: %s%s%s, and no folder in it holds *_states.pt files", list->folder,
                         reason, tag ? " " : "", tag ? tag : "");
    return ckpt_fail(job->err, CKPT_EMISSING, "%s: %s%s%s; tags here: %s; choose one with -t/--tag",
                     list->folder, reason, tag ? " " : "", tag ? tag : "", tags);
}

/* Returns whether accelerate chose the tag: pytorch_model, pytorch_model_1 ..., one per model. */
static bool dsf_of_model(const char *tag)
{
    static const char first[] = "pytorch_model";
    const char *rest = strncmp(tag, first, sizeof first - 1) == 0 ? tag + sizeof first - 1 : "?";

    return *rest == 0 ||
           (*rest == '_' && rest[1] && strspn(rest + 1, "0123456789") == strlen(rest + 1));
}

/* Returns whether two tags differ in more than their numbers. */
static bool dsf_other_stem(const char *a, const char *b)
{
    static const char digits[] = "0123456789";

    while (*a || *b) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (*a != *b)
            return true;
        a += *a != 0;
        b += *b != 0;
    }
    return false;
}

/* Notes tags that may belong to another model than `latest`: saves of one model differ only in
 * numbers. */
static int dsf_note_others(const ckpt_ds_job *job, const ckpt_listing *list, const char *tag)
{
    const char *text = NULL;
    bool model = false;

    for (size_t i = 0; i < list->n; i++) {
        const char *name = list->entry[i].name;
        bool family = dsf_of_model(tag) && dsf_of_model(name);
        ckpt_listing sub;
        if (!list->entry[i].is_dir || strcmp(name, tag) == 0 ||
            (!family && !dsf_other_stem(tag, name)))
            continue;
        const char *path = ckpt_path_join(job->map->arena, list->folder, name);
        if (!path)
            return ckpt_fail_memory(job->err);
        if (ckpt_listing_read(&sub, job->map, path, NULL) != CKPT_OK || !dsf_has_shards(&sub))
            continue;
        text = ckpt_arena_printf(job->map->arena, "%s%s'%.80s'", text ? text : "", text ? ", " : "",
                                 name);
        if (!text)
            return ckpt_fail_memory(job->err);
        model = model || family;
    }
    if (!text)
        return CKPT_OK;
    return ckpt_map_note(job->map, model ? CKPT_WARNING : CKPT_INFO, job->err,
                         model
                             ? "%s: holds several models, one under each tag: `latest` names %s, "
                               "and -t/--tag takes another: %.300s"
                             : "%s: reading the tag '%s' of `latest`; other tags, maybe of another "
                               "model: %.300s (select one with -t/--tag)",
                         list->folder, tag, text);
}

/* Reads `latest`: one safe path component, without trailing white space. */
static int dsf_latest(const ckpt_ds_job *job, const ckpt_listing *list, const char **tag)
{
    char *text = NULL;
    uint64_t n = 0;
    const char *path = ckpt_path_join(job->map->arena, list->folder, "latest");
    const ckpt_entry *e = ckpt_listing_find(list, "latest");

    if (!path)
        return ckpt_fail_memory(job->err);
    if (e->size > DSF_MAX_LATEST)
        return ckpt_fail(job->err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " bytes, expected the name of a tag (1 to %d bytes)", path,
                         e->size, DSF_MAX_LATEST);
    int rc = ckpt_io_slurp(&text, &n, path, DSF_MAX_LATEST, job->err);
    if (rc != CKPT_OK)
        return rc;
    // strchr() would find a NUL as white space; here a NUL remains and makes the name unsafe.
    while (n > 0 && memchr(" \t\r\n\v\f", text[n - 1], 6))
        n--;
    if (n == 0)
        rc = ckpt_fail(job->err, CKPT_EFORMAT,
                       "%s: empty, expected the name of a tag; choose one with -t/--tag", path);
    else if (!ckpt_path_part_ok(text, n))
        rc = ckpt_fail(job->err, CKPT_EUNSAFE,
                       "%s: '%.*s' is not the plain name of a folder beside it", path,
                       n < 200 ? (int)n : 200, text);
    else if (!(*tag = ckpt_arena_string(job->map->arena, text, n)))
        rc = ckpt_fail_memory(job->err);
    ckpt_free(text);
    return rc;
}

/* Lists a sub-folder. */
static int dsf_enter(const ckpt_ds_job *job, ckpt_listing *list, const char *name)
{
    const char *path = ckpt_path_join(job->map->arena, list->folder, name);

    return path ? ckpt_listing_read(list, job->map, path, job->err) : ckpt_fail_memory(job->err);
}

/* Enters the highest checkpoint-N with `latest`; *found is false if none has it. */
static int dsf_enter_run(const ckpt_ds_job *job, ckpt_listing *list, bool *found)
{
    const ckpt_entry *best = NULL, *passed = NULL;
    uint64_t highest = 0, highest_passed = 0, number = 0;

    for (size_t i = 0; i < list->n; i++) {
        ckpt_listing sub;
        if (!list->entry[i].is_dir || !ckpt_ds_name_run(list->entry[i].name, &number) ||
            (best && number < highest))
            continue;
        const char *path = ckpt_path_join(job->map->arena, list->folder, list->entry[i].name);
        if (!path)
            return ckpt_fail_memory(job->err);
        if (ckpt_listing_read(&sub, job->map, path, NULL) != CKPT_OK)
            continue;
        if (!ckpt_listing_has(&sub, "latest", false)) {
            passed = number > highest_passed || !passed ? &list->entry[i] : passed;
            highest_passed = number > highest_passed ? number : highest_passed;
            continue;
        }
        best = &list->entry[i];
        highest = number;
    }
    *found = best != NULL;
    if (!best && passed && !job->opts->tag)
        return ckpt_fail(job->err, CKPT_EMISSING,
                         "%s: neither this folder nor %s has a file `latest`, as a DeepSpeed run "
                         "has: to read a checkpoint of another kind, name its folder (%s/%s)",
                         list->folder, passed->name, list->folder, passed->name);
    if (!best)
        return CKPT_OK;
    int rc = passed && highest_passed > highest
                 ? ckpt_map_note(job->map, CKPT_WARNING, job->err,
                                 "%s: ckpt ignores %s, which has no file `latest`, and reads %s",
                                 list->folder, passed->name, best->name)
                 : ckpt_map_note(job->map, CKPT_INFO, job->err,
                                 "%s: ckpt reads %s, the checkpoint with the highest number",
                                 list->folder, best->name);
    return rc == CKPT_OK ? dsf_enter(job, list, best->name) : rc;
}

/* Fails for layouts that the driver recognises but does not read. */
static int dsf_refuse(const ckpt_ds_job *job, const ckpt_listing *list)
{
    const char *what = NULL;

    if (ckpt_listing_has(list, ".metadata", false))
        what = "a torch.distributed.checkpoint folder (.metadata), which this driver does not read";
    else if (ckpt_listing_has(list, "zero", true) ||
             (ckpt_listing_has(list, "latest_universal", false) &&
              !ckpt_listing_has(list, "latest", false) && !job->opts->tag))
        what = "a universal checkpoint; give this folder itself to read it";
    return what ? ckpt_fail(job->err, CKPT_EUNSUPPORTED, "%s: %s", list->folder, what) : CKPT_OK;
}

/* Enters the sub-folder of the tag given by the caller. */
static int dsf_enter_tag(const ckpt_ds_job *job, ckpt_listing *list, const char *tag)
{
    bool found = false;

    if (!ckpt_path_part_ok(tag, strlen(tag)))
        return ckpt_fail(job->err, CKPT_EUNSAFE, "tag '%s' is not the plain name of a folder", tag);
    int rc = CKPT_OK;
    if (!ckpt_listing_has(list, tag, true))
        rc = dsf_enter_run(job, list, &found);
    if (rc == CKPT_OK && !ckpt_listing_has(list, tag, true))
        rc = dsf_no_tag(job, list, "no folder for the tag", tag);
    return rc == CKPT_OK ? dsf_enter(job, list, tag) : rc;
}

/* Descends until the folder itself has shards. */
static int dsf_resolve(const ckpt_ds_job *job, ckpt_listing *list)
{
    const char *tag = NULL;
    bool found = true;
    int rc = dsf_refuse(job, list);

    if (rc == CKPT_OK && job->opts->tag)
        rc = dsf_enter_tag(job, list, job->opts->tag);
    for (int depth = 0; rc == CKPT_OK && depth < DSF_MAX_DEPTH; depth++) {
        rc = dsf_refuse(job, list);
        if (rc != CKPT_OK || (dsf_has_shards(list) && !ckpt_listing_has(list, "latest", false)))
            return rc;
        if (ckpt_listing_has(list, "latest", false)) {
            rc = dsf_latest(job, list, &tag);
            if (rc == CKPT_OK && !ckpt_listing_has(list, tag, true))
                rc = dsf_no_tag(job, list, "`latest` names a tag that does not exist:", tag);
            if (rc == CKPT_OK)
                rc = dsf_note_others(job, list, tag);
            if (rc == CKPT_OK)
                rc = dsf_enter(job, list, tag);
            if (rc == CKPT_OK && !dsf_has_shards(list) && dsf_refuse(job, list) == CKPT_OK)
                rc = ckpt_fail(job->err, CKPT_EMISSING,
                               "%s: the tag folder holds no *_states.pt files", list->folder);
        } else {
            rc = dsf_enter_run(job, list, &found);
            if (rc == CKPT_OK && !found)
                rc = dsf_no_tag(job, list, "no file `latest` and no tag given", NULL);
        }
    }
    return rc;
}

/* Appends a rank's file. */
static int dsf_add(ckpt_ds_parts *parts, const ckpt_ds_name *name, const char *path, ckpt_err *err)
{
    ckpt_ds_part *p = ckpt_vec_push(parts);

    if (!p)
        return ckpt_fail_memory(err);
    *p = (ckpt_ds_part){.path = path,
                        .rank = name->dp,
                        .mp = name->mp,
                        .layer = name->layer,
                        .bf16 = name->bf16,
                        .has_layer = name->has_layer};
    return CKPT_OK;
}

/* Returns the list for files of a kind. */
static ckpt_ds_parts *dsf_list(ckpt_ds_folder *dir, ckpt_ds_kind kind)
{
    switch (kind) {
    case CKPT_DS_MODEL:
        return &dir->wholes;
    case CKPT_DS_MODEL_RANK:
        return &dir->models;
    case CKPT_DS_OPTIM:
        return &dir->optims;
    case CKPT_DS_EXPERT:
        return &dir->experts;
    case CKPT_DS_LAYER:
        return &dir->layers;
    case CKPT_DS_EXPP:
        return &dir->expps;
    case CKPT_DS_OTHER:
        break;
    }
    return NULL;
}

/*
 * Returns whether DeepSpeed's own scripts would take this file for an optimizer file, because of
 * the end of its name.
 */
static bool dsf_like_shard(const char *name)
{
    static const char end[] = "_optim_states.pt";
    size_t n = strlen(name);

    return n >= sizeof end - 1 && strcmp(name + n - (sizeof end - 1), end) == 0;
}

/* Adds one entry of the tag folder to its list. */
static int dsf_take(ckpt_ds_job *job, ckpt_ds_folder *dir, const ckpt_listing *list,
                    const ckpt_entry *e)
{
    ckpt_ds_name name = ckpt_ds_name_parse(e->name);
    ckpt_ds_parts *parts = dsf_list(dir, name.kind);

    if (!e->is_dir && name.kind == CKPT_DS_OTHER && dsf_like_shard(e->name))
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s/%s: the name is like that of an optimizer file, but gives no "
                               "known rank: move it away",
                               list->folder, e->name);
    if (e->is_dir || !parts)
        return CKPT_OK;
    const char *path = ckpt_path_join(job->map->arena, list->folder, e->name);
    return path ? dsf_add(parts, &name, path, job->err) : ckpt_fail_memory(job->err);
}

/* Sorts by number, because text order puts rank 10 before rank 2. */
static int dsf_by_rank(const void *a, const void *b)
{
    const ckpt_ds_part *x = a, *y = b;

    if (x->mp != y->mp)
        return x->mp < y->mp ? -1 : 1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return strcmp(x->path, y->path);
}

static void dsf_sort(ckpt_ds_parts *parts)
{
    if (parts->n)
        qsort(parts->at, parts->n, sizeof *parts->at, dsf_by_rank);
}

/* Sets dir->model. Two whole model files may have the same rank (mp_rank_0, mp_rank_00), which is
 * an error. */
static int dsf_whole(ckpt_ds_job *job, ckpt_ds_folder *dir)
{
    for (size_t i = 1; i < dir->wholes.n; i++) {
        if (dir->wholes.at[i - 1].mp == dir->wholes.at[i].mp)
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: rank %" PRIu32
                                   " has two model files, this and %s: one of them was left behind "
                                   "by another run; move it away",
                                   dir->wholes.at[i - 1].path, dir->wholes.at[i].mp,
                                   dir->wholes.at[i].path);
    }
    dir->model = dir->wholes.n ? dir->wholes.at[0].path : NULL;
    return CKPT_OK;
}

/*
 * Returns the expected number of model-parallel ranks: one more than the highest rank with a file.
 */
static uint32_t dsf_ranks(const ckpt_ds_folder *dir)
{
    uint32_t most = 0;
    const ckpt_ds_parts *const of[] = {&dir->wholes, &dir->models, &dir->optims};

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        uint32_t last = of[i]->n ? of[i]->at[of[i]->n - 1].mp : 0;
        most = last > most ? last : most;
    }
    return most + 1;
}

/* Appends the files of one model-parallel rank; false if memory runs out. */
static bool dsf_pick(const ckpt_ds_parts *from, uint32_t mp, ckpt_ds_parts *out)
{
    for (size_t i = 0; i < from->n; i++) {
        ckpt_ds_part *p = from->at[i].mp == mp ? ckpt_vec_push(out) : NULL;
        if (from->at[i].mp != mp)
            continue;
        if (!p)
            return false;
        *p = from->at[i];
    }
    return true;
}

int ckpt_ds_folder_slice(ckpt_ds_job *job, const ckpt_ds_folder *dir, uint32_t mp, uint32_t slice,
                         ckpt_ds_folder *out)
{
    assert(job && dir && out);
    memset(out, 0, sizeof *out);
    out->path = dir->path;
    out->tag = dir->tag;
    out->mp = mp;
    out->n_mp = dir->n_mp;
    out->offloaded = dir->offloaded;
    if (!dsf_pick(&dir->wholes, mp, &out->wholes) || !dsf_pick(&dir->models, mp, &out->models) ||
        !dsf_pick(&dir->optims, mp, &out->optims) || !dsf_pick(&dir->experts, mp, &out->experts) ||
        !dsf_pick(&dir->expps, mp, &out->expps) || !dsf_pick(&dir->layers, slice, &out->layers))
        return ckpt_fail_memory(job->err);
    return dsf_whole(job, out);
}

int ckpt_ds_folder_find(ckpt_ds_job *job, ckpt_ds_folder *dir, const ckpt_listing *list)
{
    assert(job && dir && list);
    ckpt_listing at = *list;
    int rc = dsf_resolve(job, &at);

    for (size_t i = 0; rc == CKPT_OK && i < at.n; i++)
        rc = dsf_take(job, dir, &at, &at.entry[i]);
    if (rc != CKPT_OK)
        return rc;
    dsf_sort(&dir->wholes);
    dsf_sort(&dir->models);
    dsf_sort(&dir->optims);
    dsf_sort(&dir->experts);
    dsf_sort(&dir->layers);
    dsf_sort(&dir->expps);
    dir->n_mp = dsf_ranks(dir);
    dir->path = at.folder;
    dir->offloaded = ckpt_listing_has(&at, "offloaded_tensors", true);
    dir->tag = ckpt_path_base(job->map->arena, at.folder);
    if (!dir->tag)
        return ckpt_fail_memory(job->err);
    return dir->n_mp == 1 ? dsf_whole(job, dir) : CKPT_OK;
}

void ckpt_ds_folder_free(ckpt_ds_folder *dir)
{
    ckpt_vec_free(&dir->wholes);
    ckpt_vec_free(&dir->models);
    ckpt_vec_free(&dir->optims);
    ckpt_vec_free(&dir->experts);
    ckpt_vec_free(&dir->layers);
    ckpt_vec_free(&dir->expps);
}

/*
 * Lists the first ranks missing from a sorted list; NULL if none is missing, or if memory runs out.
 */
static const char *dsf_missing(ckpt_map *map, const ckpt_ds_parts *parts, uint32_t *first)
{
    const char *text = NULL;
    uint32_t want = 0;
    unsigned n = 0;

    for (size_t i = 0; i < parts->n; i++) {
        for (; want < parts->at[i].rank && n <= DSF_MAX_LISTED; want++, n++) {
            const char *before = text;
            *first = before ? *first : want;
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

const char *ckpt_ds_folder_lost(const ckpt_ds_job *job, const ckpt_ds_parts *parts, uint32_t rank)
{
    static const char mark[] = "zero_pp_rank_";
    const char *like = parts->at[0].path, *slash = strrchr(like, '/');
    const char *at = strstr(slash ? slash : like, mark);

    // cannot fail: the names of all parts were parsed with this mark
    if (!at)
        return like;
    at += sizeof mark - 1;
    const char *path = ckpt_arena_printf(job->map->arena, "%.*s%" PRIu32 "%s", (int)(at - like),
                                         like, rank, at + strspn(at, "0123456789"));
    return path ? path : like;
}

int ckpt_ds_folder_check(ckpt_ds_job *job, const ckpt_ds_parts *parts, const char *what)
{
    assert(job && parts && what);
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i + 1 < parts->n; i++) {
        const ckpt_ds_part *a = &parts->at[i], *b = &parts->at[i + 1];
        if (a->rank == b->rank)
            rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                                 "%s: rank %" PRIu32
                                 " has two %s files, this and %s: one of them was left behind by "
                                 "another run; move it away",
                                 a->path, a->rank, what, b->path);
        else if (a->bf16 != b->bf16)
            rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                                 "%s: the %s files of ranks %" PRIu32 " and %" PRIu32
                                 " differ in the prefix bf16_: "
                                 "they are from different runs",
                                 b->path, what, a->rank, b->rank);
        if (job->broken)
            break;
    }
    uint32_t first = 0;
    const char *missing = parts->n && parts->at[parts->n - 1].rank >= parts->n
                              ? dsf_missing(job->map, parts, &first)
                              : NULL;
    if (rc == CKPT_OK && missing)
        rc = ckpt_ds_problem(
            job, CKPT_EMISSING,
            "%s: missing: the %s file of rank %s, though there are some up to rank "
            "%" PRIu32 ": a process did not save, the file was not copied, or the "
            "others are of an earlier, larger run",
            ckpt_ds_folder_lost(job, parts, first), what, missing, parts->at[parts->n - 1].rank);
    return rc;
}
