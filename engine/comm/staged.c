/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staged.c: exchanges a device's memory through the host in bounded pieces: get, operate, put.
 *
 * Several ranks on one GPU need it, because NCCL refuses them, and NCCL's sums are compared with
 * it.  The communicator below computes the sums: in fp32, in rank order, rounded once.  Every
 * operation here works element by element, so processing it in pieces changes no bit.  wait does
 * the work of started operations.
 *
 * ZT_STAGE_BYTES in the environment sets the size of the buffer, so tests can divide small
 * messages.
 */
#include <assert.h>
#include <stdlib.h>

#include "engine/comm/link.h"
#include "libckpt/base/mem.h"
#include "libckpt/base/number.h"

/* Bytes of the buffer on the host: large enough that copies to a GPU run at full speed. */
#define SG_BYTES (UINT64_C(16) << 20)

typedef struct sg_comm {
    zt_link link; /* first, so a zt_comm * can be cast to sg_comm *; holds the ring */
    zt_comm *below;
    zt_device *d;
    unsigned char *room; /* buffer in the memory that `below` sends from */
    uint64_t n_room;
} sg_comm;

static sg_comm *sg_of(zt_comm *c)
{
    return (sg_comm *)(void *)c;
}

typedef struct sg_cut {
    uint64_t size; /* bytes of an element */
    uint64_t step; /* elements of a piece */
} sg_cut;

/* Compute the elements of a piece if the buffer holds `parts` of them.  Refuses wrong arguments
 * before any byte is sent. */
static int sg_cut_new(const sg_comm *s, sg_cut *cut, zt_call *call, uint64_t parts, ckpt_err *err)
{
    bool sum = call->kind == ZT_CALL_ALL_REDUCE || call->kind == ZT_CALL_REDUCE_SCATTER ||
               call->kind == ZT_CALL_REDUCE;
    int rc = zt_link_check(&s->link.base, call, sum, err);

    if (rc == CKPT_OK && (call->root < 0 || call->root >= s->link.base.world))
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: root %d is not one of the %d ranks",
                       zt_call_name(call->kind), call->root, s->link.base.world);
    cut->size = call->size;
    // pieces begin on cache lines, so the ranks' sums run on whole vectors
    cut->step = s->n_room / parts / 64 * 64 / (call->size ? call->size : 1);
    assert(rc != CKPT_OK || cut->step > 0); // else the operations would never end
    return rc;
}

static uint64_t sg_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Copy n_bytes from the device to the buffer at `at`, and back. */
static void sg_get(sg_comm *s, uint64_t at, const void *from, uint64_t n_bytes)
{
    assert(at + n_bytes <= s->n_room);
    s->d->ops->get(s->d, s->room + at, from, n_bytes);
}

static void sg_put(sg_comm *s, void *to, uint64_t at, uint64_t n_bytes)
{
    assert(at + n_bytes <= s->n_room);
    s->d->ops->put(s->d, to, s->room + at, n_bytes);
}

/* ---- operations ---- */

static int sg_all_reduce(zt_comm *c, void *x, uint64_t n, ckpt_dtype dt, zt_reduce op,
                         ckpt_err *err)
{
    sg_comm *s = sg_of(c);
    zt_call call = {.kind = ZT_CALL_ALL_REDUCE, .to = x, .from = x, .n = n, .dt = dt};
    sg_cut cut = {0};
    int rc = sg_cut_new(s, &cut, &call, 1, err);

    for (uint64_t at = 0; at < n && rc == CKPT_OK; at += cut.step) {
        uint64_t m = sg_least(n - at, cut.step);
        unsigned char *p = (unsigned char *)x + at * cut.size;

        sg_get(s, 0, p, m * cut.size);
        rc = s->below->ops->all_reduce(s->below, s->room, m, dt, op, err);
        sg_put(s, p, 0, m * cut.size);
    }
    return rc;
}

