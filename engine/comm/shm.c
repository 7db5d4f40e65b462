/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.c: the collective operations among the ranks of one node.
 *
 * Buffers that lie in the ranks' pools (zt_comm's alloc) are read where they are: meet, each rank
 * takes what it needs from all others, meet.  All other memory goes through the staging halves, in
 * chunks: each rank puts its chunk into its half, all meet, each takes from all.  The halves take
 * turns, so that one meeting per chunk is enough: before a rank writes a half again, the others
 * have come to the meeting of the chunk between, hence taken what was there.
 */
#include <stdio.h>
#include <string.h>

#include "engine/comm/node.h"
#include "engine/comm/sum.h"

/* Pieces from this size on are worth huge pages. */
#define SH_LARGE (4u << 20)

/* A chunk of an operation: count elements from at on of every part. */
typedef struct sh_chunk {
    zt_node *node;
    const zt_call *call;
    uint64_t at, count;
    unsigned half;
} sh_chunk;

/*
 * How one operation moves its bytes.
 *
 * parts    that a rank puts for others: 1 (the same for all), or 0 for one per rank
 * put      from the caller's memory into the own half
 * take     from all halves into the caller's memory
 * direct   the whole operation, from zt_node_source; NULL: always staged
 * by_root  only the root's bytes are read
 */
typedef struct sh_way {
    uint64_t parts;
    void (*put)(const sh_chunk *k);
    void (*take)(const sh_chunk *k);
    void (*direct)(zt_node *node, const zt_call *call);
    bool by_root;
} sh_way;

static unsigned char *sh_half(const sh_chunk *k, int rank)
{
    return zt_node_half(k->node, rank, k->half);
}

static uint64_t sh_bytes(const sh_chunk *k)
{
    return k->count * k->call->size;
}

/* The q-th part of a buffer of world parts, from element `at` on. */
static const unsigned char *sh_from(const zt_call *call, int q, uint64_t at)
{
    return (const unsigned char *)call->from + ((uint64_t)q * call->n + at) * call->size;
}

static unsigned char *sh_to(const zt_call *call, int q, uint64_t at)
{
    return (unsigned char *)call->to + ((uint64_t)q * call->n + at) * call->size;
}

/* ---- one way to run them all ---- */

static int sh_staged(const sh_way *way, sh_chunk *k, bool is_put, ckpt_err *err)
{
    uint64_t parts = way->parts ? way->parts : (uint64_t)zt_node_world(k->node);
    uint64_t room = ZT_NODE_HALF / parts / k->call->size, n = k->call->n, next;
    int rc = CKPT_OK;

    if (!is_put) {
        k->count = n < room ? n : room;
        k->half = zt_node_next_half(k->node);
        way->put(k);
        rc = zt_node_again(k->node, k->call, err);
    }
    while (rc == CKPT_OK) {
        way->take(k);
        next = k->at + k->count;
        if (next == n)
            break;
        k->at = next;
        k->count = n - next < room ? n - next : room;
        k->half = zt_node_next_half(k->node);
        way->put(k);
        rc = zt_node_again(k->node, k->call, err);
    }
    return rc;
}

static bool sh_all_readable(const sh_way *way, const zt_node *node, const zt_call *call)
{
    if (!way->direct)
        return false;
    if (way->by_root)
        return zt_node_source(node, call->root) != NULL;
    for (int q = 0; q < zt_node_world(node); q++) {
        if (!zt_node_source(node, q))
            return false;
    }
    return true;
}

/* readable, n_bytes: what the others would read of this rank. */
static int sh_run(zt_node *node, const sh_way *way, const zt_call *call, const void *readable,
                  uint64_t n_bytes, ckpt_err *err)
{
    sh_chunk k = {.node = node, .call = call, .count = call->n};
    uint64_t parts = way->parts ? way->parts : (uint64_t)zt_node_world(node);
    bool small = !way->direct || parts * call->n * call->size <= ZT_LINK_SMALL;
    int rc;

    if (small) {
        // one chunk, put before all meet for the first time
        k.half = zt_node_next_half(node);
        way->put(&k);
        readable = NULL;
    }
    rc = zt_node_meet(node, call, readable, n_bytes, err);
    if (rc != CKPT_OK)
        return rc;
    if (!small && sh_all_readable(way, node, call)) {
        way->direct(node, call);
        return zt_node_again(node, call, err);
    }
    return sh_staged(way, &k, small, err);
}

/* ---- reduce_scatter: from [world * n], to [n] ---- */

