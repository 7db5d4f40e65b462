/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_tag.c: recognises and examines one tag of a run, and adds up its size.
 *
 * It opens the tag with problems collected, which costs as much as `info`; their codes decide its
 * health.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt_extra.h"
#include "libckpt/drivers.h"
#include "libckpt/inspect/doctor.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

enum {
    DOT_MAX_PATH = 4200,
    DOT_MAX_KEPT = 100, /* reported problems of one tag */
    DOT_MAX_DEPTH = 6 /* folders in a tag folder: zero/NAME/fp32.pt, offloaded_tensors/rank0/... */
};

/* A folder whose files are not added up yet. */
typedef struct dot_below {
    const char *path;
    unsigned depth;
} dot_below;

CKPT_VEC(dot_belows, dot_below);

/* ---- texts ---- */

const char *ckpt_doc_join(ckpt_map *map, const char *folder, const char *name)
{
    size_t n = strlen(folder);

    return ckpt_arena_printf(map->arena, n && folder[n - 1] == '/' ? "%s%s" : "%s/%s", folder,
                             name);
}

/*
 * A text with paths relative to a folder: "FOLDER/file: ..." becomes "file: ...", "FOLDER: ..."
 * becomes the rest.
 */
static const char *dot_relative(ckpt_doc *d, const char *folder, const char *text)
{
    size_t n = strlen(folder), at = 0;
    char *out = ckpt_arena_string(d->map->arena, text, strlen(text));

    if (!out || n == 0)
        return out;
    while (n > 1 && folder[n - 1] == '/')
        n--;
    for (const char *s = text; *s;) {
        bool here = strncmp(s, folder, n) == 0;
        if (here && s[n] == '/')
            s += n + 1;
        else if (here && s == text && strncmp(s + n, ": ", 2) == 0)
            s += n + 2;
        else
            out[at++] = *s++;
    }
    out[at] = 0;
    return out;
}

const char *ckpt_doc_health_name(ckpt_tag_health h)
{
    static const char *const names[] = {"whole", "partial", "rotten", "mixed", "not judged"};

    return names[h];
}

/* ---- problems ---- */

/* The health for a code, and the severity of that code. */
static ckpt_tag_health dot_health(int code, int *grave)
{
    switch (code) {
    case CKPT_OK:
        *grave = 0;
        return CKPT_TAG_WHOLE;
    case CKPT_EMISSING:
        *grave = 2;
        return CKPT_TAG_PARTIAL;
    case CKPT_EMISMATCH:
        *grave = 3;
        return CKPT_TAG_MIXED;
    case CKPT_EFORMAT:
        *grave = 4;
        return CKPT_TAG_DAMAGED;
    case CKPT_EUNSAFE:
        *grave = 5;
        return CKPT_TAG_DAMAGED;
    default:
        // not supported, unreadable, over a limit: no statement about the checkpoint
        *grave = 1;
        return CKPT_TAG_UNKNOWN;
    }
}

int ckpt_doc_keep(ckpt_doc *d, ckpt_doc_problems *all, int code, const char *text)
{
    ckpt_doc_problem *p = text && all->n < DOT_MAX_KEPT ? ckpt_vec_push(all) : NULL;

    if (!text || (!p && all->n < DOT_MAX_KEPT))
        return ckpt_fail_memory(d->err);
    if (p)
        *p = (ckpt_doc_problem){.code = code, .text = text};
    return CKPT_OK;
}

/*
 * Record a problem of a tag, or a remark with CKPT_OK; the most severe problem, and the first of
 * equals, decides its health.
 */
