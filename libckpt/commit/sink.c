/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.c: writes files under temporary names, or in a staging folder, and makes them final.
 */
#define _GNU_SOURCE // fallocate, sync_file_range, renameat2
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/rename.h"
#include "libckpt/commit/sink_inside.h"
#include "libckpt/io/io.h"

/* ---- existing outputs ---- */

/* Check an existing entry: never an input, never a folder, and a file only with force. */
static int sink_check_existing(const ckpt_sink *s, const ckpt_map *inputs, const char *name,
                               ckpt_err *err)
{
    struct stat st, to;
    char shown[512];

    if (fstatat(s->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT
                   ? CKPT_OK
                   : ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot stat", s->shown, name);
    if (ckpt_dir_is_input(inputs, &st) ||
        (fstatat(s->dir.fd, name, &to, 0) == 0 && ckpt_dir_is_input(inputs, &to)))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s/%s: is one of the input files; choose another output", s->shown, name);
    // a link to a folder is not replaced by a file either
    if (fstatat(s->dir.fd, name, &to, 0) == 0 && S_ISDIR(to.st_mode))
        return ckpt_fail(err, CKPT_EUSAGE, "%s/%s: is a folder; choose another output", s->shown,
                         name);
    (void)snprintf(shown, sizeof shown, "%s/%s", s->shown, name);
    if (ckpt_dir_check_place(s->dir.fd, name, shown, false, err) != CKPT_OK)
        return CKPT_EUSAGE;
    if (!s->opts.force)
        return ckpt_fail(err, CKPT_EUSAGE, "%s/%s: exists already; use --force to replace it",
                         s->shown, name);
    return CKPT_OK;
}

/*
 * Check the free space now instead of failing after hours. With force the old files still count,
 * because they exist until the rename.
 */
static int sink_check_space(const ckpt_sink *s, ckpt_err *err)
{
    struct statvfs fs;
    uint64_t need = 0, have;

    for (size_t i = 0; i < s->n; i++) {
        bool writes = !s->kept[i].kept && !s->file[i].elsewhere;

        // both forms of a packed file exist for a while; the size of the second is not known yet,
        // and at worst it is as large as the first
        if ((writes && !ckpt_add(need, s->file[i].size, &need)) ||
            (s->target->files.at[i].packed && !ckpt_add(need, s->file[i].size, &need)))
            return ckpt_fail(err, CKPT_ELIMIT, "%s: the output would have more than 2^64 bytes",
                             s->shown);
    }
    // If a file system does not report its free space, fallocate or a write will fail later.
    if (fstatvfs(s->dir.fd, &fs) != 0 || fs.f_blocks == 0)
        return CKPT_OK;
    if (!ckpt_mul((uint64_t)fs.f_bavail, (uint64_t)(fs.f_frsize > 0 ? fs.f_frsize : fs.f_bsize),
                  &have) ||
        need <= have)
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, ENOSPC,
                         "%s: needs %" PRIu64 " bytes, but only %" PRIu64 " are free", s->shown,
                         need, have);
}

/* ---- opening ---- */

/* Keep the files of an interrupted run that are unchanged, and remove everything else. */
static int sink_keep(ckpt_sink *s, ckpt_err *err)
{
    bool anew = false;
    const ckpt_keep where = {.at = ckpt_publish_fd(s->stage),
                             .to = s->target,
                             .jobs = s->opts.jobs,
                             .progress = s->opts.progress};
    int rc = ckpt_keep_look(s->kept, &where, ckpt_publish_kept(s->stage), err);

    for (size_t i = 0; i < s->n; i++) {
        // a file of an earlier run may belong to another machine now
        s->kept[i].kept = s->kept[i].kept && !s->file[i].elsewhere;
        s->n_kept += s->kept[i].kept;
    }
    if (rc == CKPT_OK)
        rc = ckpt_publish_begin(s->stage, s->n_kept, &anew, err);
    s->at = ckpt_publish_fd(s->stage);
    for (size_t i = 0; rc == CKPT_OK && i < s->n; i++) {
        s->kept[i].kept = s->kept[i].kept && !anew;
        if (!s->kept[i].kept && !anew && unlinkat(s->at, s->file[i].name, 0) != 0 &&
            errno != ENOENT)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot remove an unfinished file",
                               s->shown, s->file[i].name);
    }
    if (anew)
        s->n_kept = 0;
    return rc;
}