static void sh_put_parts(const sh_chunk *k)
{
    int me = zt_node_rank(k->node);

    for (int q = 0; q < zt_node_world(k->node); q++) {
        if (q != me) { // the own part is taken from where it is
            memcpy(sh_half(k, me) + (uint64_t)q * sh_bytes(k), sh_from(k->call, q, k->at),
                   (size_t)sh_bytes(k));
        }
    }
}

static void sh_take_sum(const sh_chunk *k)
{
    const void **from = zt_node_pointers(k->node);
    int me = zt_node_rank(k->node), world = zt_node_world(k->node);

    for (int q = 0; q < world; q++)
        from[q] = sh_half(k, q) + (uint64_t)me * sh_bytes(k);
    from[me] = sh_from(k->call, me, k->at);
    zt_sum(sh_to(k->call, 0, k->at), from, world, k->count, k->call->dt, k->call->op);
}

static void sh_direct_sum(zt_node *node, const zt_call *call)
{
    const void **from = zt_node_pointers(node);
    int me = zt_node_rank(node), world = zt_node_world(node);

    for (int q = 0; q < world; q++)
        from[q] =
            (const unsigned char *)zt_node_source(node, q) + (uint64_t)me * call->n * call->size;
    zt_sum(call->to, from, world, call->n, call->dt, call->op);
}

static int sh_reduce_scatter(void *node, const zt_call *call, ckpt_err *err)
{
    static const sh_way way = {.put = sh_put_parts, .take = sh_take_sum, .direct = sh_direct_sum};

    return sh_run(node, &way, call, call->from,
                  (uint64_t)zt_node_world(node) * call->n * call->size, err);
}

/* ---- all_gather: from [n], to [world * n]; the own part is in place already ---- */

static void sh_put_one(const sh_chunk *k)
{
    memcpy(sh_half(k, zt_node_rank(k->node)), sh_from(k->call, 0, k->at), (size_t)sh_bytes(k));
}

static void sh_take_all(const sh_chunk *k)
{
    int me = zt_node_rank(k->node), world = zt_node_world(k->node);

    for (int d = 1; d < world; d++) { // not all from the same rank at once
        int q = (me + d) % world;

        memcpy(sh_to(k->call, q, k->at), sh_half(k, q), (size_t)sh_bytes(k));
    }
}

static void sh_direct_gather(zt_node *node, const zt_call *call)
{
    int me = zt_node_rank(node), world = zt_node_world(node);

    for (int d = 1; d < world; d++) {
        int q = (me + d) % world;

        memcpy(sh_to(call, q, 0), zt_node_source(node, q), (size_t)(call->n * call->size));
    }
}

static int sh_all_gather(void *node, const zt_call *call, ckpt_err *err)
{
    static const sh_way way = {
        .parts = 1, .put = sh_put_one, .take = sh_take_all, .direct = sh_direct_gather};
    void *own = sh_to(call, zt_node_rank(node), 0);
    uint64_t n_bytes = call->n * call->size;

    if (own != call->from)
        memmove(own, call->from, (size_t)n_bytes);
    // the others may read either copy: one of them may lie in the pool
    return sh_run(node, &way, call, zt_node_holds(node, call->from, n_bytes) ? call->from : own,
                  n_bytes, err);
}

/* ---- small sums: everything on every rank ---- */

static void sh_take_small(const sh_chunk *k)
{
    const void **from = zt_node_pointers(k->node);
    int world = zt_node_world(k->node);

    for (int q = 0; q < world; q++)
        from[q] = sh_half(k, q);
    zt_sum(k->call->to, from, world, k->count, k->call->dt, k->call->op);
}

static int sh_reduce_small(void *node, const zt_call *call, ckpt_err *err)
{
    static const sh_way way = {.parts = 1, .put = sh_put_one, .take = sh_take_small};

    return sh_run(node, &way, call, NULL, 0, err);
}

/* ---- reduce ---- */

static void sh_put_addend(const sh_chunk *k)
{
    if (zt_node_rank(k->node) != k->call->root)
        sh_put_one(k);
}

static void sh_take_reduced(const sh_chunk *k)
{
    const void **from = zt_node_pointers(k->node);
    int root = k->call->root, world = zt_node_world(k->node);

    if (zt_node_rank(k->node) != root)
        return;
    for (int q = 0; q < world; q++)
        from[q] = sh_half(k, q);
    from[root] = sh_from(k->call, 0, k->at);
    zt_sum(sh_to(k->call, 0, k->at), from, world, k->count, k->call->dt, k->call->op);
}

