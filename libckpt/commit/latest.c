/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latest.c: writes `latest`, the small file that names the checkpoint to resume from.
 */
#define _GNU_SOURCE // O_DIRECTORY, renameat2
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/commit/latest.h"
#include "libckpt/io/dir.h"

enum {
    LAT_TRIES = 100, /* random names to try for the new file */
    LAT_NAME = 288   /* bytes of such a name; that of a file has at most 255 */
};

/* Write a complete text. 0 or an errno. */
static int lat_put(int fd, const char *text)
{
    size_t n = strlen(text), done = 0;

    while (done < n) {
        ssize_t put = write(fd, text + done, n - done);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? errno : ENOSPC;
        done += (size_t)put;
    }
    return 0;
}

int ckpt_latest_write(int folder, const char *name, const char *text, bool sync)
{
    int fd, sys;

    do
        fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return errno;
    sys = lat_put(fd, text);
    if (sys == 0 && sync && ckpt_fsync(fd) != 0)
        sys = errno;
    if (close(fd) != 0 && errno != EINTR && sys == 0)
        sys = errno;
    if (sys != 0)
        (void)unlinkat(folder, name, 0);
    return sys;
}

/* A hidden name that `clean` recognises, different at each call. */
static void lat_temp_name(char out[LAT_NAME], const char *name, unsigned turn)
{
    static const char digit[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    struct timespec t = {0};
    char random[7] = "";

    (void)clock_gettime(CLOCK_REALTIME, &t);
    uint64_t x =
        ((uint64_t)t.tv_nsec ^ ((uint64_t)t.tv_sec << 20) ^ ((uint64_t)getpid() << 40)) + turn;
    x = (x ^ (x >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 29;
    for (size_t i = 0; i < 6; i++, x /= 36)
        random[i] = digit[x % 36];
    (void)snprintf(out, LAT_NAME, ".%s.ckpt-%s.tmp", name, random);
}

/* Write the new `latest` under a hidden name. 0 or an errno. */
static int lat_write_temp(int dir, char temp[LAT_NAME], const char *name, const char *text)
{
    struct stat old;
    int sys = EEXIST;

    for (unsigned i = 0; sys == EEXIST && i < LAT_TRIES; i++) {
        lat_temp_name(temp, name, i);
        sys = ckpt_latest_write(dir, temp, text, true);
    }
    // Keep the old file's permissions; a failure does not matter.
    if (sys == 0 && fstatat(dir, name, &old, 0) == 0 &&
        fchmodat(dir, temp, old.st_mode & 0777, 0) != 0)
        errno = 0;
    return sys;
}

/* Give a file its name, which if `anew` no file may have. 0 or an errno. */
static int lat_rename(int dir, const char *temp, const char *name, bool anew)
{
    struct stat st;

    if (anew) {
        if (renameat2(dir, temp, dir, name, RENAME_NOREPLACE) == 0)
            return 0;
        // EINVAL, ENOSYS: this file system does not support the flag; check, then rename.
        if (errno != EINVAL && errno != ENOSYS)
            return errno;
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return EEXIST;
    }
    return renameat(dir, temp, dir, name) == 0 ? 0 : errno;
}

static int lat_place(const char *folder, const char *name, const char *text, bool anew,
                     ckpt_err *err)
{
    char temp[LAT_NAME];
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = CKPT_OK;

    if (dir < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot open the folder", folder);
    int sys = lat_write_temp(dir, temp, name, text);
    if (sys != 0) {
        rc = ckpt_fail_sys(err, CKPT_EIO, sys, "%s: cannot write a new `%s`", folder, name);
    } else if ((sys = lat_rename(dir, temp, name, anew)) != 0) {
        rc = sys == EEXIST
                 ? ckpt_fail(err, CKPT_EUSAGE, "%s/%s: exists already; choose another name", folder,
                             name)
                 : ckpt_fail_sys(err, CKPT_EIO, sys, "%s: cannot replace `%s`", folder, name);
        (void)unlinkat(dir, temp, 0);
    } else if (ckpt_fsync(dir) != 0) {
        rc = ckpt_fail_sys(err, CKPT_EIO, errno,
                           "%s: `%s` is replaced, but may not survive a power cut", folder, name);
    }
    (void)close(dir);
    return rc;
}

int ckpt_latest_check(bool *old, const char *file, bool force, const char *kind,
                      bool (*is_kind)(const char *file), ckpt_err *err)
{
    struct stat st;

    *old = lstat(file, &st) == 0;
    if (!*old)
        return CKPT_OK;
    if (!S_ISREG(st.st_mode))
        kind = "a file";
    else if (!force)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: exists already; use --force to replace it", file);
    else if (is_kind(file))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUSAGE, "%s: exists, and is not %s; choose another name, or move it",
                     file, kind);
}

int ckpt_latest_replace(const char *folder, const char *name, const char *text, ckpt_err *err)
{
    return lat_place(folder, name, text, false, err);
}

int ckpt_latest_create(const char *folder, const char *name, const char *text, ckpt_err *err)
{
    return lat_place(folder, name, text, true, err);
}
