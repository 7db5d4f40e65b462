/* SPDX-License-Identifier: Apache-2.0 */
/*
 * together.c: checks that the folder of a run is one folder for all ranks, and that the writer sees
 * the files of all.
 *
 * Otherwise two nodes whose --save is a path on a local disk would report success, and `latest`
 * would name a checkpoint without half of the ranks' files.
 */
#include "engine/save/together.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/comm/process.h"
#include "libckpt/base/digest.h"
#include "libckpt/io/dir.h"

enum { TG_PATH = 4096 + 600 };

double zt_together_patience = 5;

/* ---- writer of each rank ---- */

typedef struct tg_place {
    uint32_t host;
    int32_t local;
} tg_place;

int zt_together_writers(zt_comm *c, bool node_local, int32_t *writer, ckpt_err *err)
{
    size_t world = (size_t)c->world;
    tg_place *all = ckpt_alloc(world * sizeof *all);
    const tg_place mine = {ckpt_crc32(0, c->host, strlen(c->host)), c->local_rank};
    int rc = zt_comm_agree(c, all ? CKPT_OK : ckpt_fail_memory(err), err);

    if (rc == CKPT_OK)
        rc = c->ops->all_gather(c, all, &mine, sizeof mine, CKPT_U8, err);
    for (size_t r = 0; rc == CKPT_OK && r < world; r++) {
        size_t w = 0;
        while (node_local && w < world && (all[w].host != all[r].host || all[w].local != 0))
            w++;
        writer[r] = (int32_t)(w < world ? w : r);
    }
    ckpt_free(all);
    return rc;
}

/* ---- files of other hosts ---- */

/* stat that retries, because files of another host may appear late; false: see errno. */
static bool tg_see(const char *path, struct stat *st)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    double began = zt_process_clock();

    while (stat(path, st) != 0) {
        if ((errno != ENOENT && errno != ESTALE) ||
            zt_process_clock() - began > zt_together_patience)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* ---- the trial ---- */

/* One trial of the folder; its file names are unique among runs. */
typedef struct tg_trial {
    zt_comm *c;
    const char *dir;
    uint64_t salt;
    const int32_t *writer;
} tg_trial;

static void tg_name(char *to, const tg_trial *t, int rank)
{
    (void)snprintf(to, TG_PATH, "%s/.zerotrain.%016" PRIx64 ".%d", t->dir, t->salt, rank);
}

static int tg_leave(const tg_trial *t, ckpt_err *err)
{
    char path[TG_PATH];
    int fd;

    tg_name(path, t, t->c->rank);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "rank %d on %s: %s: cannot be written",
                             t->c->rank, t->c->host, t->dir);
    (void)close(fd);
    return CKPT_OK;
}

/* Report that this rank does not see rank r's file; errno has the reason. */
static int tg_apart(const tg_trial *t, int r, ckpt_err *err)
{
    return ckpt_fail_sys(err, CKPT_EMISMATCH, errno,
                         "the folder of --save must be one folder, shared by all ranks (or "
                         "checkpoint.use_node_local_storage set in the configuration): rank %d on "
                         "%s does not see in %.200s what rank %d has made there",
                         t->c->rank, t->c->host, t->dir, r);
}

/* Look for the writer's mark, or, as the writer, for its ranks' marks. */
static int tg_find(const tg_trial *t, ckpt_err *err)
{
    int me = t->c->rank, rc = CKPT_OK;
    char path[TG_PATH];
    struct stat st;

    for (int r = 0; rc == CKPT_OK && r < t->c->world; r++) {
        if (r == me || (r != t->writer[me] && t->writer[r] != me))
            continue;
        tg_name(path, t, r);
        if (!tg_see(path, &st))
            rc = tg_apart(t, r, err);
    }
    return rc;
}

static int tg_run(const tg_trial *t, ckpt_err *err)
{
    bool writes = t->writer[t->c->rank] == t->c->rank;
    ckpt_dir made = CKPT_DIR_NONE;
    char path[TG_PATH];
    int rc = zt_comm_agree(t->c, writes ? ckpt_dir_make(&made, t->dir, err) : CKPT_OK, err);
    struct stat st;

    // only the writer creates the folder; others wait until they see it
    if (rc == CKPT_OK) {
        if (!tg_see(t->dir, &st))
            rc = tg_apart(t, t->writer[t->c->rank], err);
        rc = zt_comm_agree(t->c, rc == CKPT_OK ? tg_leave(t, err) : rc, err);
        if (rc == CKPT_OK)
            rc = zt_comm_agree(t->c, tg_find(t, err), err);
        tg_name(path, t, t->c->rank);
        (void)unlink(path);
        // all marks must be gone before the writer removes a folder that it created
        rc = zt_comm_agree(t->c, rc, err);
    }
    ckpt_dir_close(&made);
    return rc;
}

int zt_together_try(zt_comm *c, const char *dir, bool node_local, ckpt_err *err)
{
    tg_trial t = {.c = c, .dir = dir};
    int32_t *writer = ckpt_alloc((size_t)c->world * sizeof *writer);
    struct timespec now = {0};
    int rc = zt_comm_agree(c, writer ? CKPT_OK : ckpt_fail_memory(err), err);

    (void)clock_gettime(CLOCK_REALTIME, &now);
    t.salt = ((uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec) + (uint64_t)getpid();
    t.writer = writer;
    if (rc == CKPT_OK)
        rc = c->ops->broadcast(c, &t.salt, sizeof t.salt, 0, err);
    if (rc == CKPT_OK)
        rc = zt_together_writers(c, node_local, writer, err);
    if (rc == CKPT_OK)
        rc = tg_run(&t, err);
    ckpt_free(writer);
    return rc;
}

/* ---- a save ---- */

int zt_together_look(const zt_comm *c, const ckpt_map *to, const char *path, const int32_t *writer,
                     ckpt_err *err)
{
    char file[TG_PATH];
    struct stat st;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < to->files.n; i++) {
        const ckpt_map_file *f = &to->files.at[i];
        if (f->rank < (uint32_t)c->world && writer[f->rank] != c->rank)
            continue;
        (void)snprintf(file, sizeof file, "%.4600s/%.80s", path, f->path);
        if (!tg_see(file, &st))
            rc =
                ckpt_fail(err, CKPT_EMISSING,
                          "%.300s: rank %d has written it, and rank %d does not see it: the folder "
                          "of --save must be one folder, shared by all ranks",
                          file, f->rank < (uint32_t)c->world ? (int)f->rank : c->rank, c->rank);
        else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->size)
            rc = ckpt_fail(err, CKPT_EMISMATCH,
                           "%.300s: rank %d sees %lld bytes, %" PRIu64 " were written", file,
                           c->rank, (long long)st.st_size, f->size);
    }
    return rc;
}
