/* SPDX-License-Identifier: Apache-2.0 */
/* same.c: describes files and state of a run as lines that ranks compare. */
#include "engine/save/same.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/digest.h"

enum { SA_PIECE = 1 << 16, SA_PIECES = 64 };

/* Maximum bytes that a rank reads of a checkpoint of many files, and of one of them. */
static const uint64_t sa_all = UINT64_C(256) << 20, sa_most = UINT64_C(16) << 20;

/* ---- files ---- */

/* Read n bytes from `at` on; a file that ends before has changed meanwhile. */
static int sa_read(int fd, uint8_t *to, size_t n, uint64_t at, const char *path, ckpt_err *err)
{
    for (size_t did = 0; did < n;) {
        ssize_t got = pread(fd, to + did, n - did, (off_t)(at + did));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return ckpt_fail_sys(err, CKPT_EIO, got < 0 ? errno : 0, "%s: cannot be read", path);
        did += (size_t)got;
    }
    return CKPT_OK;
}

/*
 * Digest `few` pieces at equal distances, including the first and the last, or all if there are
 * fewer.
 */
static int sa_digest(int fd, uint64_t size, uint64_t few, ckpt_sha256 *sha, const char *path,
                     ckpt_err *err)
{
    uint64_t n = size / SA_PIECE + (size % SA_PIECE != 0);
    bool all = few >= n;
    uint8_t *piece = ckpt_alloc(SA_PIECE);
    int rc = piece ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t i = 0; rc == CKPT_OK && i < (all ? n : few); i++) {
        uint64_t at = (all ? i : (n - 1) * i / (few - 1)) * SA_PIECE;
        size_t m = size - at < SA_PIECE ? (size_t)(size - at) : SA_PIECE;
        rc = sa_read(fd, piece, m, at, path, err);
        if (rc == CKPT_OK)
            rc = ckpt_sha256_add(sha, piece, m, err);
    }
    ckpt_free(piece);
    return rc;
}

/* Number of pieces to digest: all if the file has at most `whole` bytes. */
static uint64_t sa_pieces(uint64_t size, uint64_t whole)
{
    uint64_t pieces = whole / SA_PIECE > SA_PIECES ? SA_PIECES : whole / SA_PIECE;

    if (size <= whole)
        return UINT64_MAX;
    return pieces < 2 ? 2 : pieces;
}

/* The digest as text, because lines are text. */
static int sa_hex(int fd, uint64_t size, uint64_t few, char hex[65], const char *path,
                  ckpt_err *err)
{
    uint8_t digest[32];
    ckpt_sha256 *sha = NULL;
    int rc = ckpt_sha256_new(&sha, err);

    if (rc == CKPT_OK)
        rc = sa_digest(fd, size, few, sha, path, err);
    if (rc == CKPT_OK)
        rc = ckpt_sha256_end(sha, digest, err);
    ckpt_sha256_free(sha);
    if (rc != CKPT_OK)
        return rc;
    ckpt_sha256_hex(digest, hex);
    hex[16] = 0;
    return rc;
}