static int dot_note(ckpt_doc *d, ckpt_doc_tag *t, int code, const char *text)
{
    const char *near = dot_relative(d, t->path, text);
    int grave = 0, before = 0;

    if (near && code == CKPT_EUNSAFE)
        near = ckpt_arena_printf(d->map->arena, "unsafe: %s", near);
    if (near && code != CKPT_OK) {
        ckpt_tag_health health = dot_health(code, &grave);
        (void)dot_health(t->is.code, &before);
        t->is.n_problems++;
        if (grave > before) {
            t->is.health = health;
            t->is.code = code;
            t->is.reason = near;
        }
    }
    return ckpt_doc_keep(d, &t->problems, code, near);
}

/* ---- folders ---- */

/* True for the name of a shard, if the driver takes a folder with such shards for a tag. */
static bool dot_is_shard(const char *name)
{
    for (size_t i = 0; ckpt_directories[i]; i++) {
        const ckpt_directory *dir = ckpt_directories[i];
        if ((dir->is.caps & CKPT_HAS_TAGS) && dir->part && dir->part(name) == 1)
            return true;
    }
    return false;
}

/* The run layout for which a folder is a tag; NULL: no driver has one. */
static const ckpt_run_layout *dot_layout(const ckpt_listing *list)
{
    for (size_t i = 0; ckpt_directories[i]; i++) {
        const ckpt_run_layout *const *run = ckpt_directories[i]->runs;
        for (; run && *run; run++) {
            if ((*run)->is_tag(list))
                return *run;
        }
    }
    return NULL;
}

const ckpt_run_layout *ckpt_doc_pointed(const ckpt_listing *list)
{
    for (size_t i = 0; ckpt_directories[i]; i++) {
        const ckpt_run_layout *const *run = ckpt_directories[i]->runs;
        for (; run && *run; run++) {
            // other programs have files of this name
            if (ckpt_doc_has(list, (*run)->pointer, false) &&
                ((*run)->is_run ? (*run)->is_run(list) : ckpt_directories[i]->probe(list) > 0))
                return *run;
        }
    }
    return NULL;
}

bool ckpt_doc_has_shards(const ckpt_listing *list)
{
    if (dot_layout(list))
        return true;
    for (size_t i = 0; i < list->n; i++) {
        if (!list->entry[i].is_dir && dot_is_shard(list->entry[i].name))
            return true;
    }
    return false;
}

bool ckpt_doc_has(const ckpt_listing *list, const char *name, bool is_dir)
{
    const ckpt_entry *e = ckpt_listing_find(list, name);

    return e && e->is_dir == is_dir;
}

bool ckpt_doc_has_deepspeed(const ckpt_listing *list)
{
    return ckpt_doc_has(list, "latest", false) || ckpt_doc_has(list, "latest_universal", false);
}

bool ckpt_doc_has_pointer(const ckpt_listing *list)
{
    return ckpt_doc_has_deepspeed(list) || ckpt_doc_pointed(list);
}

int ckpt_doc_list(ckpt_listing *out, bool *listed, ckpt_map *map, const char *path, ckpt_err *err)
{
    ckpt_err local = {0};
    int rc = ckpt_listing_read(out, map, path, &local);

    *listed = rc == CKPT_OK;
    return rc == CKPT_ELIMIT ? ckpt_fail(err, rc, "%s", local.text) : CKPT_OK;
}

/* True for a universal checkpoint, which has its parameters in "zero". */
bool ckpt_doc_is_universal(const ckpt_listing *list)
{
    char state[DOT_MAX_PATH];
    struct stat st;

    if (!ckpt_doc_has(list, "zero", true))
        return false;
    int n = snprintf(state, sizeof state, "%s/zero/optimizer_state.pt", list->folder);
    return ckpt_doc_has_shards(list) ||
           (n > 0 && (size_t)n < sizeof state && stat(state, &st) == 0);
}

