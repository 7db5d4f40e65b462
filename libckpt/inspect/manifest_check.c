/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest_check.c: compares a checkpoint with its manifest or with the hashes of a hub, and two
 * manifests with each other.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/digest.h"
#include "libckpt/base/opts.h"
#include "libckpt/coverage.h"
#include "libckpt/inspect/manifest.h"
#include "libckpt/io/address.h"
#include "libckpt/io/dir.h"
#include "libckpt/io/manifest_name.h"

/* Add the files that a list names. */
static int manc_identify(ckpt_coverage *out, ckpt_arena *a, const ckpt_hashed_vec *files,
                         const char *folder, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < files->n; i++) {
        const char *path = ckpt_path_join(a, folder, files->at[i].name);

        rc = path ? ckpt_coverage_add(out, path, err) : ckpt_fail_memory(err);
    }
    return rc;
}

/* ---- the manifest beside a checkpoint ---- */

static bool manc_exists(const ckpt_manifest_place *place)
{
    struct stat st;

    return stat(place->file, &st) == 0 || errno != ENOENT;
}

/* Count the folders in a folder that have a manifest; *first is that of the first one. */
static size_t manc_below(ckpt_arena *a, const char *folder, const char **first)
{
    DIR *dir = opendir(folder);
    struct dirent *e;
    size_t n = 0;

    while (dir && (e = readdir(dir)) != NULL) {
        const char *at = e->d_name[0] != '.' ? ckpt_path_join(a, folder, e->d_name) : NULL;
        const char *file = at ? ckpt_path_join(a, at, CKPT_MANIFEST_NAME) : NULL;

        if (!file || access(file, F_OK) != 0)
            continue;
        *first = n == 0 ? file : *first;
        n++;
    }
    if (dir)
        (void)closedir(dir);
    return n;
}

/* True if a manifest may be that of the path: only then the checkpoint must be opened. */
static bool manc_may(ckpt_arena *a, const char *path)
{
    ckpt_manifest_place place = {0};
    const char *file = NULL;

    if (ckpt_manifest_place_of(&place, a, path, NULL, NULL, NULL) != CKPT_OK || manc_exists(&place))
        return true;
    file = place.whole ? NULL : ckpt_path_join(a, place.folder, CKPT_MANIFEST_NAME);
    return (file && access(file, F_OK) == 0) || manc_below(a, path, &file) > 0;
}

/* A damaged run has no map: take the manifest of its only tag that has one. */
static void manc_damaged(ckpt_manifest_place *place, ckpt_arena *a, const char *path)
{
    const char *file = NULL;

    if (manc_below(a, path, &file) != 1)
        return;
    place->file = file;
    place->folder = ckpt_arena_string(a, file, strlen(file) - strlen("/" CKPT_MANIFEST_NAME));
    place->file = place->folder ? file : NULL;
    place->whole = true;
}

/*
 * Find the manifest of a checkpoint, in a run that of the tag that was opened. A file may belong to
 * the manifest of its folder. place->file: NULL if there is none.
 */
static int manc_locate(ckpt_manifest_place *place, ckpt_arena *a, const char *path, const char *tag,
                       const ckpt_map *map, ckpt_err *err)
{
    // a damaged checkpoint has no map
    int rc = ckpt_manifest_place_of(place, a, path, map ? NULL : tag, map, err);

    if (rc == CKPT_OK && !place->whole && !manc_exists(place)) {
        place->file = ckpt_path_join(a, place->folder, CKPT_MANIFEST_NAME);
        rc = place->file ? CKPT_OK : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK && !manc_exists(place)) {
        place->file = NULL;
        if (!map && !tag)
            manc_damaged(place, a, path);
    }
    return rc;
}