/* Make the initialisations that need no disk. */
static int sink_init(ckpt_sink *s, const char *folder, const ckpt_map *target, ckpt_err *err)
{
    const char *below = target->folder ? target->folder : "";
    size_t n = strlen(folder), n_shown;

    while (n > 1 && folder[n - 1] == '/')
        n--;
    n_shown = n + strlen(below) + 2;
    s->target = target;
    s->n = target->files.n;
    s->max_open = ckpt_io_open_limit();
    s->shown = ckpt_alloc(n_shown);
    s->open = ckpt_alloc((s->n + 1) * sizeof *s->open);
    s->file = ckpt_alloc((s->n + 1) * sizeof *s->file);
    s->kept = ckpt_alloc((s->n + 1) * sizeof *s->kept);
    if (!s->shown || !s->open || !s->file || !s->kept)
        return ckpt_fail_memory(err);
    (void)snprintf(s->shown, n_shown, "%.*s%s%s", (int)n, folder, below[0] != 0 ? "/" : "", below);
    for (size_t i = 0; i < s->n; i++) {
        sink_file *f = &s->file[i];

        f->fd = -1;
        f->name = target->files.at[i].path;
        f->size = target->files.at[i].size;
        f->elsewhere = target->files.at[i].elsewhere || (s->opts.elsewhere && s->opts.elsewhere[i]);
    }
    s->opts.elsewhere = NULL; // the array was borrowed
    return CKPT_OK;
}

/* Open the staging folder, and find the files to keep. */
static int sink_open_stage(ckpt_sink *s, const ckpt_map *inputs, ckpt_err *err)
{
    ckpt_publish_opts opts = {
        .force = s->opts.force, .skip_fsync = s->opts.skip_fsync, .jobs = s->opts.jobs};
    int rc;

    for (size_t i = 0; i < s->n; i++)
        opts.n_elsewhere += s->file[i].elsewhere;
    rc = ckpt_publish_open(&s->stage, &s->dir, s->target, inputs, &opts, err);
    s->staged = true;
    return rc == CKPT_OK ? sink_keep(s, err) : rc;
}

/* All checks that can refuse come first, so that nothing is created before them. */
static int sink_begin(ckpt_sink *s, const char *folder, const ckpt_map *target,
                      const ckpt_map *inputs, ckpt_err *err)
{
    int rc = sink_init(s, folder, target, err);

    if (rc == CKPT_OK)
        rc = ckpt_dir_check_names(target, s->shown, err);
    if (rc == CKPT_OK)
        rc = ckpt_dir_make(&s->dir, folder, err);
    s->at = s->dir.fd;
    if (rc == CKPT_OK && (target->folder || target->set))
        rc = sink_open_stage(s, inputs, err);
    for (size_t i = 0; rc == CKPT_OK && !s->stage && i < s->n; i++) {
        if (!s->file[i].elsewhere)
            rc = sink_check_existing(s, inputs, s->file[i].name, err);
    }
    if (rc == CKPT_OK)
        rc = sink_check_space(s, err);
    for (size_t i = 0; rc == CKPT_OK && i < s->n; i++) {
        // A staging folder may have very many small files, so each is created at its first write.
        if (s->kept[i].kept || s->file[i].elsewhere || (s->stage && s->file[i].size < SINK_LARGE))
            continue;
        rc = sink_make_room(s, err);
        if (rc == CKPT_OK)
            rc = sink_create(s, &s->file[i], err);
    }
    return rc;
}

/* NULL: out of memory. */
static ckpt_sink *sink_new(void)
{
    ckpt_sink *s = ckpt_alloc(sizeof *s);

    if (s && pthread_mutex_init(&s->lock, NULL) != 0) {
        ckpt_free(s);
        s = NULL;
    }
    if (s)
        s->dir = CKPT_DIR_NONE;
    return s;
}

int ckpt_sink_open(ckpt_sink **out, const char *folder, const ckpt_map *target,
                   const ckpt_map *inputs, const ckpt_sink_opts *opts, ckpt_err *err)
{
    assert(out && target);
    ckpt_sink *s = sink_new();
    int rc;

    *out = NULL;
    if (!s)
        return ckpt_fail_memory(err);
    if (opts)
        s->opts = *opts;
    rc = sink_begin(s, folder, target, inputs, err);
    if (rc == CKPT_OK)
        *out = s;
    else
        ckpt_sink_close(s);
    return rc;
}