/* Add up one folder, and queue its subfolders; links to folders are not followed. */
static int dot_weigh_one(ckpt_map *map, const ckpt_listing *list, unsigned depth, dot_belows *below,
                         uint64_t *n_bytes)
{
    struct stat st;

    for (size_t i = 0; i < list->n; i++) {
        *n_bytes += list->entry[i].size;
        if (!list->entry[i].is_dir || depth >= DOT_MAX_DEPTH)
            continue;
        const char *path = ckpt_doc_join(map, list->folder, list->entry[i].name);
        if (path && (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode)))
            continue;
        dot_below *next = path ? ckpt_vec_push(below) : NULL;
        if (!next)
            return ckpt_fail_memory(NULL);
        *next = (dot_below){.path = path, .depth = depth + 1};
    }
    return CKPT_OK;
}

/*
 * Add up the bytes of all files below a listed folder; a folder that cannot be listed counts as 0.
 */
static int dot_weigh(ckpt_map *map, const ckpt_listing *top, uint64_t *n_bytes, ckpt_err *err)
{
    dot_belows below = {0};
    int rc = dot_weigh_one(map, top, 0, &below, n_bytes);

    for (size_t i = 0; rc == CKPT_OK && i < below.n; i++) {
        ckpt_listing list;
        bool listed = false;
        rc = ckpt_doc_list(&list, &listed, map, below.at[i].path, NULL);
        if (rc == CKPT_OK && listed)
            rc = dot_weigh_one(map, &list, below.at[i].depth, &below, n_bytes);
    }
    ckpt_vec_free(&below);
    return rc == CKPT_OK ? rc : ckpt_fail_memory(err);
}

/* Set the numbers, from names, by which tags are ordered. */
static void dot_order(ckpt_doc_tag *t, const ckpt_listing *list)
{
    if (!t->layout)
        return;
    t->done = t->layout->is_done && t->layout->is_done(list);
    t->number = ckpt_run_number(t->layout, t->dir);
}

int ckpt_doc_tag_look(ckpt_doc *d, ckpt_doc_tag *t, bool anyhow, bool *found)
{
    ckpt_listing list;
    ckpt_map *map = NULL; // a listing may be long, and is not needed after this
    bool listed = false;
    int rc = ckpt_map_create(&map, 0, d->err);

    *found = anyhow;
    if (rc == CKPT_OK)
        rc = ckpt_doc_list(&list, &listed, map, t->path, d->err);
    if (listed) {
        t->has_shards = ckpt_doc_has_shards(&list);
        t->layout = dot_layout(&list);
        dot_order(t, &list);
        t->is.is_universal = ckpt_doc_is_universal(&list);
        // a folder with a pointer file is a run and no tag, whatever else it contains
        *found = anyhow || ((t->has_shards || t->is.is_universal) && !ckpt_doc_has_pointer(&list));
        if (*found)
            rc = dot_weigh(map, &list, &t->is.n_bytes, d->err);
    } else {
        t->has_shards = anyhow; // opening it later reports why it cannot be listed
    }
    ckpt_map_free(map);
    return rc;
}

int ckpt_doc_tag_new(ckpt_doc *d, ckpt_doc_tag *t, const ckpt_doc_run *run, const char *dir)
{
    *t = (ckpt_doc_tag){
        .dir = dir,
        .number = -1,
        .path = run->alone ? run->folder : ckpt_doc_join(d->map, run->folder, dir),
        .is = {.name = *run->is.name ? ckpt_doc_join(d->map, run->is.name, dir) : dir,
               .reason = "",
               .step = -1,
               .stage = -1}};
    return t->path && t->is.name ? CKPT_OK : ckpt_fail_memory(d->err);
}

/* ---- one tag ---- */

