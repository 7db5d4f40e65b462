/* SPDX-License-Identifier: Apache-2.0 */
/* sheet.c: writes one file with escaped text, which appears only when it is complete. */
#define _GNU_SOURCE /* O_CLOEXEC */
#include "tools/report/sheet.h"
#include "libckpt/base/hidden.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "tools/cli/out.h"

enum { SHEET_TRIES = 100 };

/* ---- the file ---- */

static bool sheet_same(const struct stat *st, const char *path)
{
    struct stat other;

    return path && stat(path, &other) == 0 && other.st_dev == st->st_dev &&
           other.st_ino == st->st_ino;
}

int sheet_allowed(const char *path, bool force, const ckpt_map *const *maps, const char *other,
                  ckpt_err *err)
{
    struct stat st;

    if (stat(path, &st) != 0 && lstat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? CKPT_OK
                   : fail(err, CKPT_EIO, "%s: cannot be examined: %s", path, strerror(errno));
    bool input = sheet_same(&st, other);
    for (; *maps && !input; maps++) {
        for (size_t i = 0; i < ckpt_map_file_count(*maps) && !input; i++)
            input = sheet_same(&st, ckpt_map_file_path(*maps, i));
    }
    if (input)
        return fail(err, CKPT_EUSAGE,
                    "%s: is one of the files that are read; choose another output", path);
    if (S_ISDIR(st.st_mode))
        return fail(err, CKPT_EUSAGE, "%s: is a folder; choose another output", path);
    int rc = ckpt_output_check(path, err);
    if (rc != CKPT_OK)
        return rc;
    if (!force)
        return fail(err, CKPT_EUSAGE, "%s: exists already; use --force to replace it", path);
    return CKPT_OK;
}

int sheet_open(sheet *s, const char *path, bool force, ckpt_err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t room = strlen(path) + 32;
    int fd = -1;

    *s = (sheet){.path = strdup(path), .temp = malloc(room), .force = force};
    if (!s->path || !s->temp)
        return fail(err, CKPT_ELIMIT, "out of memory");
    // use a name that `ckpt clean` recognizes, in case this process is killed
    for (unsigned k = 0; fd < 0 && k < SHEET_TRIES; k++) {
        (void)snprintf(s->temp, room, "%.*s.%s.ckpt-%06x.tmp", (int)(name - path), path, name,
                       ((unsigned)getpid() * 64 + k) & 0xffffff);
        fd = open(s->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST && errno != EINTR)
            break;
    }
    s->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (s->file) {
        // the lock shows `ckpt clean` that the file is in use
        (void)flock(fd, LOCK_EX | LOCK_NB);
        return CKPT_OK;
    }
    int sys = errno;
    if (fd >= 0) {
        (void)close(fd);
        (void)unlink(s->temp);
    }
    free(s->temp);
    s->temp = NULL;
    return fail(err, CKPT_EIO, "%s: cannot be written: %s", path, strerror(sys));
}

/* Sync the folder, because otherwise a power cut may lose the file's name. */
static void sheet_sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    // some file systems do not support it; ignore that
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
    free(folder);
}

/*
 * Give the file its name.  A link fails if another file has that name now, while a rename would
 * replace it.
 */
static int sheet_name(sheet *s, ckpt_err *err)
{
    struct stat st;

    if (!s->force && link(s->temp, s->path) == 0)
        return CKPT_OK;
    if (!s->force && (errno == EEXIST || lstat(s->path, &st) == 0))
        return fail(err, CKPT_EUSAGE, "%s: exists already; use --force to replace it", s->path);
    // with force, or on a file system without links
    if (rename(s->temp, s->path) != 0)
        return fail(err, CKPT_EIO, "%s: cannot be written: %s", s->path, strerror(errno));
    free(s->temp);
    s->temp = NULL;
    return CKPT_OK;
}

int sheet_keep(sheet *s, ckpt_err *err)
{
    if (!s->sys && (fflush(s->file) != 0 || fsync(fileno(s->file)) != 0))
        s->sys = errno;
    if (fclose(s->file) != 0 && !s->sys)
        s->sys = errno;
    s->file = NULL;
    if (s->sys)
        return fail(err, CKPT_EIO, "%s: cannot be written: %s", s->path, strerror(s->sys));
    int rc = sheet_name(s, err);
    if (rc == CKPT_OK)
        sheet_sync_folder(s->path);
    return rc;
}

void sheet_drop(sheet *s)
{
    if (s->file)
        (void)fclose(s->file);
    // after a link, this removes only the temporary name
    if (s->temp)
        (void)unlink(s->temp);
    free(s->temp);
    free(s->path);
    *s = (sheet){0};
}

/* ---- text ---- */

void sheet_put(sheet *s, const char *text, size_t n)
{
    if (s->sys)
        return;
    if (fwrite(text, 1, n, s->file) != n)
        s->sys = errno ? errno : EIO;
    s->n_bytes += n;
}

void sheet_printf(sheet *s, const char *fmt, ...)
{
    va_list args;

    if (s->sys)
        return;
    va_start(args, fmt);
    int n = vfprintf(s->file, fmt, args);
    va_end(args);
    if (n < 0)
        s->sys = errno ? errno : EIO;
    else
        s->n_bytes += (uint64_t)n;
}

/* Length of a visible character; 0: it is hidden, and *hidden bytes become \xNN each. */
static size_t sheet_shown(const char *text, size_t *hidden)
{
    size_t n = text_utf8(text);

    *hidden = n ? n : 1;
    return n && !ckpt_hidden(text_code(text, n)) ? n : 0;
}

void sheet_text(sheet *s, const char *text, size_t most)
{
    for (size_t k = 0; *text; k++) {
        size_t hidden, n = sheet_shown(text, &hidden);

        if (most && k >= most) {
            sheet_printf(s, "...");
            return;
        }
        if (strchr("&<>\"'", *text))
            sheet_printf(s, "&#%d;", *text);
        else
            sheet_put(s, text, n);
        for (size_t i = 0; n == 0 && i < hidden; i++)
            sheet_printf(s, "\\x%02x", (unsigned char)text[i]);
        text += n ? n : hidden;
    }
}

void sheet_string(sheet *s, const char *text, size_t n)
{
    const char *end = text + n;

    sheet_put(s, "\"", 1);
    while (text < end && *text) {
        size_t hidden, shown = sheet_shown(text, &hidden);

        // "</script" and "<!--" would end the element, or hide its end
        if (strchr("<>&", *text))
            sheet_printf(s, "\\u%04x", (unsigned)*text);
        else if (*text == '"' || *text == '\\')
            sheet_printf(s, "\\%c", *text);
        else
            sheet_put(s, text, shown);
        for (size_t i = 0; shown == 0 && i < hidden; i++)
            sheet_printf(s, "\\\\x%02x", (unsigned char)text[i]);
        text += shown ? shown : hidden;
    }
    sheet_put(s, "\"", 1);
}

void sheet_real(sheet *s, double x)
{
    if (isfinite(x))
        sheet_printf(s, "%.9g", x);
    else
        sheet_printf(s, "null");
}
