/* SPDX-License-Identifier: Apache-2.0 */
/*
 * self.c: owns the communicator of one process, in which every operation is a copy or does nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/comm/link.h"
#include "libckpt/base/mem.h"

static void sf_abort(zt_comm *c, int status, const char *text)
{
    fflush(stdout);
    fprintf(stderr, "rank %d on %s: %s\n", c->rank, c->host, text);
    // skip exit handlers, because other threads may still be computing
    _exit(status ? status : 1);
}

static void sf_free(zt_comm *c)
{
    ckpt_free(c);
}

static const zt_comm_ops sf_ops = {
    .name = "self",
    ZT_LINK_OPS,
    .abort = sf_abort,
    .free = sf_free,
};

int zt_comm_self(zt_comm **out, ckpt_err *err)
{
    zt_link *l = ckpt_alloc(sizeof *l);

    *out = NULL;
    if (!l)
        return ckpt_fail_memory(err);
    l->base.ops = &sf_ops;
    l->base.traffic = &l->traffic;
    l->base.world = l->base.local_world = 1;
    zt_link_name_host(l);
    *out = &l->base;
    return CKPT_OK;
}