/* ---- the files of another process ---- */

/* Description of one file in a message; its temporary name follows, if it has one. */
typedef struct sink_told {
    uint32_t crc;
    uint16_t n_temp; /* bytes of that name */
    bool kept, made;
} sink_told;

int ckpt_sink_describe(const ckpt_sink *s, ckpt_bytes *out, ckpt_err *err)
{
    const uint8_t staged = s->staged;
    char *where = s->stage ? ckpt_publish_path(s->stage) : NULL;
    const char *path = s->stage ? where : s->dir.path;
    bool ok = path && ckpt_bytes_add(out, &staged, sizeof staged) &&
              ckpt_bytes_add(out, path, strlen(path) + 1);

    for (size_t i = 0; ok && i < s->n; i++) {
        const sink_file *f = &s->file[i];
        const sink_told t = {.crc = s->kept[i].crc,
                             .n_temp = (uint16_t)(f->temp ? strlen(f->temp) : 0),
                             .kept = s->kept[i].kept,
                             .made = f->made};

        ok = ckpt_bytes_add(out, &t, sizeof t) && ckpt_bytes_add(out, f->temp, t.n_temp);
    }
    ckpt_free(where);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

/* Parse the description of one file; *p moves past it. False: it is malformed. */
static bool sink_understand(ckpt_sink *s, size_t i, const uint8_t **p, const uint8_t *end)
{
    sink_file *f = &s->file[i];
    sink_told t;

    if ((size_t)(end - *p) < sizeof t)
        return false;
    memcpy(&t, *p, sizeof t);
    *p += sizeof t;
    if ((size_t)(end - *p) < t.n_temp || t.n_temp >= SINK_NAME)
        return false;
    s->kept[i] = (ckpt_kept){.listed = t.kept, .kept = t.kept, .crc = t.crc};
    s->n_kept += t.kept;
    f->made = t.made;
    if (t.n_temp > 0) {
        f->temp = ckpt_alloc(SINK_NAME);
        if (!f->temp)
            return false;
        memcpy(f->temp, *p, t.n_temp);
    }
    *p += t.n_temp;
    if (!t.made)
        return true;
    // The file has its size and space; the counters only count this process's writes.
    return sink_make_windows(f);
}

static int sink_open_attached(ckpt_sink *s, const char *folder, const ckpt_map *target,
                              ckpt_err *err)
{
    const uint8_t *p = s->how.described, *end = p ? p + s->how.n : p;
    const char *path = (const char *)p + 1;
    int rc = sink_init(s, folder, target, err);

    if (rc != CKPT_OK)
        return rc;
    if (s->how.n < 2 || !memchr(path, 0, s->how.n - 1))
        return ckpt_fail(err, CKPT_EIO, "%s: the description of the outputs did not arrive",
                         s->shown);
    s->staged = p[0];
    p += 1 + strlen(path) + 1;
    rc = ckpt_dir_open(&s->dir, path, err);
    s->at = s->dir.fd;
    for (size_t i = 0; rc == CKPT_OK && i < s->n; i++) {
        if (!sink_understand(s, i, &p, end))
            rc = ckpt_fail_memory(err);
    }
    return rc;
}

int ckpt_sink_attach(ckpt_sink **out, const char *folder, const ckpt_map *target,
                     const ckpt_sink_how *how, const ckpt_sink_opts *opts, ckpt_err *err)
{
    assert(out && target && how && opts);
    ckpt_sink *s = sink_new();
    int rc;

    *out = NULL;
    if (!s)
        return ckpt_fail_memory(err);
    s->opts = *opts;
    s->attached = true;
    s->how = *how;
    rc = sink_open_attached(s, folder, target, err);
    s->how.described = NULL;
    if (rc == CKPT_OK)
        *out = s;
    else
        ckpt_sink_close(s);
    return rc;
}

int ckpt_sink_nothing(ckpt_sink **out, const char *folder, const ckpt_map *target, ckpt_err *err)
{
    assert(out && target);
    ckpt_sink *s = sink_new();
    int rc;

    *out = NULL;
    if (!s)
        return ckpt_fail_memory(err);
    s->attached = true;
    s->at = -1;
    rc = sink_init(s, folder, target, err);
    if (rc == CKPT_OK)
        *out = s;
    else
        ckpt_sink_close(s);
    return rc;
}

char *ckpt_sink_file_path(const ckpt_sink *s, uint32_t i)
{
    char *where = s->stage ? ckpt_publish_path(s->stage) : NULL;
    const char *folder = s->stage ? where : s->dir.path;
    const char *name = s->file[i].temp ? s->file[i].temp : s->file[i].name;
    size_t n = folder ? strlen(folder) + strlen(name) + 2 : 0;
    char *path = n > 0 ? ckpt_alloc(n) : NULL;

    if (path)
        (void)snprintf(path, n, "%s/%s", folder, name);
    ckpt_free(where);
    return path;
}

bool ckpt_sink_kept(const ckpt_sink *s, uint32_t i)
{
    return s && i < s->n && s->kept[i].kept;
}

const ckpt_set_stays *ckpt_sink_stays(const ckpt_sink *s)
{
    static const ckpt_set_stays none;

    return s && s->stage ? ckpt_publish_stays(s->stage) : &none;
}

size_t ckpt_sink_gone(const ckpt_sink *s)
{
    return s && s->stage ? ckpt_publish_gone(s->stage) : 0;
}

uint64_t ckpt_sink_dropped(const ckpt_sink *s)
{
    return s && s->stage ? ckpt_publish_dropped(s->stage) : 0;
}

char *ckpt_sink_path(const ckpt_sink *s)
{
    return s && s->stage ? ckpt_publish_path(s->stage) : NULL;
}

/* ---- packing ---- */

int ckpt_sink_pack(ckpt_sink *s, ckpt_map *target, ckpt_pack_fn pack, ckpt_err *err)
{
    const ckpt_pack_job job = {.at = s->at,
                               .shown = s->shown,
                               .skip_fsync = s->opts.skip_fsync,
                               .progress = s->opts.progress,
                               .pack = pack};
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < s->n; i++) {
        assert(!target->files.at[i].packed || s->stage);
        if (target->files.at[i].packed)
            rc = ckpt_pack_file(&job, target, i, err);
    }
    return rc;
}

