/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same.c: checks that all ranks have the same text: a digest from each, and the first lines that
 * differ if the digests do.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/comm/comm.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/mem.h"

enum { SM_DIGEST = 32, SM_NAME = 100, SM_VALUE = 70, SM_NAMES = 160, SM_RANKS = 60 };

/* Digests of all ranks, [world * SM_DIGEST]; the caller frees them. */
static int sm_digests(zt_comm *c, const void *text, size_t n, uint8_t **all, ckpt_err *err)
{
    uint8_t mine[SM_DIGEST] = {0};
    ckpt_sha256 *sha = NULL;
    int rc = text ? ckpt_sha256_new(&sha, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = ckpt_sha256_add(sha, text, n, err);
    if (rc == CKPT_OK)
        rc = ckpt_sha256_end(sha, mine, err);
    ckpt_sha256_free(sha);
    *all = rc == CKPT_OK ? ckpt_alloc((size_t)c->world * SM_DIGEST) : NULL;
    if (rc == CKPT_OK && !*all)
        rc = ckpt_fail_memory(err);
    rc = zt_comm_agree(c, rc, err);
    return rc == CKPT_OK ? c->ops->all_gather(c, *all, mine, SM_DIGEST, CKPT_U8, err) : rc;
}

static bool sm_as_first(const uint8_t *all, int rank)
{
    assert(all && rank >= 0);
    return memcmp(all, all + (size_t)rank * SM_DIGEST, SM_DIGEST) == 0;
}

/* Broadcast rank 0's text; the caller frees it. */
static int sm_first_text(zt_comm *c, const char *text, size_t n, char **first, ckpt_err *err)
{
    uint64_t size = n;
    int rc = c->ops->broadcast(c, &size, sizeof size, 0, err);

    *first = rc == CKPT_OK && size < SIZE_MAX ? ckpt_alloc((size_t)size + 1) : NULL;
    rc = zt_comm_agree(c, *first ? CKPT_OK : ckpt_fail_memory(err), err);
    if (rc == CKPT_OK && c->rank == 0)
        memcpy(*first, text, n);
    return rc == CKPT_OK ? c->ops->broadcast(c, *first, size + 1, 0, err) : rc;
}

/* ---- reporting the difference ---- */

/* A line: the name before the tab, the value after it. */
typedef struct sm_line {
    const char *name, *value;
    int n_name, n_value;
} sm_line;

/* Read the line at *at and move *at past it; false: no line is left. */
static bool sm_next(const char **at, sm_line *line)
{
    size_t n = strcspn(*at, "\n"), tab = strcspn(*at, "\t");

    if (!**at)
        return false;
    tab = tab < n ? tab : n;
    *line = (sm_line){*at, *at + tab + (tab < n), (int)tab, (int)(n - tab - (tab < n))};
    *at += n + ((*at)[n] == '\n');
    return true;
}

static bool sm_equal(const char *a, int n, const char *b, int m)
{
    return n == m && memcmp(a, b, (size_t)n) == 0;
}

/* Ranks that differ from rank 0: "1, 3". */
static void sm_ranks(const zt_comm *c, const uint8_t *all, char *to)
{
    size_t n = 0;

    *to = 0;
    for (int r = 1; r < c->world; r++) {
        if (sm_as_first(all, r) || n + 16 >= SM_RANKS)
            continue;
        n += (size_t)snprintf(to + n, SM_RANKS - n,
                              n + 32 >= SM_RANKS ? ", ..."
                              : n                ? ", %d"
                                                 : "%d",
                              r);
        if (n + 16 >= SM_RANKS)
            break;
    }
}

/* Report the first line that differs, with both values, and the names of some more. */
static int sm_tell(const zt_comm *c, const uint8_t *all, const char *mine, const char *first,
                   ckpt_err *err)
{
    sm_line a = {0}, b = {0}, own = {0}, theirs = {0};
    char more[SM_NAMES] = "", ranks[SM_RANKS];
    size_t n = 0, n_more = 0;

    while (sm_next(&mine, &a) && sm_next(&first, &b)) {
        if (sm_equal(a.name, a.n_name + 1 + a.n_value, b.name, b.n_name + 1 + b.n_value))
            continue;
        if (!own.name) {
            own = a;
            theirs = b;
        } else if (n_more++ < 3 && n + SM_NAME / 2 < sizeof more) {
            n += (size_t)snprintf(more + n, sizeof more - n, "%s%.*s", n ? ", " : "; also ",
                                  a.n_name < SM_NAME / 2 - 4 ? a.n_name : SM_NAME / 2 - 4, a.name);
        }
        // the sets of lines differ, so further lines cannot be compared
        if (!sm_equal(a.name, a.n_name, b.name, b.n_name))
            break;
    }
    sm_ranks(c, all, ranks);
    if (!own.name || !sm_equal(own.name, own.n_name, theirs.name, theirs.n_name))
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "rank %d on %s has other settings than rank 0; the first difference is "
                         "'%.*s' (ranks that differ: %s)",
                         c->rank, c->host, own.n_name < SM_NAME ? own.n_name : SM_NAME,
                         own.name ? own.name : "the end of the list", ranks);
    return ckpt_fail(err, CKPT_EMISMATCH,
                     "all ranks must have the same %.*s: it is %.*s on rank %d (%s), and %.*s on "
                     "rank 0 (ranks that differ: %s)%s",
                     own.n_name < SM_NAME ? own.n_name : SM_NAME, own.name,
                     own.n_value < SM_VALUE ? own.n_value : SM_VALUE, own.value, c->rank, c->host,
                     theirs.n_value < SM_VALUE ? theirs.n_value : SM_VALUE, theirs.value, ranks,
                     more);
}

int zt_comm_same(zt_comm *c, const char *text, ckpt_err *err)
{
    size_t n = text ? strlen(text) : 0;
    uint8_t *all = NULL;
    char *first = NULL;
    bool same = true;
    int rc;

    if (c->world == 1)
        return text ? CKPT_OK : ckpt_fail_memory(err);
    rc = sm_digests(c, text, n, &all, err);
    for (int r = 1; rc == CKPT_OK && r < c->world; r++)
        same = same && sm_as_first(all, r);
    if (rc == CKPT_OK && !same)
        rc = sm_first_text(c, text, n, &first, err);
    if (rc == CKPT_OK && !same && !sm_as_first(all, c->rank))
        rc = sm_tell(c, all, text, first, err);
    if (!same)
        rc = zt_comm_agree(c, rc, err);
    ckpt_free(first);
    ckpt_free(all);
    return rc;
}
