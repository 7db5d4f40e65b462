/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.c: the hooks of a process that works alone.
 */
#include "libckpt/run/peers.h"

#include <assert.h>
#include <string.h>

static int alone_begin(ckpt_peers *p, ckpt_err *err)
{
    size_t n = p->plan ? p->plan->to->files.n : 0;

    p->n = 1;
    p->leads = true;
    p->file = ckpt_alloc(n + 1);
    if (!p->file)
        return ckpt_fail_memory(err);
    memset(p->file, CKPT_FILE_HOME, n);
    p->every.end = p->plan ? (uint32_t)p->plan->jobs.n : 0;
    p->jobs = &p->every;
    p->n_jobs = 1;
    return CKPT_OK;
}

static void alone_end(ckpt_peers *p)
{
    ckpt_free(p->file);
    p->file = NULL;
}

static int alone_agree(ckpt_peers *p, int rc, ckpt_err *err)
{
    (void)p;
    (void)err;
    return rc;
}

static int alone_exchange(ckpt_peers *p, const ckpt_results *r, ckpt_err *err)
{
    (void)p;
    (void)r;
    (void)err;
    return CKPT_OK;
}

static int alone_outputs(ckpt_peers *p, ckpt_sink **sink, const char *folder,
                         const ckpt_sink_opts *opts, ckpt_err *err)
{
    (void)p;
    (void)sink;
    (void)folder;
    (void)opts;
    (void)err;
    return CKPT_OK;
}

static int alone_give(ckpt_peers *p, ckpt_work *work, ckpt_segments *seg, ckpt_segments *mine,
                      ckpt_err *err)
{
    (void)p;
    (void)work;
    (void)seg;
    (void)mine;
    (void)err;
    return CKPT_OK;
}

static int alone_copy(ckpt_peers *p, ckpt_work *work, const uint32_t *crc, unsigned n_workers,
                      uint64_t *n_written, ckpt_err *err)
{
    (void)p;
    (void)work;
    (void)crc;
    (void)n_workers;
    (void)n_written;
    (void)err;
    return CKPT_OK;
}

static int alone_look(ckpt_peers *p, const char *where, int rc, ckpt_look_fn fn, void *ctx,
                      ckpt_err *err)
{
    (void)p;
    return rc == CKPT_OK && where ? fn(ctx, where, err) : rc;
}

static int alone_apart(ckpt_look_fn fn, void *ctx, ckpt_err *err)
{
    return fn(ctx, NULL, err);
}

const ckpt_peer_hooks ckpt_peers_alone = {.begin = alone_begin,
                                          .end = alone_end,
                                          .agree = alone_agree,
                                          .exchange = alone_exchange,
                                          .outputs = alone_outputs,
                                          .give = alone_give,
                                          .copy = alone_copy,
                                          .look = alone_look,
                                          .apart = alone_apart};

int ckpt_peers_begin(ckpt_peers *p, const ckpt_peer_hooks *hooks, ckpt_err *err)
{
    assert(p->map);
    p->n_told = p->map->findings.n;
    p->hooks = &ckpt_peers_alone;
    return (hooks ? hooks : p->hooks)->begin(p, err);
}
