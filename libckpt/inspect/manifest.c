/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c: makes the manifest of a checkpoint: finds its place, lists its files and tensors, and
 * hashes both.
 */
#include "libckpt/inspect/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/opts.h"
#include "libckpt/commit/hashes.h"
#include "libckpt/commit/temp_names.h"
#include "libckpt/copy/budget.h"
#include "libckpt/io/address.h"
#include "libckpt/io/dir.h"
#include "libckpt/io/io_digest.h"
#include "libckpt/io/listing.h"
#include "libckpt/io/manifest_name.h"

enum {
    MAN_ELEMS = 1 << 15,     /* elements of a tensor that are read at a time: whole blocks */
    MAN_MOST_FILES = 1 << 20 /* files of one checkpoint */
};

/* ---- a manifest ---- */

int ckpt_manifest_new(ckpt_manifest **out, ckpt_err *err)
{
    ckpt_manifest *m = ckpt_alloc(sizeof *m);

    *out = NULL;
    if (m)
        m->arena = ckpt_arena_new(0);
    if (!m || !m->arena) {
        ckpt_free(m);
        return ckpt_fail_memory(err);
    }
    *out = m;
    return CKPT_OK;
}

void ckpt_manifest_free(ckpt_manifest *m)
{
    if (!m)
        return;
    ckpt_vec_free(&m->files);
    ckpt_vec_free(&m->tensors);
    ckpt_arena_free(m->arena);
    ckpt_free(m);
}

const char *ckpt_manifest_path(const ckpt_manifest *m)
{
    return m ? m->path : NULL;
}

size_t ckpt_manifest_file_count(const ckpt_manifest *m)
{
    return m ? m->files.n : 0;
}

const ckpt_hashed *ckpt_manifest_file_at(const ckpt_manifest *m, size_t i)
{
    return m && i < m->files.n ? &m->files.at[i] : NULL;
}

size_t ckpt_manifest_tensor_count(const ckpt_manifest *m)
{
    return m ? m->tensors.n : 0;
}

const ckpt_hashed *ckpt_manifest_tensor_at(const ckpt_manifest *m, size_t i)
{
    return m && i < m->tensors.n ? &m->tensors.at[i] : NULL;
}

static int man_by_name(const void *pa, const void *pb)
{
    const ckpt_hashed *a = pa, *b = pb;

    return strcmp(a->name, b->name);
}

static int man_by_name_of(const void *pa, const void *pb)
{
    const ckpt_hashed *const *a = pa, *const *b = pb;

    return strcmp((*a)->name, (*b)->name);
}

const ckpt_hashed **ckpt_hashed_sort(const ckpt_hashed_vec *items)
{
    const ckpt_hashed **sorted = ckpt_alloc((items->n + 1) * sizeof(const ckpt_hashed *));

    for (size_t i = 0; sorted && i < items->n; i++)
        sorted[i] = &items->at[i];
    if (sorted && items->n > 1)
        qsort(sorted, items->n, sizeof(const ckpt_hashed *), man_by_name_of);
    return sorted;
}

const ckpt_hashed *ckpt_hashed_find(const ckpt_hashed *const *sorted, size_t n, const char *name)
{
    const ckpt_hashed key = {.name = name}, *const at = &key;
    const ckpt_hashed *const *hit =
        n > 0 ? bsearch(&at, sorted, n, sizeof *sorted, man_by_name_of) : NULL;

    return hit ? *hit : NULL;
}

/* ---- the place ---- */