int zt_same_file(ckpt_bytes *lines, const char *name, const char *path, uint64_t whole,
                 ckpt_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc;
    struct stat st;
    char hex[65];

    if (fd < 0)
        return ckpt_fail_sys(err, errno == ENOENT ? CKPT_EMISSING : CKPT_EIO, errno,
                             "%s: cannot be opened", path);
    if (fstat(fd, &st) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be read", path);
    else if (!S_ISREG(st.st_mode))
        rc =
            ckpt_bytes_printf(lines, "%s\tno plain file\n", name) ? CKPT_OK : ckpt_fail_memory(err);
    else {
        uint64_t size = (uint64_t)st.st_size;
        rc = sa_hex(fd, size, sa_pieces(size, whole), hex, path, err);
        if (rc == CKPT_OK &&
            !ckpt_bytes_printf(lines, "%s\t%" PRIu64 " bytes with digest %s\n", name, size, hex))
            rc = ckpt_fail_memory(err);
    }
    (void)close(fd);
    return rc;
}

/* ---- comparing ---- */

int zt_same(zt_comm *c, ckpt_bytes *lines, int rc, ckpt_err *err)
{
    if (rc == CKPT_OK && !ckpt_bytes_add(lines, "", 1))
        rc = ckpt_fail_memory(err);
    rc = zt_comm_agree(c, rc, err);
    if (rc == CKPT_OK)
        rc = zt_comm_same(c, (const char *)lines->at, err);
    ckpt_vec_free(lines);
    return rc;
}

int zt_same_checkpoint(zt_comm *c, const ckpt_map *map, const zt_loaded *loaded, ckpt_err *err)
{
    uint64_t each = map->files.n ? sa_all / map->files.n : 0;
    ckpt_bytes lines = {0};
    int rc = CKPT_OK;

    if (c->world == 1)
        return rc;
    if (!ckpt_bytes_printf(&lines,
                           "tag of the checkpoint\t%s\nits optimizer state\t%s\n"
                           "its missing parameters\t%zu\n",
                           loaded->tag, loaded->with_optimizer ? "read" : "not read",
                           loaded->n_missing))
        rc = ckpt_fail_memory(err);
    for (size_t i = 0; rc == CKPT_OK && i < map->files.n; i++) {
        const char *path = map->files.at[i].path, *slash = strrchr(path, '/');
        // name it generically, because ranks may have different names for a single file
        rc = zt_same_file(&lines,
                          map->files.n == 1 ? "file of the checkpoint"
                          : slash           ? slash + 1
                                            : path,
                          path, each < sa_most ? each : sa_most, err);
    }
    return zt_same(c, &lines, rc, err);
}

int zt_same_state(const zt_zero *z, ckpt_err *err)
{
    const zt_scaler *s = &z->scaler;
    ckpt_bytes lines = {0};
    bool ok = ckpt_bytes_printf(
                  &lines,
                  "global_steps\t%" PRId64 "\nglobal_samples\t%" PRId64 "\nskipped_steps\t%" PRId64
                  "\nmicro steps\t%" PRId64 "\nsteps of the optimizer\t%" PRId64 "\n",
                  z->global_steps, z->global_samples, z->skipped, z->micro_steps, z->updates) &&
              ckpt_bytes_printf(&lines,
                                "loss scale\t%.17g\nits iteration\t%" PRId64
                                "\nits last overflow\t%" PRId64 "\nits window\t%" PRId64
                                "\nits hysteresis\t%" PRId64 " of %" PRId64
                                "\nits factor\t%.17g\nits minimum\t%.17g\n",
                                s->scale, s->iter, s->last_overflow, s->window, s->left,
                                s->hysteresis, s->factor, s->min_scale) &&
              ckpt_bytes_printf(&lines, "step of the schedule\t%" PRId64 "\n", z->schedule.last);

    for (uint32_t i = 0; ok && i < z->n_groups; i++) {
        const zt_hyper *h = &z->group[i].hyper;
        ok = ckpt_bytes_printf(&lines,
                               "learning rate of group %" PRIu32 "\t%.17g\nbetas of group %" PRIu32
                               "\t%.17g %.17g\nweight decay of group %" PRIu32
                               "\t%.17g\neps of group %" PRIu32 "\t%.17g\n",
                               i, h->lr, i, h->beta1, h->beta2, i, h->weight_decay, i, h->eps) &&
             ckpt_bytes_printf(&lines,
                               "momentum of group %" PRIu32
                               "\t%.17g %.17g %d %d\nother settings of group %" PRIu32
                               "\t%.17g %.17g %.17g %d\n",
                               i, h->momentum, h->dampening, h->nesterov, h->muon_gram, i,
                               h->lr_decay, h->min_coeff, h->max_coeff, h->bias_correction);
    }
    return zt_same(z->comm, &lines, ok ? CKPT_OK : ckpt_fail_memory(err), err);
}