/* Open the checkpoint to know its files, unless the caller has; *own is to be freed. */
static int manc_open(const ckpt_map **out, ckpt_map **own, const char *path,
                     const ckpt_manifest_opts *opts, ckpt_err *err)
{
    int rc = opts->map ? CKPT_OK : ckpt_coverage_open(own, path, opts->open, err);

    *out = opts->map ? opts->map : *own;
    return rc;
}

/* Read the manifest that was found, which must list the file at `path`, if it is one. */
static int manc_read(ckpt_manifest **out, ckpt_arena *a, const ckpt_manifest_place *place,
                     const char *path, ckpt_err *err)
{
    ckpt_manifest *m = NULL;
    ckpt_coverage listed = {0};
    size_t at = 0;
    int rc = ckpt_manifest_read(&m, place->file, err);

    if (rc == CKPT_OK)
        rc = manc_identify(&listed, a, &m->files, place->folder, err);
    if (rc == CKPT_OK && ckpt_coverage_gap(&listed, path, NULL, &at))
        rc = ckpt_fail(err, CKPT_EDIGEST,
                       "%s: is not compared, because the manifest %s does not list it", path,
                       place->file);
    ckpt_vec_free(&listed);
    if (rc == CKPT_OK)
        *out = m;
    else
        ckpt_manifest_free(m);
    return rc;
}

int ckpt_manifest_find(ckpt_manifest **out, const char *path, const ckpt_manifest_opts *opts,
                       ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_manifest_place place = {0};
    ckpt_manifest_opts own;
    ckpt_open_opts open;
    const ckpt_map *map;
    ckpt_map *opened = NULL;
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_manifest_opts", err);

    if (rc == CKPT_OK)
        rc = ckpt_opts_take(&open, sizeof open, own.open, "ckpt_open_opts", err);
    // the manifest of a folder may be that of a shard in it
    open.whole_checkpoint = true;
    own.open = &open;
    if (rc == CKPT_OK && !a)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK && (!out || !path || !*path))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no checkpoint to find the manifest of");
    if (out)
        *out = NULL;
    if (rc == CKPT_OK && !ckpt_address_is(path) && access(path, F_OK) == 0 && manc_may(a, path)) {
        // a damaged one may have a manifest, which names the damage
        (void)manc_open(&map, &opened, path, &own, NULL);
        rc = manc_locate(&place, a, path, open.tag, map, err);
    }
    if (rc == CKPT_OK && place.file)
        rc = manc_read(out, a, &place, path, err);
    ckpt_map_free(opened);
    ckpt_arena_free(a);
    return rc;
}

/* Remove a file; 0 (also if it does not exist) or an errno value. */
static int manc_unlink(const char *path)
{
    return unlink(path) == 0 || errno == ENOENT ? 0 : errno;
}

int ckpt_manifest_remove(const char *path, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_manifest_place place;
    ckpt_manifest *m = NULL;
    int rc = a ? CKPT_OK : ckpt_fail_memory(err), sys = 0;

    if (rc == CKPT_OK && (!path || !*path))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no checkpoint to remove the manifest of");
    if (rc == CKPT_OK)
        rc = ckpt_manifest_place_of(&place, a, path, NULL, NULL, err);
    // another file of that name stays
    if (rc == CKPT_OK && ckpt_manifest_read(&m, place.file, NULL) == CKPT_OK) {
        int n = (int)(strlen(place.file) - strlen(CKPT_MANIFEST_JSON));
        const char *list = ckpt_arena_printf(a, "%.*s" CKPT_MANIFEST_LIST, n, place.file);

        // the list first: it is found only through its manifest
        sys = list ? manc_unlink(list) : ENOMEM;
        sys = sys == 0 ? manc_unlink(place.file) : sys;
        if (sys != 0)
            rc =
                ckpt_fail_sys(err, CKPT_EIO, sys, "%s: cannot remove the old manifest", place.file);
    }
    ckpt_manifest_free(m);
    ckpt_arena_free(a);
    return rc;
}

/* ---- two manifests ---- */