static bool man_is_folder(const char *path)
{
    struct stat st;

    return path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The folder of a file, or NULL when memory is exhausted. */
static const char *man_parent(ckpt_arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return ckpt_arena_string(a, ".", 1);
    return ckpt_arena_string(a, path, slash == path ? 1 : (uint64_t)(slash - path));
}

/* The name of a file without the number of a part: "model-00001-of-00002.gguf" is model.gguf's. */
static const char *man_whole_name(ckpt_arena *a, const char *path)
{
    static const char form[] = "-ddddd-of-ddddd";
    const char *dot = strrchr(path, '.');
    size_t m = sizeof form - 1;

    if (!dot || (size_t)(dot - path) < m)
        return path;
    for (size_t i = 0; i < m; i++) {
        char c = *(dot - m + i);

        if (form[i] == 'd' ? c < '0' || c > '9' : c != form[i])
            return path;
    }
    return ckpt_arena_printf(a, "%.*s%s", (int)((size_t)(dot - path) - m), path, dot);
}

/* Read the tag that `latest` of a run names, if there is one. */
static const char *man_latest(ckpt_arena *a, const char *folder)
{
    const char *path = ckpt_path_join(a, folder, "latest"), *name = NULL;
    char *text = NULL;
    uint64_t n = 0;

    if (path && ckpt_io_slurp(&text, &n, path, 4096, NULL) == CKPT_OK) {
        while (n > 0 && strchr(" \t\r\n", text[n - 1]))
            n--;
        name = ckpt_arena_string(a, text, n);
        name = name && ckpt_dir_parts_ok(name) ? name : NULL;
    }
    ckpt_free(text);
    return name;
}

/* True for one of the files of a model that its own format divides: NAME-00001-of-00002.gguf. */
static bool man_is_part(const char *path)
{
    const char *format = ckpt_format_from_path(path);
    unsigned caps = format ? ckpt_format_caps(format) : 0;

    return (caps & CKPT_TAKES_SHARD_SIZE) && !(caps & CKPT_IS_FOLDER) && !man_is_folder(path);
}

int ckpt_manifest_place_of(ckpt_manifest_place *out, ckpt_arena *a, const char *path,
                           const char *tag, const ckpt_map *map, ckpt_err *err)
{
    const char *top = map && man_is_folder(map->path) && !man_is_part(path) ? map->path : path;
    size_t n;

    *out = (ckpt_manifest_place){.whole = man_is_folder(top)};
    if (!out->whole) {
        const char *name = man_whole_name(a, path);

        out->folder = man_parent(a, path);
        out->file = name ? ckpt_arena_printf(a, "%s" CKPT_MANIFEST_BESIDE, name) : NULL;
        return out->folder && out->file ? CKPT_OK : ckpt_fail_memory(err);
    }
    if (!tag)
        tag = map ? map->known.tag : man_latest(a, top);
    if (tag && ckpt_dir_parts_ok(tag)) {
        const char *below = ckpt_path_join(a, top, tag);

        top = man_is_folder(below) ? below : top;
    }
    for (n = strlen(top); n > 1 && top[n - 1] == '/';)
        n--;
    out->folder = top = ckpt_arena_string(a, top, n);
    if (!top)
        return ckpt_fail_memory(err);
    out->file = ckpt_path_join(a, top, CKPT_MANIFEST_NAME);
    return out->folder && out->file ? CKPT_OK : ckpt_fail_memory(err);
}

/* ---- files ---- */

CKPT_VEC(man_names, const char *);

/* The walk over a folder: all folders found so far, by their names below the first one. */
typedef struct man_walk {
    ckpt_hashed_vec *out;
    ckpt_unlisted_vec *unlisted;
    ckpt_arena *arena;
    const char *top;
    man_names folders;
    size_t n; /* entries of all three kinds */
} man_walk;

/* True for an entry that may vanish: a temporary file; and for the folder itself and its parent. */
static bool man_passing(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
           ckpt_left_name(name) != CKPT_LEFT_NONE;
}

/* True for an entry, by its path below the top, that does not belong to the checkpoint. */
static bool man_foreign(const char *name, mode_t mode)
{
    const char *slash = strrchr(name, '/');

    // .git, .cache of huggingface_hub; but .metadata of torch's distributed checkpoints is a file
    if (S_ISDIR(mode))
        return slash ? slash[1] == '.' : name[0] == '.';
    // the checkpoint's own; its signature may be added later, and can cover the manifest
    return S_ISREG(mode) && (strcmp(name, CKPT_MANIFEST_NAME) == 0 ||
                             strcmp(name, CKPT_MANIFEST_STEM CKPT_MANIFEST_LIST) == 0 ||
                             strcmp(name, "model.sig") == 0);
}

/*
 * Look at a folder's entry.  A file, a link to a file, or a folder: st describes it, and *what is
 * NULL.  Anything else: *what is its kind ("a link to a folder").
 */
static int man_look(struct stat *st, const char **what, const char *path, ckpt_err *err)
{
    struct stat own;

    *what = NULL;
    if (lstat(path, &own) != 0)
        return ckpt_fail_sys(err, errno == ENOENT ? CKPT_EMISSING : CKPT_EIO, errno,
                             "%s: cannot look at the file", path);
    if (stat(path, st) != 0) {
        if (!S_ISLNK(own.st_mode) || (errno != ENOENT && errno != ENOTDIR && errno != ELOOP))
            return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot look at the file", path);
        *st = own;
        *what = "a link that leads nowhere";
    } else if (S_ISDIR(st->st_mode)) {
        *what = S_ISLNK(own.st_mode) ? "a link to a folder" : NULL;
    } else if (!S_ISREG(st->st_mode)) {
        *what = "a pipe, socket or device";
    }
    return CKPT_OK;
}

/* Add an entry that is neither a file nor a folder, or refuse it. */
static int man_unlisted(man_walk *w, const char *name, const char *path, const char *what,
                        ckpt_err *err)
{
    ckpt_unlisted *to = w->unlisted ? ckpt_vec_push(w->unlisted) : NULL;

    if (!w->unlisted)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: is %s, and a manifest lists files only: replace it by a copy of the "
                         "files, or move it elsewhere",
                         path, what);
    if (!to)
        return ckpt_fail_memory(err);
    *to = (ckpt_unlisted){name, what};
    return CKPT_OK;
}