/* ---- committing ---- */

/* Check that a kept file equals this run's bytes. */
static int sink_compare_kept(const ckpt_sink *s, const ckpt_journal_entry *e, ckpt_err *err)
{
    const ckpt_kept *k = &s->kept[e->file];

    if (e->crc == k->crc)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EIO,
                     "%s/%s: the file of an interrupted run has other bytes (CRC-32 %08" PRIx32
                     ") than this run makes (%08" PRIx32 "): it is removed; run again",
                     s->shown, s->file[e->file].name, k->crc, e->crc);
}

/* Record files in the journal, which only one process keeps. */
static int sink_note(ckpt_sink *s, const ckpt_journal_entry *entry, size_t n, ckpt_err *err)
{
    return s->attached ? s->how.note(s->how.ctx, entry, n, err)
                       : ckpt_publish_done(s->stage, entry, n, err);
}

int ckpt_sink_note(ckpt_sink *s, const ckpt_journal_entry *entry, size_t n, ckpt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!s || !s->stage || entry[i].file >= s->n)
            return ckpt_fail(err, CKPT_EIO,
                             "the journal refers to the unknown output file %" PRIu32,
                             entry[i].file);
    }
    return n > 0 ? ckpt_publish_done(s->stage, entry, n, err) : CKPT_OK;
}

int ckpt_sink_finish(ckpt_sink *s, const ckpt_journal_entry *entry, size_t n, ckpt_err *err)
{
    size_t first = 0;
    int rc = CKPT_OK;

    if (n > 1 && !s->opts.skip_fsync)
        sink_start_write_back(s, entry, n);
    for (size_t i = 0; rc == CKPT_OK && i < n; i++)
        rc = s->kept[entry[i].file].kept ? sink_compare_kept(s, &entry[i], err)
                                         : sink_sync(s, entry[i].file, err);
    // Kept files have their lines already, so only the runs of files between them are recorded.
    for (size_t i = 0; s->staged && rc == CKPT_OK && i <= n; i++) {
        if (i < n && !s->kept[entry[i].file].kept)
            continue;
        if (i > first)
            rc = sink_note(s, entry + first, i - first, err);
        first = i + 1;
    }
    return rc;
}

int ckpt_sink_flush(ckpt_sink *s, uint32_t i, ckpt_err *err)
{
    return sink_sync(s, i, err);
}

