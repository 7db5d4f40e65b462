/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.c: removes old checkpoints of a run.
 *
 * A tag to be removed is first renamed to a name that `ckpt clean` recognizes as left over by an
 * interrupted run, and gets a journal.  So no tag ever lacks files, and an interrupted removal can
 * be completed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/save/keep.h"
#include "libckpt/base/number.h"
#include "libckpt/base/vec.h"
#include "libckpt/io/dir.h"

enum { KP_NAME = 256 };

typedef struct kp_tag {
    char name[KP_NAME];
    int64_t seconds, nanoseconds; /* modification time */
    uint64_t number;
} kp_tag;

CKPT_VEC(kp_tags, kp_tag);

/* Length of a name without the number at its end. */
static size_t kp_stem(const char *name)
{
    size_t n = strlen(name);

    while (n > 0 && name[n - 1] >= '0' && name[n - 1] <= '9')
        n--;
    return n;
}

/* List the run's tags of the series, except `tag`. */
static int kp_list(kp_tags *out, int dir, const zt_keep *k, ckpt_err *err)
{
    const char *tag = k->tag;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), sys;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    size_t stem = kp_stem(tag);
    struct stat st;

    if (!d) {
        sys = errno;
        if (fd >= 0)
            (void)close(fd);
        return ckpt_fail_sys(err, CKPT_EIO, sys, "%s: cannot list the folder", k->dir);
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);
        if (n >= KP_NAME || n <= stem || kp_stem(e->d_name) != stem ||
            strncmp(e->d_name, tag, stem) != 0 || strcmp(e->d_name, tag) == 0 ||
            (k->spare && strcmp(e->d_name, k->spare) == 0) ||
            fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode) ||
            !zt_lineage_is_tag(dir, e->d_name) || !zt_lineage_has(k->lineage, dir, e->d_name))
            continue;
        kp_tag *t = ckpt_vec_push(out);
        if (!t) {
            (void)closedir(d);
            return ckpt_fail_memory(err);
        }
        memcpy(t->name, e->d_name, n + 1);
        t->seconds = (int64_t)st.st_mtim.tv_sec;
        t->nanoseconds = (int64_t)st.st_mtim.tv_nsec;
        t->number = UINT64_MAX; // a number that is too large counts as the newest
        (void)ckpt_parse_u64(e->d_name + stem, &t->number);
    }
    (void)closedir(d);
    return CKPT_OK;
}

/* Newest first. */
static int kp_order(const void *pa, const void *pb)
{
    const kp_tag *a = pa, *b = pb;

    if (a->seconds != b->seconds)
        return a->seconds > b->seconds ? -1 : 1;
    if (a->nanoseconds != b->nanoseconds)
        return a->nanoseconds > b->nanoseconds ? -1 : 1;
    return a->number > b->number ? -1 : a->number < b->number;
}

/* Delete a folder's files except its journal, then the journal and the folder; returns 0 or an
 * errno value. */
static int kp_empty(int dir, const char *name)
{
    int fd = ckpt_dir_open_at(dir, name), rc = 0;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

    if (!d) {
        rc = errno;
        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, "journal") != 0)
            rc = ckpt_dir_remove(dirfd(d), e->d_name);
    }
    (void)closedir(d);
    return rc ? rc : ckpt_dir_remove(dir, name);
}

static int kp_remove(int dir, const char *shown, const char *name, ckpt_err *err)
{
    char journal[KP_NAME + 16], hidden[KP_NAME + 32];
    int fd, sys = 0;

    (void)snprintf(journal, sizeof journal, "%s/journal", name);
    (void)snprintf(hidden, sizeof hidden, ".%s.ckpt-partial", name);
    fd = openat(dir, journal, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 || renameat(dir, name, dir, hidden) != 0) {
        sys = errno;
        if (fd >= 0) // it keeps its name, so no journal may stay in it
            (void)unlinkat(dir, journal, 0);
    }
    if (fd >= 0)
        (void)close(fd);
    if (sys == 0)
        sys = kp_empty(dir, hidden);
    if (sys == 0)
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, sys, "%s/%s: an old checkpoint cannot be removed", shown,
                         name);
}

/* Append a name to a list, which ends in "..." when it is full. */
static void kp_name(char gone[ZT_KEEP_GONE], const char *name)
{
    size_t n = strlen(gone);

    if (n + strlen(name) + 8 < ZT_KEEP_GONE)
        (void)snprintf(gone + n, ZT_KEEP_GONE - n, "%s%s", n ? ", " : "", name);
    else if (n < 3 || strcmp(gone + n - 3, "...") != 0)
        (void)snprintf(gone + n, ZT_KEEP_GONE - n, ", ...");
}

int zt_keep_newest(const zt_keep *k, char gone[ZT_KEEP_GONE], ckpt_err *err)
{
    int fd = open(k->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
    kp_tags tags = {0};

    if (fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot open the folder", k->dir);
    rc = kp_list(&tags, fd, k, err);
    if (tags.n > 0)
        qsort(tags.at, tags.n, sizeof *tags.at, kp_order);
    // `tag` counts as the first of the n; if a folder cannot be removed, the others still are
    for (size_t i = 0; i < tags.n; i++) {
        int bad;

        if ((int64_t)i + 1 < k->n)
            continue;
        bad = kp_remove(fd, k->dir, tags.at[i].name, rc == CKPT_OK ? err : NULL);
        if (bad == CKPT_OK)
            kp_name(gone, tags.at[i].name);
        rc = rc == CKPT_OK ? bad : rc;
    }
    ckpt_vec_free(&tags);
    (void)close(fd);
    return rc;
}
