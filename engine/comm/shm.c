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
#define SY_LARGE (4u << 20)

/* A chunk of an operation: count elements from at on of every part. */
typedef struct sy_chunk {
    zt_node *node;
    const zt_call *call;
    uint64_t at, count;
    unsigned half;
} sy_chunk;

/*
 * How one operation moves its bytes.
 *
 * parts    that a rank puts for others: 1 (the same for all), or 0 for one per rank
 * put      from the caller's memory into the own half
 * take     from all halves into the caller's memory
 * direct   the whole operation, from zt_node_source; NULL: always staged
 * by_root  only the root's bytes are read
 */
typedef struct sy_way {
    uint64_t parts;
    void (*put)(const sy_chunk *k);
    void (*take)(const sy_chunk *k);
    void (*direct)(zt_node *node, const zt_call *call);
    bool by_root;
} sy_way;

static unsigned char *sy_half(const sy_chunk *k, int rank)
{
    return zt_node_half(k->node, rank, k->half);
}

static uint64_t sy_bytes(const sy_chunk *k)
{
    return k->count * k->call->size;
}

/* The q-th part of a buffer of world parts, from element `at` on. */
static const unsigned char *sy_from(const zt_call *call, int q, uint64_t at)
{
    return (const unsigned char *)call->from + ((uint64_t)q * call->n + at) * call->size;
}

static unsigned char *sy_to(const zt_call *call, int q, uint64_t at)
{
    return (unsigned char *)call->to + ((uint64_t)q * call->n + at) * call->size;
}

/* ---- one way to run them all ---- */

static int sy_staged(const sy_way *way, sy_chunk *k, bool is_put, ckpt_err *err)
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

static bool sy_all_readable(const sy_way *way, const zt_node *node, const zt_call *call)
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
static int sy_run(zt_node *node, const sy_way *way, const zt_call *call, const void *readable,
                  uint64_t n_bytes, ckpt_err *err)
{
    sy_chunk k = {.node = node, .call = call, .count = call->n};
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
    if (!small && sy_all_readable(way, node, call)) {
        way->direct(node, call);
        return zt_node_again(node, call, err);
    }
    return sy_staged(way, &k, small, err);
}

/* ---- reduce_scatter: from [world * n], to [n] ---- */

static void sy_put_parts(const sy_chunk *k)
{
    int me = zt_node_rank(k->node);

    for (int q = 0; q < zt_node_world(k->node); q++) {
        if (q != me) { // the own part is taken from where it is
            memcpy(sy_half(k, me) + (uint64_t)q * sy_bytes(k), sy_from(k->call, q, k->at),
                   (size_t)sy_bytes(k));
        }
    }
}

static void sy_take_sum(const sy_chunk *k)
{
    const void **from = zt_node_pointers(k->node);
    int me = zt_node_rank(k->node), world = zt_node_world(k->node);

    for (int q = 0; q < world; q++)
        from[q] = sy_half(k, q) + (uint64_t)me * sy_bytes(k);
    from[me] = sy_from(k->call, me, k->at);
    zt_sum(sy_to(k->call, 0, k->at), from, world, k->count, k->call->dt, k->call->op);
}

static void sy_direct_sum(zt_node *node, const zt_call *call)
{
    const void **from = zt_node_pointers(node);
    int me = zt_node_rank(node), world = zt_node_world(node);

    for (int q = 0; q < world; q++)
        from[q] =
            (const unsigned char *)zt_node_source(node, q) + (uint64_t)me * call->n * call->size;
    zt_sum(call->to, from, world, call->n, call->dt, call->op);
}

static int sy_reduce_scatter(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {.put = sy_put_parts, .take = sy_take_sum, .direct = sy_direct_sum};

    return sy_run(node, &way, call, call->from,
                  (uint64_t)zt_node_world(node) * call->n * call->size, err);
}

/* ---- all_gather: from [n], to [world * n]; the own part is in place already ---- */

static void sy_put_one(const sy_chunk *k)
{
    memcpy(sy_half(k, zt_node_rank(k->node)), sy_from(k->call, 0, k->at), (size_t)sy_bytes(k));
}

static void sy_take_all(const sy_chunk *k)
{
    int me = zt_node_rank(k->node), world = zt_node_world(k->node);

    for (int d = 1; d < world; d++) { // not all from the same rank at once
        int q = (me + d) % world;

        memcpy(sy_to(k->call, q, k->at), sy_half(k, q), (size_t)sy_bytes(k));
    }
}

static void sy_direct_gather(zt_node *node, const zt_call *call)
{
    int me = zt_node_rank(node), world = zt_node_world(node);

    for (int d = 1; d < world; d++) {
        int q = (me + d) % world;

        memcpy(sy_to(call, q, 0), zt_node_source(node, q), (size_t)(call->n * call->size));
    }
}

static int sy_all_gather(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {
        .parts = 1, .put = sy_put_one, .take = sy_take_all, .direct = sy_direct_gather};
    void *own = sy_to(call, zt_node_rank(node), 0);
    uint64_t n_bytes = call->n * call->size;

    if (own != call->from)
        memmove(own, call->from, (size_t)n_bytes);
    // the others may read either copy: one of them may lie in the pool
    return sy_run(node, &way, call, zt_node_holds(node, call->from, n_bytes) ? call->from : own,
                  n_bytes, err);
}

