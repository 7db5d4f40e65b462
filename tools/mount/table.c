/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c: /proc/self/mountinfo, and unmounting by what it says.
 *
 * Source  proc(5): the mount's number, its parent's, the device, the root, the mount point; blanks
 *         and backslashes in paths are octal numbers behind a backslash
 */
#define _GNU_SOURCE /* umount2's flags */
#include "tools/mount/table.h"

#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { TBL_MOST = 64 /* places of one device that are unmounted */ };

/* A path as it is, in its place. */
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

/* The device and mount point of a line; false: it is none. */
static bool tbl_line(char *line, dev_t *device, char **at)
{
    unsigned ma, mi;
    int n = 0;

    if (sscanf(line, "%*d %*d %u:%u %*s %n", &ma, &mi, &n) != 2 || n == 0)
        return false;
    *device = makedev(ma, mi);
    *at = line + n;
    (*at)[strcspn(*at, " \n")] = 0;
    tbl_plain(*at);
    return true;
}

/*
 * The newest place of a device, the caller's to free; covered: something was mounted over it since.
 *
 * Returns  0; -1: the table cannot be read
 */
static int tbl_find(dev_t device, char **place, bool *covered)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char *line = NULL, *at;
    size_t room = 0;
    dev_t found;

    *place = NULL;
    *covered = false;
    if (!f)
        return -1;
    while (getline(&line, &room, f) > 0) {
        if (!tbl_line(line, &found, &at))
            continue;
        if (found == device) {
            free(*place);
            *place = strdup(at);
            *covered = false;
        } else if (*place && strcmp(*place, at) == 0) {
            *covered = true;
        }
    }
    free(line);
    (void)fclose(f);
    return 0;
}

/* False, with errno, where it cannot be had. */
static bool tbl_unmount(char *path)
{
    char program[] = "fusermount3", options[] = "-uqz", end[] = "--";
    char *const words[] = {program, options, end, path, NULL};
    int status = -1, sys;
    pid_t pid;

    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        return true;
    sys = errno;
    if (sys == EPERM && posix_spawnp(&pid, program, NULL, NULL, words, environ) == 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
    }
    errno = sys;
    return status == 0;
}

int mount_table_clear(dev_t device, char *why, size_t room)
{
    for (int i = 0; i < TBL_MOST; i++) {
        char *place;
        bool covered, gone = false;

        if (tbl_find(device, &place, &covered) != 0) {
            (void)snprintf(why, room, "/proc/self/mountinfo: %s", strerror(errno));
            return -1;
        }
        if (!place)
            return 0;
        if (covered)
            (void)snprintf(why, room,
                           "%s: something else is mounted over it: unmount that, then this "
                           "(fusermount3 -u)",
                           place);
        else if (!(gone = tbl_unmount(place)))
            (void)snprintf(why, room, "%s: cannot be unmounted: %s (fusermount3 -u)", place,
                           strerror(errno));
        free(place);
        if (!gone)
            return -1;
    }
    (void)snprintf(why, room, "it is mounted at too many places");
    return -1;
}