/* The difference of two tensors of one name, as ckpt_difference names it; NULL: none. */
static const char *manc_unlike(const ckpt_hashed *a, const ckpt_hashed *b)
{
    if (a->ndim != b->ndim ||
        (a->ndim > 0 && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) != 0))
        return "shape";
    if (a->dtype != b->dtype)
        return "dtype";
    return strcmp(a->sha256, b->sha256) != 0 ? "values" : NULL;
}

/* Compare tensors; a non-zero result of fn ends the walk. *n: the number of differences. */
static int manc_tensors(const ckpt_hashed_vec *a, const ckpt_hashed_vec *b, ckpt_hashed_fn fn,
                        void *ctx, size_t *n, ckpt_err *err)
{
    const ckpt_hashed **of_a = ckpt_hashed_sort(a), **of_b = ckpt_hashed_sort(b);
    int rc = of_a && of_b ? CKPT_OK : ckpt_fail_memory(err), stop = 0;

    *n = 0;
    for (size_t i = 0; rc == CKPT_OK && stop == 0 && i < a->n; i++) {
        const ckpt_hashed *other = ckpt_hashed_find(of_b, b->n, a->at[i].name);
        const char *what = other ? manc_unlike(&a->at[i], other) : "only in A";

        *n += what != NULL;
        stop = what && fn ? fn(ctx, what, &a->at[i], other) : 0;
    }
    for (size_t i = 0; rc == CKPT_OK && stop == 0 && i < b->n; i++) {
        if (ckpt_hashed_find(of_a, a->n, b->at[i].name))
            continue;
        ++*n;
        stop = fn ? fn(ctx, "only in B", NULL, &b->at[i]) : 0;
    }
    ckpt_free(of_a);
    ckpt_free(of_b);
    return stop != 0 ? ckpt_fail(err, CKPT_ECANCELED, "comparing was stopped by its caller") : rc;
}

int ckpt_manifest_diff(const ckpt_manifest *a, const ckpt_manifest *b, ckpt_hashed_fn fn, void *ctx,
                       ckpt_err *err)
{
    ckpt_err_clear(err);
    size_t n = 0;
    int rc = a && b ? CKPT_OK : ckpt_fail(err, CKPT_EUSAGE, "two manifests are needed");

    if (rc == CKPT_OK && a->tensors.n == 0 && b->tensors.n == 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "%s and %s: list no tensors to compare", a->path,
                       b->path);
    if (rc == CKPT_OK)
        rc = manc_tensors(&a->tensors, &b->tensors, fn, ctx, &n, err);
    return rc == CKPT_OK && n > 0
               ? ckpt_fail(err, CKPT_EDIFFERS, "%s and %s: %zu tensors differ", a->path, b->path, n)
               : rc;
}

/* ---- a checkpoint and its manifest ---- */

typedef struct manc_check {
    const ckpt_manifest *m;
    const ckpt_manifest_opts *opts;
    ckpt_finding_fn fn;
    void *ctx;
    const char *folder;
    const char *prefix; /* of names in messages */
    size_t n_bad;
    bool stopped;
    ckpt_err *err;
} manc_check;

static void manc_say(manc_check *c, const char *fmt, ...) CKPT_PRINTF(2, 3);

static void manc_say(manc_check *c, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    c->n_bad++;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (c->fn && !c->stopped)
        c->stopped = c->fn(c->ctx, CKPT_ERROR, CKPT_EDIGEST, text) != 0;
}

/* Set the folder of the files, and the start of their names in messages. */
static int manc_enter(manc_check *c, ckpt_arena *a, const char *folder)
{
    size_t n = strlen(folder);

    c->folder = folder;
    c->prefix = strcmp(folder, ".") == 0
                    ? ""
                    : ckpt_arena_printf(a, "%s%s", folder, folder[n - 1] == '/' ? "" : "/");
    return c->prefix ? CKPT_OK : ckpt_fail_memory(c->err);
}