/* Add one entry of a folder, which has a path below the top. */
static int man_entry(man_walk *w, const char *name, const char *path, ckpt_err *err)
{
    const char *what;
    ckpt_hashed *file;
    struct stat st;
    int rc = man_look(&st, &what, path, err);

    if (rc != CKPT_OK || man_foreign(name, st.st_mode))
        return rc;
    if (w->n++ >= MAN_MOST_FILES)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: has more than %d files", w->top, MAN_MOST_FILES);
    if (what)
        return man_unlisted(w, name, path, what, err);
    if (S_ISDIR(st.st_mode)) {
        const char **folder = ckpt_vec_push(&w->folders);

        if (folder)
            *folder = name;
        return folder ? CKPT_OK : ckpt_fail_memory(err);
    }
    file = ckpt_vec_push(w->out);
    if (!file)
        return ckpt_fail_memory(err);
    *file = (ckpt_hashed){.name = name, .n_bytes = (uint64_t)st.st_size};
    return CKPT_OK;
}

/* List one folder; name: below the top, or "". */
static int man_folder(man_walk *w, const char *name, ckpt_err *err)
{
    const char *path = *name ? ckpt_path_join(w->arena, w->top, name) : w->top;
    DIR *dir = path ? opendir(path) : NULL;
    const struct dirent *entry;
    int rc = CKPT_OK;

    if (!dir)
        return path ? ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot list the folder", path)
                    : ckpt_fail_memory(err);
    while (rc == CKPT_OK && (errno = 0, entry = readdir(dir))) {
        const char *below, *full;

        if (man_passing(entry->d_name))
            continue;
        below = *name ? ckpt_path_join(w->arena, name, entry->d_name)
                      : ckpt_arena_string(w->arena, entry->d_name, strlen(entry->d_name));
        full = below ? ckpt_path_join(w->arena, w->top, below) : NULL;
        rc = full ? man_entry(w, below, full, err) : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK && errno != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot read the folder", path);
    (void)closedir(dir);
    return rc;
}

int ckpt_manifest_list(ckpt_hashed_vec *out, ckpt_unlisted_vec *unlisted, ckpt_arena *a,
                       const char *folder, ckpt_err *err)
{
    man_walk w = {.out = out, .unlisted = unlisted, .arena = a, .top = folder};
    int rc = man_folder(&w, "", err);

    for (size_t i = 0; rc == CKPT_OK && i < w.folders.n; i++)
        rc = man_folder(&w, w.folders.at[i], err);
    ckpt_vec_free(&w.folders);
    if (out->n > 1)
        qsort(out->at, out->n, sizeof *out->at, man_by_name);
    return rc;
}

/* Add the files of an opened checkpoint that is a file, or several files in one folder. */
static int man_list_map(ckpt_hashed_vec *out, ckpt_arena *a, const ckpt_map *map,
                        const char *folder, ckpt_err *err)
{
    for (size_t i = 0; i < map->files.n; i++) {
        const ckpt_map_file *f = &map->files.at[i];
        const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
        const char *parent = man_parent(a, f->path);
        ckpt_hashed *file;

        if (!parent || strcmp(parent, folder) != 0)
            return parent ? ckpt_fail(err, CKPT_EUNSUPPORTED,
                                      "%s: is a part of the checkpoint, but is not in %s: a "
                                      "manifest lists files of one folder",
                                      f->path, folder)
                          : ckpt_fail_memory(err);
        file = ckpt_vec_push(out);
        name = ckpt_arena_string(a, name, strlen(name));
        if (!file || !name)
            return ckpt_fail_memory(err);
        *file = (ckpt_hashed){.name = name, .n_bytes = f->size};
    }
    if (out->n > 1)
        qsort(out->at, out->n, sizeof *out->at, man_by_name);
    return CKPT_OK;
}

/* ---- hashing ---- */

/* The work of hashing files or tensors; each worker has a reader of its own. */
typedef struct man_work {
    ckpt_hashed_vec *items;
    const char *folder;  /* of the files; NULL: tensors */
    const ckpt_map *map; /* of the tensors */
    bool damaged;        /* hash records with a wrong CRC, too */
    ckpt_reader **reader;
    uint8_t **buf;
    ckpt_progress *progress;
} man_work;

static int man_file(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    const man_work *w = ctx;
    ckpt_hashed *file = &w->items->at[item];
    size_t n = strlen(w->folder) + strlen(file->name) + 2;
    char *path = file->sha256[0] ? NULL : ckpt_alloc(n);
    ckpt_io *io = NULL;
    uint8_t digest[32];
    int rc;

    (void)worker;
    if (!path)
        return file->sha256[0] ? CKPT_OK : ckpt_fail_memory(err);
    (void)snprintf(path, n, "%s/%s", w->folder, file->name);
    rc = ckpt_io_open_here(&io, path, err);
    if (rc == CKPT_OK)
        file->n_bytes = io->size;
    if (rc == CKPT_OK)
        rc = ckpt_io_sha256(digest, io, w->progress, err);
    if (rc == CKPT_OK)
        ckpt_sha256_hex(digest, file->sha256);
    ckpt_io_close(io);
    ckpt_free(path);
    return rc;
}

/* Hash the elements of a tensor, row-major. */
static int man_elements(const man_work *w, unsigned worker, const ckpt_tensor *t, ckpt_sha256 *sha,
                        ckpt_err *err)
{
    const ckpt_dtype_info *type = ckpt_dtype_get(t->dtype);
    int rc = CKPT_OK;

    for (uint64_t at = 0; rc == CKPT_OK && at < t->n_elems; at += MAN_ELEMS) {
        uint64_t n = t->n_elems - at < MAN_ELEMS ? t->n_elems - at : MAN_ELEMS, n_bytes;

        // the last elements of F4 may end inside a byte
        if (!ckpt_dtype_bytes(t->dtype, n, &n_bytes))
            n_bytes = (n * type->bits + 7) / 8;
        rc = ckpt_reader_read(w->reader[worker], t, at, n, CKPT_DTYPE_NONE, w->buf[worker], err);
        if (rc == CKPT_OK)
            rc = ckpt_sha256_add(sha, w->buf[worker], (size_t)n_bytes, err);
        if (rc == CKPT_OK && w->progress)
            rc = ckpt_progress_add(w->progress, n_bytes, err);
    }
    return rc;
}

static int man_tensor(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    const man_work *w = ctx;
    ckpt_hashed *h = &w->items->at[item];
    const ckpt_tensor *t = w->map->tensors.at[item];
    ckpt_sha256 *sha = NULL;
    uint8_t digest[32];
    ckpt_err why = {0};
    int rc = CKPT_OK;

    if (h->sha256[0])
        return CKPT_OK;
    if (!w->buf[worker])
        w->buf[worker] = ckpt_alloc(16 * MAN_ELEMS);
    if (!w->buf[worker])
        return ckpt_fail_memory(err);
    if (!w->reader[worker])
        rc = ckpt_reader_new(&w->reader[worker], w->map, err);
    if (rc == CKPT_OK && w->damaged)
        ckpt_reader_skip_crc(w->reader[worker]);
    if (rc == CKPT_OK)
        rc = ckpt_sha256_new(&sha, err);
    if (rc == CKPT_OK)
        rc = man_elements(w, worker, t->owner ? t->owner : t, sha, &why);
    if (rc == CKPT_OK)
        rc = ckpt_sha256_end(sha, digest, err);
    if (rc == CKPT_OK)
        ckpt_sha256_hex(digest, h->sha256);
    ckpt_sha256_free(sha);
    if (rc == CKPT_EFORMAT && w->damaged)
        return CKPT_OK;
    return rc == CKPT_OK ? rc : ckpt_fail(err, rc, "%s", why.text);
}

/* Hash all items by several threads. */
static int man_hash(man_work *w, ckpt_crew_fn fn, const ckpt_run_opts *run, ckpt_err *err)
{
    unsigned n_workers = ckpt_run_jobs(run ? run->jobs : 0);
    uint64_t total = 0;
    int rc;

    for (size_t i = 0; i < w->items->n; i++)
        total += w->items->at[i].sha256[0] ? 0 : w->items->at[i].n_bytes;
    rc = ckpt_progress_new(&w->progress, run, total, err);
    w->reader = ckpt_alloc(n_workers * sizeof *w->reader);
    w->buf = ckpt_alloc(n_workers * sizeof *w->buf);
    if (rc == CKPT_OK && (!w->reader || !w->buf))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_crew_run(n_workers, w->items->n, fn, w, err);
    for (unsigned i = 0; w->reader && w->buf && i < n_workers; i++) {
        ckpt_reader_free(w->reader[i]);
        ckpt_free(w->buf[i]);
    }
    ckpt_free(w->reader);
    ckpt_free(w->buf);
    ckpt_progress_free(w->progress);
    return rc;
}

int ckpt_manifest_hash_files(ckpt_hashed_vec *files, const char *folder, const ckpt_run_opts *run,
                             ckpt_err *err)
{
    man_work w = {.items = files, .folder = folder};

    return man_hash(&w, man_file, run, err);
}

int ckpt_manifest_hash_tensors(ckpt_hashed_vec *tensors, const ckpt_map *map, bool damaged,
                               const ckpt_run_opts *run, ckpt_err *err)
{
    man_work w = {.items = tensors, .map = map, .damaged = damaged};

    return man_hash(&w, man_tensor, run, err);
}

/* ---- tensors ---- */

int ckpt_manifest_open(ckpt_map **out, const char *path, const ckpt_open_opts *open, bool *slices,
                       ckpt_err *err)
{
    ckpt_open_opts own = open ? *open : (ckpt_open_opts){0};
    ckpt_err why = {0};
    int rc;

    own.with_optimizer = own.whole_checkpoint = true;
    own.keep_slices = own.keep_slices || *slices;
    rc = ckpt_open(out, path, &own, &why);
    if (rc == CKPT_EUNSUPPORTED && !own.keep_slices) {
        // slices that no rule joins
        own.keep_slices = true;
        rc = ckpt_open(out, path, &own, &why);
    }
    *slices = own.keep_slices;
    return rc == CKPT_OK ? rc : ckpt_fail(err, rc, "%s", why.text);
}

int ckpt_manifest_tensors(ckpt_hashed_vec *out, const ckpt_map *map, ckpt_err *err)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        ckpt_hashed *h = ckpt_vec_push(out);

        if (!h)
            return ckpt_fail_memory(err);
        *h = (ckpt_hashed){.name = t->name,
                           .n_bytes = ckpt_tensor_bytes(t),
                           .dtype = t->dtype,
                           .ndim = t->ndim,
                           .shape = t->shape};
    }
    return CKPT_OK;
}