/* Gather a piece of every rank's part in the buffer, and sum them into the first. */
static int sg_reduce_scatter(zt_comm *c, void *to, const void *from, uint64_t n, ckpt_dtype dt,
                             ckpt_err *err)
{
    sg_comm *s = sg_of(c);
    uint64_t world = (uint64_t)c->world, mine;
    zt_call call = {.kind = ZT_CALL_REDUCE_SCATTER, .to = to, .from = from, .n = n, .dt = dt};
    sg_cut cut = {0};
    int rc = sg_cut_new(s, &cut, &call, world, err);

    for (uint64_t at = 0; at < n && rc == CKPT_OK; at += cut.step) {
        uint64_t m = sg_least(n - at, cut.step), bytes = m * cut.size;

        for (uint64_t r = 0; r < world; r++)
            sg_get(s, r * bytes, (const unsigned char *)from + (r * n + at) * cut.size, bytes);
        mine = (uint64_t)c->rank * bytes;
        rc = s->below->ops->reduce_scatter(s->below, s->room + mine, s->room, m, dt, err);
        sg_put(s, (unsigned char *)to + at * cut.size, mine, bytes);
    }
    return rc;
}

static int sg_all_gather(zt_comm *c, void *to, const void *from, uint64_t n, ckpt_dtype dt,
                         ckpt_err *err)
{
    sg_comm *s = sg_of(c);
    uint64_t world = (uint64_t)c->world, mine;
    zt_call call = {.kind = ZT_CALL_ALL_GATHER, .to = to, .from = from, .n = n, .dt = dt};
    sg_cut cut = {0};
    int rc = sg_cut_new(s, &cut, &call, world, err);

    for (uint64_t at = 0; at < n && rc == CKPT_OK; at += cut.step) {
        uint64_t m = sg_least(n - at, cut.step), bytes = m * cut.size;

        mine = (uint64_t)c->rank * bytes;
        sg_get(s, mine, (const unsigned char *)from + at * cut.size, bytes);
        rc = s->below->ops->all_gather(s->below, s->room, s->room + mine, m, dt, err);
        for (uint64_t r = 0; r < world; r++)
            sg_put(s, (unsigned char *)to + (r * n + at) * cut.size, r * bytes, bytes);
    }
    return rc;
}

static int sg_reduce(zt_comm *c, void *x, uint64_t n, ckpt_dtype dt, int root, ckpt_err *err)
{
    sg_comm *s = sg_of(c);
    zt_call call = {.kind = ZT_CALL_REDUCE, .to = x, .from = x, .n = n, .dt = dt, .root = root};
    sg_cut cut = {0};
    int rc = sg_cut_new(s, &cut, &call, 1, err);

    for (uint64_t at = 0; at < n && rc == CKPT_OK; at += cut.step) {
        uint64_t m = sg_least(n - at, cut.step);
        unsigned char *p = (unsigned char *)x + at * cut.size;

        sg_get(s, 0, p, m * cut.size);
        rc = s->below->ops->reduce(s->below, s->room, m, dt, root, err);
        if (c->rank == root)
            sg_put(s, p, 0, m * cut.size);
    }
    return rc;
}

static int sg_broadcast(zt_comm *c, void *x, uint64_t n_bytes, int root, ckpt_err *err)
{
    sg_comm *s = sg_of(c);
    zt_call call = {
        .kind = ZT_CALL_BROADCAST, .to = x, .from = x, .n = n_bytes, .dt = CKPT_U8, .root = root};
    sg_cut cut = {0};
    int rc = sg_cut_new(s, &cut, &call, 1, err);

    for (uint64_t at = 0; at < n_bytes && rc == CKPT_OK; at += cut.step) {
        uint64_t m = sg_least(n_bytes - at, cut.step);

        if (c->rank == root)
            sg_get(s, 0, (unsigned char *)x + at, m);
        rc = s->below->ops->broadcast(s->below, s->room, m, root, err);
        if (c->rank != root)
            sg_put(s, (unsigned char *)x + at, 0, m);
    }
    return rc;
}