static void sh_direct_reduced(zt_node *node, const zt_call *call)
{
    const void **from = zt_node_pointers(node);
    int world = zt_node_world(node);

    if (zt_node_rank(node) != call->root)
        return;
    for (int q = 0; q < world; q++)
        from[q] = zt_node_source(node, q);
    zt_sum(call->to, from, world, call->n, call->dt, call->op);
}

static int sh_reduce(void *node, const zt_call *call, ckpt_err *err)
{
    static const sh_way way = {
        .parts = 1, .put = sh_put_addend, .take = sh_take_reduced, .direct = sh_direct_reduced};

    return sh_run(node, &way, call, call->from, call->n * call->size, err);
}

/* ---- broadcast ---- */

static void sh_put_root(const sh_chunk *k)
{
    if (zt_node_rank(k->node) == k->call->root)
        sh_put_one(k);
}

static void sh_take_root(const sh_chunk *k)
{
    if (zt_node_rank(k->node) != k->call->root)
        memcpy(sh_to(k->call, 0, k->at), sh_half(k, k->call->root), (size_t)sh_bytes(k));
}

static void sh_direct_root(zt_node *node, const zt_call *call)
{
    if (zt_node_rank(node) != call->root)
        memcpy(call->to, zt_node_source(node, call->root), (size_t)(call->n * call->size));
}

static int sh_broadcast(void *node, const zt_call *call, ckpt_err *err)
{
    static const sh_way way = {.parts = 1,
                               .put = sh_put_root,
                               .take = sh_take_root,
                               .direct = sh_direct_root,
                               .by_root = true};

    return sh_run(node, &way, call, call->from, call->n * call->size, err);
}

/* ---- all_to_all: from [world * n], to [world * n] ---- */

static void sh_take_parts(const sh_chunk *k)
{
    int me = zt_node_rank(k->node);

    for (int q = 0; q < zt_node_world(k->node); q++) {
        const void *from =
            q == me ? sh_from(k->call, me, k->at) : sh_half(k, q) + (uint64_t)me * sh_bytes(k);

        memcpy(sh_to(k->call, q, k->at), from, (size_t)sh_bytes(k));
    }
}

static void sh_direct_parts(zt_node *node, const zt_call *call)
{
    int me = zt_node_rank(node);
    uint64_t n_bytes = call->n * call->size;

    for (int q = 0; q < zt_node_world(node); q++) {
        const unsigned char *from = zt_node_source(node, q);

        memcpy(sh_to(call, q, 0), from + (uint64_t)me * n_bytes, (size_t)n_bytes);
    }
}

static int sh_all_to_all(void *node, const zt_call *call, ckpt_err *err)
{
    static const sh_way way = {
        .put = sh_put_parts, .take = sh_take_parts, .direct = sh_direct_parts};

    return sh_run(node, &way, call, call->from,
                  (uint64_t)zt_node_world(node) * call->n * call->size, err);
}

static int sh_barrier(void *node, const zt_call *call, ckpt_err *err)
{
    return zt_node_meet(node, call, NULL, 0, err);
}

/* ---- memory ---- */

/* True if this setting of the kernel lets some memory have huge pages. */
static bool sh_allows(const char *path)
{
    char text[128] = "";
    FILE *f = fopen(path, "re");

    if (f) {
        if (!fgets(text, sizeof text, f))
            text[0] = 0;
        fclose(f);
    }
    return strchr(text, '[') && !strstr(text, "[never]") && !strstr(text, "[deny]");
}

/*
 * Most kernels give huge pages to plain memory but not to shared memory.  Then large pieces are
 * plain: matrix products on 4 KiB pages lose more (half of their speed on a virtual machine, copies
 * far more) than going through the halves costs.
 */
static bool sh_better_plain(uint64_t n_bytes)
{
    return n_bytes >= SH_LARGE && sh_allows("/sys/kernel/mm/transparent_hugepage/enabled") &&
           !sh_allows("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

static void *sh_alloc(void *node, uint64_t n_bytes)
{
    return sh_better_plain(n_bytes) ? zt_link_plain_alloc(NULL, n_bytes)
                                    : zt_node_alloc(node, n_bytes);
}

static void sh_release(void *node, void *p)
{
    if (!p || zt_node_holds(node, p, 0))
        zt_node_release(node, p);
    else
        zt_link_plain_release(NULL, p);
}

const zt_link_ops zt_shm_ops = {
    .reduce_scatter = sh_reduce_scatter,
    .all_gather = sh_all_gather,
    .reduce_small = sh_reduce_small,
    .reduce = sh_reduce,
    .broadcast = sh_broadcast,
    .all_to_all = sh_all_to_all,
    .barrier = sh_barrier,
    .alloc = sh_alloc,
    .release = sh_release,
};