/* List the files of a folder; entries of other kinds were added, because no manifest has them. */
static int manc_list_folder(manc_check *c, ckpt_hashed_vec *found, ckpt_arena *a)
{
    ckpt_unlisted_vec others = {0};
    int rc = ckpt_manifest_list(found, &others, a, c->folder, c->err);

    for (size_t i = 0; rc == CKPT_OK && i < others.n; i++)
        manc_say(c, "%s%s: was added: %s, which a manifest does not list", c->prefix,
                 others.at[i].name, others.at[i].what);
    ckpt_vec_free(&others);
    return rc;
}

/* List the files to hash: of the manifest, as far as they exist, and those that were added. */
static int manc_list(manc_check *c, ckpt_hashed_vec *found, ckpt_arena *a,
                     const ckpt_manifest_place *place)
{
    struct stat st;

    if (place->whole)
        return manc_list_folder(c, found, a);
    for (size_t i = 0; i < c->m->files.n; i++) {
        const char *name = c->m->files.at[i].name;
        const char *path = ckpt_arena_printf(a, "%s/%s", place->folder, name);
        ckpt_hashed *f;

        if (!path)
            return ckpt_fail_memory(c->err);
        // hashing reports other failures
        if (stat(path, &st) != 0) {
            if (errno == ENOENT || errno == ENOTDIR)
                continue;
            st.st_size = 0;
        }
        f = ckpt_vec_push(found);
        if (!f)
            return ckpt_fail_memory(c->err);
        *f = (ckpt_hashed){.name = name, .n_bytes = (uint64_t)st.st_size};
    }
    return CKPT_OK;
}

/* Compare the files that were found with those of the manifest. */
static int manc_files(manc_check *c, const ckpt_hashed_vec *found)
{
    const ckpt_hashed_vec *listed = &c->m->files;
    const ckpt_hashed **of_found = ckpt_hashed_sort(found), **of_listed = ckpt_hashed_sort(listed);
    int rc = of_found && of_listed ? CKPT_OK : ckpt_fail_memory(c->err);

    for (size_t i = 0; rc == CKPT_OK && i < listed->n; i++) {
        const ckpt_hashed *want = &listed->at[i];
        const ckpt_hashed *f = ckpt_hashed_find(of_found, found->n, want->name);

        if (!f)
            manc_say(c, "%s%s: is missing: the manifest lists it", c->prefix, want->name);
        else if (f->n_bytes != want->n_bytes)
            manc_say(c,
                     "%s%s: has %" PRIu64 " bytes, but %" PRIu64 " in the manifest: it was "
                     "changed",
                     c->prefix, want->name, f->n_bytes, want->n_bytes);
        else if (strcmp(f->sha256, want->sha256) != 0)
            manc_say(c,
                     "%s%s: has the SHA-256 %.16s..., but %.16s... in the manifest: it was "
                     "changed",
                     c->prefix, want->name, f->sha256, want->sha256);
    }
    for (size_t i = 0; rc == CKPT_OK && i < found->n; i++) {
        if (!ckpt_hashed_find(of_listed, listed->n, found->at[i].name))
            manc_say(c, "%s%s: was added: the manifest does not list it", c->prefix,
                     found->at[i].name);
    }
    ckpt_free(of_found);
    ckpt_free(of_listed);
    return rc;
}

/* Report a tensor that differs from the manifest, which is A. */
static int manc_tensor(void *ctx, const char *what, const ckpt_hashed *a, const ckpt_hashed *b)
{
    manc_check *c = ctx;

    if (!b)
        manc_say(c, "tensor %s: is missing: the manifest lists it", a->name);
    else if (!a)
        manc_say(c, "tensor %s: was added: the manifest does not list it", b->name);
    else
        manc_say(c, "tensor %s: another %s than in the manifest: it was changed", a->name,
                 strcmp(what, "values") == 0 ? "SHA-256" : what);
    return c->stopped;
}