/* One half of the buffer is for sending, the other for receiving. */
static int sg_all_to_all(zt_comm *c, void *to, const void *from, uint64_t n_bytes, ckpt_err *err)
{
    sg_comm *s = sg_of(c);
    uint64_t world = (uint64_t)c->world, half;
    zt_call call = {
        .kind = ZT_CALL_ALL_TO_ALL, .to = to, .from = from, .n = n_bytes, .dt = CKPT_U8};
    sg_cut cut = {0};
    int rc = sg_cut_new(s, &cut, &call, 2 * world, err);

    for (uint64_t at = 0; at < n_bytes && rc == CKPT_OK; at += cut.step) {
        uint64_t m = sg_least(n_bytes - at, cut.step);

        half = world * m;
        for (uint64_t r = 0; r < world; r++)
            sg_get(s, r * m, (const unsigned char *)from + r * n_bytes + at, m);
        rc = s->below->ops->all_to_all(s->below, s->room + half, s->room, m, err);
        for (uint64_t r = 0; r < world; r++)
            sg_put(s, (unsigned char *)to + r * n_bytes + at, half + r * m, m);
    }
    return rc;
}

static int sg_barrier(zt_comm *c, ckpt_err *err)
{
    return sg_of(c)->below->ops->barrier(sg_of(c)->below, err);
}

/* ---- memory, creating and freeing ---- */

static void *sg_alloc(zt_comm *c, uint64_t n_bytes)
{
    return sg_of(c)->d->ops->alloc(sg_of(c)->d, n_bytes);
}

static void sg_release(zt_comm *c, void *p)
{
    sg_of(c)->d->ops->release(sg_of(c)->d, p);
}

static void sg_abort(zt_comm *c, int status, const char *text)
{
    sg_of(c)->below->ops->abort(sg_of(c)->below, status, text);
}

static void sg_free(zt_comm *c)
{
    sg_comm *s = sg_of(c);

    s->below->ops->release(s->below, s->room);
    ckpt_free(s);
}

static const zt_comm_ops sg_ops = {
    .name = "staged",
    .all_reduce = sg_all_reduce,
    .reduce_scatter = sg_reduce_scatter,
    .all_gather = sg_all_gather,
    .reduce = sg_reduce,
    .broadcast = sg_broadcast,
    .all_to_all = sg_all_to_all,
    .barrier = sg_barrier,
    .start = zt_link_start,
    .wait = zt_link_wait,
    .alloc = sg_alloc,
    .release = sg_release,
    .abort = sg_abort,
    .free = sg_free,
};

int zt_comm_staged(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err)
{
    sg_comm *s = ckpt_alloc(sizeof *s);
    uint64_t least;
    int rc = CKPT_OK;

    *out = NULL;
    if (!s || !ckpt_mul((uint64_t)base->world, 2 * 64, &least)) {
        rc = ckpt_fail_memory(err);
    } else {
        // room for one cache line per rank in each direction
        const char *text = getenv("ZT_STAGE_BYTES");
        uint64_t want = SG_BYTES;

        if (text && !ckpt_parse_u64(text, &want))
            rc = ckpt_fail(err, CKPT_EUSAGE,
                           "ZT_STAGE_BYTES is '%.40s': expected a number of bytes", text);
        s->n_room = want < least ? least : want > 16 * SG_BYTES ? SG_BYTES : want;
        s->room = base->ops->alloc(base, s->n_room);
        rc = rc == CKPT_OK && !s->room ? ckpt_fail_memory(err) : rc;
    }
    rc = zt_comm_agree(base, rc, err);
    if (rc != CKPT_OK) {
        if (s)
            base->ops->release(base, s->room);
        ckpt_free(s);
        return rc;
    }
    s->link.base = *base;
    s->link.base.ops = &sg_ops;
    s->link.base.device = device;
    s->below = base;
    s->d = device;
    *out = &s->link.base;
    return CKPT_OK;
}
