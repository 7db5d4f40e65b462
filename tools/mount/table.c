/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c: reads /proc/self/mountinfo, and unmounts by it.
 *
 * Source  proc(5): the mount's number, its parent's, the device, the root, the mount point; blanks
 *         and backslashes in paths are octal numbers after a backslash; the type is after " - "
 */
#define _GNU_SOURCE /* umount2's flags */
#include "tools/mount/table.h"
#include "libckpt/base/vec.h"
#include "tools/mount/device.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A mount point of the device. */
typedef struct tbl_place {
    long id;
    char *path;
    bool covered; /* a mount of another program is over it, or in it */
    bool carries; /* another mount of this device is over it, or in it */
} tbl_place;

typedef struct tbl_places {
    tbl_place *at;
    size_t n, room;
} tbl_places;

/* A line of mountinfo. */
typedef struct tbl_line {
    long id, parent;
    dev_t device;
    char *path;
} tbl_line;

/* Decode a path in place. */
static void tbl_plain(char *path)
{
    char *to = path;

    for (const char *from = path; *from;) {
        if (from[0] == '\\' && from[1] && from[2] && from[3]) {
            *to++ = (char)(64 * (from[1] - '0') + 8 * (from[2] - '0') + (from[3] - '0'));
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = 0;
}

/*
 * Parse a line.  The device of a mount that is not ours becomes 0, because its number may be a
 * reused one of ours.
 */
static bool tbl_parse(char *text, tbl_line *out)
{
    bool ours = strstr(text, " - fuse.ckpt ") != NULL;
    unsigned ma, mi;
    int n = 0;

    if (sscanf(text, "%ld %ld %u:%u %*s %n", &out->id, &out->parent, &ma, &mi, &n) != 4 || n == 0)
        return false;
    out->device = ours ? makedev(ma, mi) : 0;
    out->path = text + n;
    out->path[strcspn(out->path, " \n")] = 0;
    tbl_plain(out->path);
    return true;
}

static void tbl_free(tbl_places *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->at[i].path);
    ckpt_vec_free(p);
    *p = (tbl_places){0};
}

/*
 * Drop the places that the first look did not have: once a device is unmounted, the kernel gives
 * its number to the next mount, which may be another program's.
 */
static void tbl_only(tbl_places *p, const tbl_places *first)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++) {
        bool had = false;

        for (size_t k = 0; !had && k < first->n; k++)
            had = strcmp(p->at[i].path, first->at[k].path) == 0;
        if (had)
            p->at[n++] = p->at[i];
        else
            free(p->at[i].path);
    }
    p->n = n;
}

static bool tbl_add(tbl_places *p, const tbl_line *line)
{
    tbl_place *place = ckpt_vec_push(p);

    if (!place)
        return false;
    *place = (tbl_place){.id = line->id, .path = strdup(line->path)};
    return place->path != NULL;
}

/*
 * Pass over the table: collect the mount points of the device, or mark those with mounts over them.
 */
static bool tbl_pass(tbl_places *p, dev_t device, bool over)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char *text = NULL;
    size_t room = 0;
    bool ok = f != NULL;
    tbl_line line;

    while (ok && getline(&text, &room, f) > 0) {
        if (!tbl_parse(text, &line))
            continue;
        if (!over && line.device == device)
            ok = tbl_add(p, &line);
        for (size_t i = 0; over && i < p->n; i++) {
            if (p->at[i].id != line.parent)
                continue;
            p->at[i].carries = p->at[i].carries || line.device == device;
            p->at[i].covered = p->at[i].covered || line.device != device;
        }
    }
    ok = ok && !ferror(f);
    free(text);
    if (f)
        (void)fclose(f);
    return ok;
}

bool mount_table_has(dev_t device)
{
    tbl_places p = {0};
    bool has = !tbl_pass(&p, device, false) || p.n > 0;

    tbl_free(&p);
    return has;
}

/* Unmount by fusermount3, which has the privileges; from PATH, or else from Debian's location. */
static bool tbl_helper(char *path)
{
    char first[] = "fusermount3", second[] = "/usr/bin/fusermount3", options[] = "-uqz";
    char end[] = "--";
    char *const words[] = {first, options, end, path, NULL};
    int status = -1;
    pid_t pid;

    if (posix_spawnp(&pid, first, NULL, NULL, words, environ) != 0 &&
        posix_spawn(&pid, second, NULL, NULL, words, environ) != 0)
        return false;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return false;
    }
    return status == 0;
}

/* True if the path leads to that device now; the server is not asked. */
static bool tbl_leads(const char *path, dev_t device)
{
    dev_t now = 0;

    return mount_device(&now, path, false) && now == device;
}

/* Unmount one mount point; false: see why. */
static bool tbl_unmount(char *path, dev_t device, char *why, size_t room)
{
    int sys;

    if (!tbl_leads(path, device)) {
        (void)snprintf(why, room, "%s: cannot be unmounted: another mount hides it", path);
        return false;
    }
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        return true;
    sys = errno;
    if (sys == EPERM && tbl_helper(path))
        return true;
    (void)snprintf(why, room, "%s: cannot be unmounted: %s (fusermount3 -u)", path, strerror(sys));
    return false;
}

/*
 * Read the present mount points that the first look had, and choose one without other mounts over
 * it or in it.  False: see why.
 */
static bool tbl_next(tbl_places *p, const tbl_places *first, dev_t device, size_t *next, char *why,
                     size_t room)
{
    *next = 0;
    if (!tbl_pass(p, device, false) || !tbl_pass(p, device, true)) {
        (void)snprintf(why, room, "/proc/self/mountinfo cannot be read: %s", strerror(errno));
        return false;
    }
    tbl_only(p, first);
    while (*next < p->n && (p->at[*next].covered || p->at[*next].carries))
        ++*next;
    if (p->n == 0 || *next < p->n)
        return true;
    for (size_t i = 0; i < p->n; i++) {
        if (p->at[i].covered)
            (void)snprintf(why, room,
                           "%s: another file system is mounted over it: unmount that one first, "
                           "then this one (fusermount3 -u)",
                           p->at[i].path);
    }
    return false;
}

int mount_table_clear(dev_t device, char *why, size_t room)
{
    size_t next, before = SIZE_MAX, left = 1;
    tbl_places first = {0};
    bool ok = tbl_pass(&first, device, false);

    if (!ok)
        (void)snprintf(why, room, "/proc/self/mountinfo cannot be read: %s", strerror(errno));
    while (ok && left > 0) {
        tbl_places p = {0};

        ok = tbl_next(&p, &first, device, &next, why, room);
        left = p.n;
        if (ok && left >= before) {
            (void)snprintf(why, room, "%s: another process mounts it again after each unmount",
                           p.at[next].path);
            ok = false;
        }
        if (ok && left > 0)
            ok = tbl_unmount(p.at[next].path, device, why, room);
        before = left;
        tbl_free(&p);
    }
    tbl_free(&first);
    return ok ? 0 : -1;
}