/* Name the tensors that changed, as far as the checkpoint can still be read. */
static int manc_name_tensors(manc_check *c, const char *path)
{
    bool slices = c->m->slices;
    ckpt_hashed_vec found = {0};
    ckpt_map *map = NULL;
    ckpt_err why = {0};
    size_t n = 0;
    int rc;

    // a damaged header: the files have been named
    if (ckpt_manifest_open(&map, path, c->opts->open, &slices, &why) != CKPT_OK)
        return CKPT_OK;
    rc = ckpt_manifest_tensors(&found, map, c->err);
    if (rc == CKPT_OK)
        rc = ckpt_manifest_hash_tensors(&found, map, true, c->opts->run, c->err);
    if (rc == CKPT_OK)
        rc = manc_tensors(&c->m->tensors, &found, manc_tensor, c, &n, c->err);
    ckpt_vec_free(&found);
    ckpt_map_free(map);
    return rc;
}

/*
 * The folder of a manifest that was found beside the checkpoint at `path`: in it, in the folder of
 * a tag below it, or beside a shard. NULL: the manifest describes another path, or a file.
 */
static const char *manc_beside(const ckpt_manifest *m, ckpt_arena *a, const char *path)
{
    const char *slash = m->path ? strrchr(m->path, '/') : NULL, *end = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - m->path) : 0, k = strlen(path);
    const char *name = slash ? slash + 1 : m->path;
    struct stat st = {0};

    // a folder's own manifest lies in it, not beside it
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        end = NULL;
    while (k > 1 && path[k - 1] == '/')
        k--;
    if (!name || strcmp(name, CKPT_MANIFEST_NAME) != 0)
        return NULL;
    if (!slash)
        return end || S_ISDIR(st.st_mode) ? NULL : ".";
    if (n >= k && strncmp(m->path, path, k) == 0 && (m->path[k] == '/' || path[k - 1] == '/'))
        return ckpt_arena_string(a, m->path, n);
    return end && (size_t)(end - path) == n && strncmp(m->path, path, n) == 0
               ? ckpt_arena_string(a, m->path, n)
               : NULL;
}

/* Report that the manifest does not describe all files that the checkpoint is read from. */
static int manc_cover(manc_check *c, ckpt_arena *a, const char *path, const ckpt_map *map)
{
    ckpt_coverage listed = {0};
    size_t at = 0;
    int rc = manc_identify(&listed, a, &c->m->files, c->folder, c->err);
    const char *file = rc == CKPT_OK ? ckpt_coverage_gap(&listed, path, map, &at) : NULL;

    if (rc == CKPT_OK && c->m->files.n == 0)
        manc_say(c, "%s: the manifest lists no file", c->m->path);
    else if (file)
        manc_say(c, "%s: the manifest does not list this file of the checkpoint", file);
    ckpt_vec_free(&listed);
    return rc;
}

/* Compare files, then tensors. */
static int manc_all(manc_check *c, ckpt_arena *a, const char *path)
{
    const char *tag = c->opts->open ? c->opts->open->tag : NULL;
    ckpt_manifest_place place = {.folder = manc_beside(c->m, a, path), .whole = true};
    ckpt_hashed_vec found = {0};
    const ckpt_map *map;
    ckpt_map *own = NULL;
    ckpt_err why = {0};
    int opened = manc_open(&map, &own, path, c->opts, &why), rc = CKPT_OK;

    if (!place.folder)
        rc = ckpt_manifest_place_of(&place, a, path, tag, map, c->err);

    if (rc == CKPT_OK)
        rc = manc_enter(c, a, place.folder);
    if (rc == CKPT_OK)
        rc = manc_list(c, &found, a, &place);
    if (rc == CKPT_OK)
        rc = ckpt_manifest_hash_files(&found, place.folder, c->opts->run, c->err);
    if (rc == CKPT_OK)
        rc = manc_files(c, &found);
    if (rc == CKPT_OK && c->n_bad == 0 && opened != CKPT_OK)
        rc = ckpt_fail(c->err, opened,
                       "%s (so ckpt cannot tell whether the manifest lists all its files)",
                       why.text);
    else if (rc == CKPT_OK && c->n_bad == 0)
        rc = manc_cover(c, a, path, map);
    else if (rc == CKPT_OK && !c->stopped)
        rc = manc_name_tensors(c, path);
    ckpt_map_free(own);
    ckpt_vec_free(&found);
    return rc;
}