/* Copy the texts of the tensors into the manifest, which outlives the map. */
static int man_keep_tensors(ckpt_manifest *m, ckpt_err *err)
{
    for (size_t i = 0; i < m->tensors.n; i++) {
        ckpt_hashed *h = &m->tensors.at[i];

        h->name = ckpt_arena_string(m->arena, h->name, strlen(h->name));
        h->shape = ckpt_arena_copy(m->arena, h->shape, h->ndim * sizeof *h->shape);
        if (!h->name || !h->shape)
            return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

/* Take the hashes of files and tensors that the run has computed while it wrote them. */
static void man_take_known(ckpt_manifest *m, const ckpt_map *map, const char *folder,
                           const ckpt_hashes *known)
{
    if (!known)
        return;
    for (size_t i = 0; i < m->files.n; i++)
        (void)ckpt_hashes_file(known, folder, m->files.at[i].name, m->files.at[i].sha256);
    for (size_t i = 0; i < m->tensors.n; i++)
        (void)ckpt_hashes_tensor(known, map, map->tensors.at[i], m->tensors.at[i].sha256);
}

/* List and hash everything of an opened checkpoint. */
static int man_fill(ckpt_manifest *m, const ckpt_map *map, const ckpt_manifest_place *place,
                    const ckpt_manifest_opts *opts, ckpt_err *err)
{
    int rc = place->whole ? ckpt_manifest_list(&m->files, NULL, m->arena, place->folder, err)
                          : man_list_map(&m->files, m->arena, map, place->folder, err);

    m->format = ckpt_arena_string(m->arena, map->format, strlen(map->format));
    if (rc == CKPT_OK && !m->format)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_manifest_tensors(&m->tensors, map, err);
    if (rc == CKPT_OK) {
        man_take_known(m, map, place->folder, opts->hashes);
        rc = ckpt_manifest_hash_files(&m->files, place->folder, opts->run, err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_manifest_hash_tensors(&m->tensors, map, false, opts->run, err);
    return rc == CKPT_OK ? man_keep_tensors(m, err) : rc;
}

/* Check the options, and that the checkpoint is on this machine. */
static int man_begin(ckpt_manifest_opts *own, const char *path, const ckpt_manifest_opts *opts,
                     ckpt_err *err)
{
    int rc = ckpt_opts_take(own, sizeof *own, opts, "ckpt_manifest_opts", err);

    if (rc == CKPT_OK && (!path || !*path))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no path to hash");
    if (rc == CKPT_OK && ckpt_address_is(path))
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                       "%s: a manifest describes files of this machine: download it first", path);
    return rc;
}

int ckpt_manifest_make(ckpt_manifest **out, const char *path, const ckpt_manifest_opts *opts,
                       ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_manifest_opts own;
    ckpt_manifest_place place = {0};
    ckpt_manifest *m = NULL;
    ckpt_map *map = NULL;
    int rc = man_begin(&own, path, opts, err);

    if (out)
        *out = NULL;
    if (rc == CKPT_OK)
        rc = ckpt_manifest_new(&m, err);
    if (rc == CKPT_OK)
        rc = ckpt_manifest_open(&map, path, own.open, &m->slices, err);
    if (rc == CKPT_OK)
        rc = ckpt_manifest_place_of(&place, m->arena, path, own.open ? own.open->tag : NULL, map,
                                    err);
    if (rc == CKPT_OK) {
        m->path = place.file;
        rc = man_fill(m, map, &place, &own, err);
    }
    ckpt_map_free(map);
    if (rc == CKPT_OK && out)
        *out = m;
    else
        ckpt_manifest_free(m);
    return rc;
}