/* ---- small sums: everything on every rank ---- */

static void sy_take_small(const sy_chunk *k)
{
    const void **from = zt_node_pointers(k->node);
    int world = zt_node_world(k->node);

    for (int q = 0; q < world; q++)
        from[q] = sy_half(k, q);
    zt_sum(k->call->to, from, world, k->count, k->call->dt, k->call->op);
}

static int sy_reduce_small(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {.parts = 1, .put = sy_put_one, .take = sy_take_small};

    return sy_run(node, &way, call, NULL, 0, err);
}

/* ---- reduce ---- */

static void sy_put_addend(const sy_chunk *k)
{
    if (zt_node_rank(k->node) != k->call->root)
        sy_put_one(k);
}

static void sy_take_reduced(const sy_chunk *k)
{
    const void **from = zt_node_pointers(k->node);
    int root = k->call->root, world = zt_node_world(k->node);

    if (zt_node_rank(k->node) != root)
        return;
    for (int q = 0; q < world; q++)
        from[q] = sy_half(k, q);
    from[root] = sy_from(k->call, 0, k->at);
    zt_sum(sy_to(k->call, 0, k->at), from, world, k->count, k->call->dt, k->call->op);
}

static void sy_direct_reduced(zt_node *node, const zt_call *call)
{
    const void **from = zt_node_pointers(node);
    int world = zt_node_world(node);

    if (zt_node_rank(node) != call->root)
        return;
    for (int q = 0; q < world; q++)
        from[q] = zt_node_source(node, q);
    zt_sum(call->to, from, world, call->n, call->dt, call->op);
}

static int sy_reduce(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {
        .parts = 1, .put = sy_put_addend, .take = sy_take_reduced, .direct = sy_direct_reduced};

    return sy_run(node, &way, call, call->from, call->n * call->size, err);
}

/* ---- broadcast ---- */

static void sy_put_root(const sy_chunk *k)
{
    if (zt_node_rank(k->node) == k->call->root)
        sy_put_one(k);
}

static void sy_take_root(const sy_chunk *k)
{
    if (zt_node_rank(k->node) != k->call->root)
        memcpy(sy_to(k->call, 0, k->at), sy_half(k, k->call->root), (size_t)sy_bytes(k));
}

static void sy_direct_root(zt_node *node, const zt_call *call)
{
    if (zt_node_rank(node) != call->root)
        memcpy(call->to, zt_node_source(node, call->root), (size_t)(call->n * call->size));
}

static int sy_broadcast(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {.parts = 1,
                               .put = sy_put_root,
                               .take = sy_take_root,
                               .direct = sy_direct_root,
                               .by_root = true};

    return sy_run(node, &way, call, call->from, call->n * call->size, err);
}

/* ---- all_to_all: from [world * n], to [world * n] ---- */

static void sy_take_parts(const sy_chunk *k)
{
    int me = zt_node_rank(k->node);

    for (int q = 0; q < zt_node_world(k->node); q++) {
        const void *from =
            q == me ? sy_from(k->call, me, k->at) : sy_half(k, q) + (uint64_t)me * sy_bytes(k);

        memcpy(sy_to(k->call, q, k->at), from, (size_t)sy_bytes(k));
    }
}

static void sy_direct_parts(zt_node *node, const zt_call *call)
{
    int me = zt_node_rank(node);
    uint64_t n_bytes = call->n * call->size;

    for (int q = 0; q < zt_node_world(node); q++) {
        const unsigned char *from = zt_node_source(node, q);

        memcpy(sy_to(call, q, 0), from + (uint64_t)me * n_bytes, (size_t)n_bytes);
    }
}

static int sy_all_to_all(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {
        .put = sy_put_parts, .take = sy_take_parts, .direct = sy_direct_parts};

    return sy_run(node, &way, call, call->from,
                  (uint64_t)zt_node_world(node) * call->n * call->size, err);
}

static int sy_barrier(void *node, const zt_call *call, ckpt_err *err)
{
    return zt_node_meet(node, call, NULL, 0, err);
}

/* ---- memory ---- */

/* True if this setting of the kernel lets some memory have huge pages. */
static bool sy_allows(const char *path)
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
static bool sy_better_plain(uint64_t n_bytes)
{
    return n_bytes >= SY_LARGE && sy_allows("/sys/kernel/mm/transparent_hugepage/enabled") &&
           !sy_allows("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

static void *sy_alloc(void *node, uint64_t n_bytes)
{
    return sy_better_plain(n_bytes) ? zt_link_plain_alloc(NULL, n_bytes)
                                    : zt_node_alloc(node, n_bytes);
}

static void sy_release(void *node, void *p)
{
    if (!p || zt_node_holds(node, p, 0))
        zt_node_release(node, p);
    else
        zt_link_plain_release(NULL, p);
}

const zt_link_ops zt_shm_ops = {
    .reduce_scatter = sy_reduce_scatter,
    .all_gather = sy_all_gather,
    .reduce_small = sy_reduce_small,
    .reduce = sy_reduce,
    .broadcast = sy_broadcast,
    .all_to_all = sy_all_to_all,
    .barrier = sy_barrier,
    .alloc = sy_alloc,
    .release = sy_release,
};