int ckpt_manifest_check(const ckpt_manifest *m, const char *path, const ckpt_manifest_opts *opts,
                        ckpt_finding_fn finding, void *ctx, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_manifest_opts own;
    manc_check c = {.m = m, .opts = &own, .fn = finding, .ctx = ctx, .err = err};
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_manifest_opts", err);

    if (rc == CKPT_OK && (!m || !path || !*path))
        rc = ckpt_fail(err, CKPT_EUSAGE, "a manifest and a checkpoint are needed");
    if (rc == CKPT_OK && ckpt_address_is(path))
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                       "%s: a manifest describes files of this machine: download it first", path);
    if (rc == CKPT_OK)
        rc = a ? manc_all(&c, a, path) : ckpt_fail_memory(err);
    ckpt_arena_free(a);
    if (rc == CKPT_OK && c.stopped)
        rc = ckpt_fail(err, CKPT_ECANCELED, "%s: comparing was stopped by its caller", path);
    if (rc == CKPT_OK && c.n_bad > 0)
        rc = ckpt_fail(err, CKPT_EDIGEST, "%s: differs from its manifest %s", path, m->path);
    return rc;
}

/* ---- the hub's hashes ---- */

/*
 * Get the hash that names the file to which a link of the hub's cache leads: "model.safetensors" to
 * "../../blobs/<SHA-256>". Small files have git's hash (40 digits) instead.
 */
static bool manc_hub_hash(const char *path, char sha256[65])
{
    char to[4096];
    uint8_t digest[32];
    ssize_t n = readlink(path, to, sizeof to - 1);
    const char *name;

    if (n <= 0)
        return false;
    to[n] = '\0';
    name = strrchr(to, '/');
    if (!name || name - to < 5 || strncmp(name - 5, "blobs", 5) != 0 ||
        !ckpt_sha256_parse(digest, name + 1))
        return false;
    ckpt_sha256_hex(digest, sha256);
    return true;
}

/* Compare the files of a list that are links into the cache. */
static int manc_hub_files(manc_check *c, ckpt_hashed_vec *files, ckpt_arena *a, uint64_t *n)
{
    ckpt_hashed_vec want = {0};
    size_t kept = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < files->n; i++) {
        const char *path = ckpt_arena_printf(a, "%s/%s", c->folder, files->at[i].name);
        ckpt_hashed hub = files->at[i], *to;

        if (!path || !manc_hub_hash(path, hub.sha256)) {
            rc = path ? CKPT_OK : ckpt_fail_memory(c->err);
            continue;
        }
        to = ckpt_vec_push(&want);
        if (to)
            *to = hub;
        rc = to ? CKPT_OK : ckpt_fail_memory(c->err);
        files->at[kept++] = files->at[i];
    }
    files->n = kept;
    if (rc == CKPT_OK)
        rc = ckpt_manifest_hash_files(files, c->folder, c->opts->run, c->err);
    for (size_t i = 0; rc == CKPT_OK && i < kept; i++) {
        if (strcmp(files->at[i].sha256, want.at[i].sha256) != 0)
            manc_say(c, "%s%s: has the SHA-256 %.16s..., but %.16s... on the hub: it was changed",
                     c->prefix, files->at[i].name, files->at[i].sha256, want.at[i].sha256);
    }
    *n = kept;
    ckpt_vec_free(&want);
    return rc;
}