/*
 * Make the final rename; without force it must not replace a file that was created during the run.
 */
static int sink_rename(const ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    struct stat st;

    if (!s->opts.force) {
        if (renameat2(s->at, f->temp, s->at, f->name, RENAME_NOREPLACE) == 0) {
            f->renamed = true;
            return CKPT_OK;
        }
        if (errno == EEXIST)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "%s/%s: was created by another process; use --force to replace it",
                             s->shown, f->name);
        // EINVAL, ENOSYS: this file system does not support the flag; check, then rename.
        if (errno == EINVAL || errno == ENOSYS) {
            if (fstatat(s->at, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return ckpt_fail(err, CKPT_EUSAGE,
                                 "%s/%s: exists already; use --force to replace it", s->shown,
                                 f->name);
        } else {
            return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot rename to its final name",
                                 s->shown, f->name);
        }
    }
    if (renameat(s->at, f->temp, s->at, f->name) != 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot rename to its final name",
                             s->shown, f->name);
    f->renamed = true;
    return CKPT_OK;
}

/*
 * Undo after a rename, or the sync after them, has failed. Names that were free before are removed,
 * so that no partial set is left; renames that replaced a file cannot be undone, and the message
 * reports that.
 */
static int sink_take_back(ckpt_sink *s, size_t n_done, const ckpt_err *why, ckpt_err *err)
{
    if (s->opts.force && n_done == s->n)
        return ckpt_fail(err, why->code,
                         "%.300s (all files are in place, but may not survive a power cut)",
                         why->text);
    if (s->opts.force && n_done > 0)
        return ckpt_fail(err, why->code,
                         "%.300s (%zu of %zu files are already replaced: the set in this folder is "
                         "mixed; run again)",
                         why->text, n_done, s->n);
    for (size_t i = 0; i < n_done; i++) {
        if (s->file[i].renamed && unlinkat(s->at, s->file[i].name, 0) == 0)
            s->file[i].made = s->file[i].renamed = false;
    }
    return ckpt_fail(err, why->code, "%s", why->text);
}

int ckpt_sink_commit(ckpt_sink *s, ckpt_err *err)
{
    int rc = s->opts.skip_fsync ? CKPT_OK : ckpt_dir_sync_made(&s->dir, err);
    ckpt_err why = {0};

    if (rc == CKPT_OK && s->stage)
        rc = ckpt_publish_commit(s->stage, err);
    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; !s->stage && i < s->n; i++) {
        if (!s->file[i].elsewhere && sink_rename(s, &s->file[i], &why) != CKPT_OK)
            return sink_take_back(s, i, &why, err);
    }
    if (!s->stage && !s->opts.skip_fsync && ckpt_fsync(s->dir.fd) != 0) {
        (void)ckpt_fail_sys(&why, CKPT_EIO, errno, "%s: cannot sync the folder", s->shown);
        return sink_take_back(s, s->n, &why, err);
    }
    // From here on the folders stay.
    s->dir.n_made = 0;
    return CKPT_OK;
}

bool ckpt_sink_undo(ckpt_sink *s)
{
    ckpt_err why = {.code = CKPT_EIO};

    if (s->stage)
        return ckpt_publish_undo(s->stage);
    for (size_t i = 0; i < s->n; i++) {
        if (s->file[i].renamed && s->opts.force)
            return false;
    }
    (void)sink_take_back(s, s->n, &why, NULL);
    return true;
}

void ckpt_sink_leave(ckpt_sink *s)
{
    if (s->stage)
        ckpt_publish_leave(s->stage);
}

void ckpt_sink_close(ckpt_sink *s)
{
    if (!s)
        return;
    for (size_t i = 0; s->file && i < s->n; i++) {
        sink_file *f = &s->file[i];

        if (f->fd >= 0)
            (void)close(f->fd);
        if (!s->staged && !s->attached && f->made && !f->renamed)
            (void)unlinkat(s->at, f->temp, 0);
        ckpt_free(f->window);
        ckpt_free(f->temp);
    }
    ckpt_publish_close(s->stage);
    ckpt_dir_close(&s->dir);
    pthread_mutex_destroy(&s->lock);
    ckpt_free(s->file);
    ckpt_free(s->open);
    ckpt_free(s->kept);
    ckpt_free(s->shown);
    ckpt_free(s);
}