/* Take the facts of an opened tag, and the time of its files. */
static int dot_facts(ckpt_doc *d, ckpt_doc_tag *t, const ckpt_map *map)
{
    for (size_t i = 0; i < map->facts.n; i++) {
        const char *text = map->facts.at[i].text;
        if (strcmp(map->facts.at[i].key, CKPT_MOMENTS) != 0)
            continue;
        t->moments = ckpt_arena_string(d->map->arena, text, strlen(text));
        if (!t->moments)
            return ckpt_fail_memory(d->err);
    }
    t->is.step = map->known.step;
    t->is.stage = map->known.stage;
    t->is.world = map->known.world;
    for (size_t i = 0; i < map->files.n; i++) {
        const ckpt_map_file *f = &map->files.at[i];
        if (f->mtime_s > t->mtime_s || (f->mtime_s == t->mtime_s && f->mtime_ns > t->mtime_ns)) {
            t->mtime_s = f->mtime_s;
            t->mtime_ns = f->mtime_ns;
        }
    }
    return CKPT_OK;
}

/* Receives ckpt_verify's findings. */
typedef struct dot_deep {
    ckpt_doc *d;
    ckpt_doc_tag *t;
    int rc;
} dot_deep;

static int dot_deep_finding(void *ctx, int severity, int code, const char *text)
{
    dot_deep *deep = ctx;

    if (severity > 0 && deep->rc == CKPT_OK)
        deep->rc = dot_note(deep->d, deep->t, severity > 1 ? code : CKPT_OK, text);
    return deep->rc != CKPT_OK;
}

/*
 * Check every record and value too. This opens the tag again, which costs little compared to the
 * reading.
 */
static int dot_examine_deep(ckpt_doc *d, ckpt_doc_tag *t, const char *path)
{
    dot_deep deep = {.d = d, .t = t};
    const ckpt_verify_opts opts = {
        .run = &d->run, .finding = dot_deep_finding, .finding_ctx = &deep};
    ckpt_err local = {0};
    size_t before = t->is.n_problems;
    int rc = ckpt_verify(path, &opts, NULL, &local);

    if (deep.rc != CKPT_OK)
        return deep.rc;
    if (rc == CKPT_ECANCELED)
        return ckpt_fail(d->err, rc, "%s", local.text);
    // ckpt_verify may fail without a finding (memory, I/O): record that failure
    return rc != CKPT_OK && t->is.n_problems == before ? dot_note(d, t, rc, local.text) : CKPT_OK;
}

/* Record the problems that opening alone finds. */
static int dot_examine_map(ckpt_doc *d, ckpt_doc_tag *t, const ckpt_map *map)
{
    ckpt_err local = {0};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < map->findings.n; i++) {
        const ckpt_finding *f = &map->findings.at[i];
        if (f->severity > CKPT_INFO)
            rc = dot_note(d, t, f->severity == CKPT_ERROR ? f->code : CKPT_OK, f->text);
    }
    int sound = rc == CKPT_OK ? ckpt_map_check(map, &local) : CKPT_OK;
    return sound == CKPT_OK ? rc : dot_note(d, t, sound, local.text);
}

/* The number of optimizer files in a DeepSpeed folder. */
static size_t dot_optims(const ckpt_listing *list)
{
    static const char end[] = "_optim_states.pt";
    size_t found = 0;

    for (size_t i = 0; i < list->n; i++) {
        size_t n = strlen(list->entry[i].name);
        found += !list->entry[i].is_dir && n >= sizeof end - 1 &&
                 strcmp(list->entry[i].name + n - (sizeof end - 1), end) == 0;
    }
    return found;
}

/* The number in a fact, or 1. */
static uint64_t dot_fact(const ckpt_map *map, const char *name)
{
    uint64_t n = 1;

    for (size_t i = 0; i < map->facts.n; i++) {
        const ckpt_fact *f = &map->facts.at[i];
        if (f->is_number && f->number > 0 && f->number < INT32_MAX && strcmp(f->key, name) == 0)
            n = (uint64_t)f->number;
    }
    return n;
}

/*
 * For a tag that is not whole: check its weights, and count its optimizer files. The reason begins
 * with the result, because a user who has lost a file needs it first.
 */