/* The files to look at: one, or all below the folder of the checkpoint. */
static int manc_hub_list(manc_check *c, ckpt_hashed_vec *files, ckpt_arena *a, const char *path,
                         const ckpt_map *map)
{
    ckpt_manifest_place place;
    const char *tag = c->opts->open ? c->opts->open->tag : NULL;
    int rc = ckpt_manifest_place_of(&place, a, path, tag, map, c->err);
    const char *slash = strrchr(path, '/');
    ckpt_unlisted_vec others = {0}; // have no hash
    ckpt_hashed *one;

    if (rc == CKPT_OK)
        rc = manc_enter(c, a, place.folder);
    if (rc == CKPT_OK && place.whole)
        rc = ckpt_manifest_list(files, &others, a, place.folder, c->err);
    ckpt_vec_free(&others);
    if (rc != CKPT_OK || place.whole)
        return rc;
    one = ckpt_vec_push(files);
    if (!one)
        return ckpt_fail_memory(c->err);
    *one = (ckpt_hashed){.name = slash ? slash + 1 : path};
    return CKPT_OK;
}

/* True if one of the files has a hash of the hub. */
static bool manc_hub_any(const manc_check *c, const ckpt_hashed_vec *files, ckpt_arena *a)
{
    char sha256[65];

    for (size_t i = 0; i < files->n; i++) {
        const char *path = ckpt_arena_printf(a, "%s/%s", c->folder, files->at[i].name);

        if (path && manc_hub_hash(path, sha256))
            return true;
    }
    return false;
}

/* List the files with a hash of the hub and compare them; *n: their number. */
static int manc_hub(manc_check *c, ckpt_arena *a, const char *path, uint64_t *n)
{
    ckpt_hashed_vec files = {0};
    ckpt_coverage ids = {0};
    const ckpt_map *map = c->opts->map;
    ckpt_map *own = NULL;
    size_t at = 0;
    int rc = manc_hub_list(c, &files, a, path, map), opened = CKPT_OK;

    if (rc == CKPT_OK && !map && manc_hub_any(c, &files, a)) {
        files.n = 0;
        opened = manc_open(&map, &own, path, c->opts, NULL);
        rc = manc_hub_list(c, &files, a, path, map);
    }
    if (rc == CKPT_OK)
        rc = manc_hub_files(c, &files, a, n);
    // hashes of some files say nothing about the values in the others
    if (rc == CKPT_OK && *n > 0)
        rc = manc_identify(&ids, a, &files, c->folder, c->err);
    if (*n > 0 && (opened != CKPT_OK || ckpt_coverage_gap(&ids, path, map, &at)))
        *n = 0;
    ckpt_map_free(own);
    ckpt_vec_free(&ids);
    ckpt_vec_free(&files);
    return rc;
}

int ckpt_hub_check(const char *path, const ckpt_manifest_opts *opts, ckpt_finding_fn finding,
                   void *ctx, uint64_t *n, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_manifest_opts own;
    manc_check c = {.opts = &own, .fn = finding, .ctx = ctx, .err = err};
    uint64_t known = 0;
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_manifest_opts", err);

    if (rc == CKPT_OK && (!path || !*path))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no path to check");
    if (rc == CKPT_OK && !a)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK && !ckpt_address_is(path))
        rc = manc_hub(&c, a, path, &known);
    ckpt_arena_free(a);
    if (n)
        *n = known;
    if (rc == CKPT_OK && c.stopped)
        rc = ckpt_fail(err, CKPT_ECANCELED, "%s: the check was stopped", path);
    if (rc == CKPT_OK && c.n_bad > 0)
        rc = ckpt_fail(err, CKPT_EDIGEST, "%s: differs from the hub's hashes", path);
    return rc;
}