static int dot_weights(ckpt_doc *d, ckpt_doc_tag *t, const char *path)
{
    const ckpt_open_opts open = {.weights_only = true};
    ckpt_err local = {0};
    ckpt_map *map = NULL;
    ckpt_listing list;

    if (t->is.code != CKPT_EMISSING || ckpt_open(&map, path, &open, &local) != CKPT_OK)
        return CKPT_OK;
    uint64_t ranks = dot_fact(map, "world size") * dot_fact(map, "tensor parallel") *
                     dot_fact(map, "pipeline parallel");
    bool weights = strcmp(map->format, "deepspeed") == 0 && map->tensors.n > 0;
    size_t here = ckpt_listing_known(&list, map, path) ? dot_optims(&list) : 0;

    ckpt_map_free(map);
    if (!weights)
        return CKPT_OK;
    t->is.reason =
        ranks > here ? ckpt_arena_printf(d->map->arena,
                                         "weights: whole; optimizer: %zu of %" PRIu64 " shards; %s",
                                         here, ranks, t->is.reason)
                     : ckpt_arena_printf(d->map->arena, "weights: whole; %s", t->is.reason);
    return t->is.reason ? CKPT_OK : ckpt_fail_memory(d->err);
}

/* Examine the checkpoint in a folder: the tag's, or that of one of several models. */
static int dot_examine_one(ckpt_doc *d, ckpt_doc_tag *t, const char *path)
{
    const ckpt_open_opts open = {.collect = true, .with_optimizer = true};
    ckpt_err local = {0};
    ckpt_map *map = NULL;
    int rc = ckpt_open(&map, path, &open, &local);
    bool opened = rc == CKPT_OK;
    if (opened) {
        rc = dot_facts(d, t, map);
        if (rc == CKPT_OK && !d->opts->deep)
            rc = dot_examine_map(d, t, map);
    } else {
        rc = dot_note(d, t, rc, local.text);
    }
    ckpt_map_free(map);
    if (rc == CKPT_OK && opened && d->opts->deep)
        rc = dot_examine_deep(d, t, path);
    return rc == CKPT_OK ? dot_weights(d, t, path) : rc;
}

/*
 * Examine each model of a tag; a tag without models is opened itself, which reports the missing
 * parts.
 */
static int dot_examine_each(ckpt_doc *d, ckpt_doc_tag *t)
{
    ckpt_listing list, sub;
    bool listed = false, found = false;
    int rc = ckpt_doc_list(&list, &listed, d->map, t->path, d->err);

    for (size_t i = 0; rc == CKPT_OK && listed && i < list.n; i++) {
        const char *path;
        bool is = false;
        if (!list.entry[i].is_dir)
            continue;
        path = ckpt_doc_join(d->map, t->path, list.entry[i].name);
        rc = path ? ckpt_doc_list(&sub, &is, d->map, path, d->err) : ckpt_fail_memory(d->err);
        if (rc == CKPT_OK && is && sub.n == 0)
            rc = dot_note(d, t, CKPT_EMISSING,
                          ckpt_arena_printf(d->map->arena, "%s: empty: nothing was saved", path));
        found = found || (is && sub.n == 0);
        if (rc == CKPT_OK && is && ckpt_doc_has_shards(&sub)) {
            found = true;
            rc = dot_examine_one(d, t, path);
        }
    }
    return rc == CKPT_OK && !found ? dot_examine_one(d, t, t->path) : rc;
}

int ckpt_doc_tag_examine(ckpt_doc *d, ckpt_doc_tag *t)
{
    if (d->run.progress && d->run.progress(d->run.progress_ctx, 0, 0))
        return ckpt_fail(d->err, CKPT_ECANCELED, "%s: stopped", t->path);
    if (!t->has_shards && !t->is.is_universal)
        return dot_note(d, t, CKPT_EMISSING, "holds no files of a checkpoint");
    return t->layout && t->layout->several ? dot_examine_each(d, t)
                                           : dot_examine_one(d, t, t->path);
}
