/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c: loads the transport, and keeps its idle connections and its settings.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "ckpt_extra.h"
#include "libckpt/base/number.h"
#include "libckpt/remote/fetch.h"

enum {
    LOA_IDLE = 32,  /* idle connections to keep */
    LOA_STALL = 30, /* seconds */
    LOA_RETRIES = 5,
    LOA_BUDGET = 20 /* the budget of an opening, in multiples of the stall time */
};

static struct {
    pthread_mutex_t lock;
    const ckpt_wire_plugin *plugin;
    ckpt_wire *idle[LOA_IDLE];
    size_t n_idle;
    unsigned stall, retries;
} loa_it = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic(ckpt_remote_stop_fn *) loa_stop;
static _Atomic(void *) loa_stop_ctx;

void ckpt_remote_set_stop(ckpt_remote_stop_fn *stop, void *ctx)
{
    atomic_store(&loa_stop_ctx, ctx);
    atomic_store(&loa_stop, stop);
}

bool ckpt_fetch_stopped(void)
{
    ckpt_remote_stop_fn *stop = atomic_load(&loa_stop);

    return stop && stop(atomic_load(&loa_stop_ctx));
}

/* The progress of current openings, for programs that display it. */
static _Atomic int64_t loa_opened, loa_wanted;

void ckpt_fetch_opened(int64_t n, int64_t wanted)
{
    atomic_fetch_add(&loa_opened, n);
    atomic_fetch_add(&loa_wanted, wanted);
}

bool ckpt_remote_progress(uint64_t *n_open, uint64_t *n_all)
{
    int64_t n = atomic_load(&loa_opened), all = atomic_load(&loa_wanted);

    // the two counters are not read atomically together, so they may disagree
    *n_open = n > 0 ? (uint64_t)n : 0;
    *n_all = all > n ? (uint64_t)all : *n_open;
    return all > 0;
}

/* ---- settings ---- */

static int loa_number(unsigned *out, const char *name, unsigned usual, unsigned most, ckpt_err *err)
{
    const char *said = getenv(name);
    uint64_t n = 0;

    *out = usual;
    if (!said || !*said)
        return CKPT_OK;
    if (!ckpt_parse_u64(said, &n) || n > most || (n == 0 && usual == LOA_STALL))
        return ckpt_fail(err, CKPT_EUSAGE, "%s is '%.40s': not a number from %d to %u", name, said,
                         usual == LOA_STALL, most);
    *out = (unsigned)n;
    return CKPT_OK;
}

unsigned ckpt_fetch_stall(void)
{
    return loa_it.stall;
}

int64_t ckpt_fetch_now(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t ckpt_fetch_budget(void)
{
    return (int64_t)loa_it.stall * LOA_BUDGET * 1000;
}

unsigned ckpt_fetch_retries(void)
{
    return loa_it.retries;
}

int ckpt_fetch_begin(ckpt_err *err)
{
    int rc = CKPT_OK;

    pthread_mutex_lock(&loa_it.lock);
    rc = loa_number(&loa_it.stall, "CKPT_REMOTE_TIMEOUT", LOA_STALL, 3600, err);
    if (rc == CKPT_OK)
        rc = loa_number(&loa_it.retries, "CKPT_REMOTE_RETRIES", LOA_RETRIES, 100, err);
    if (rc == CKPT_OK && !loa_it.plugin)
        rc = ckpt_wire_load(&loa_it.plugin, err);
    pthread_mutex_unlock(&loa_it.lock);
    return rc;
}

/* ---- connections ---- */

ckpt_wire *ckpt_wire_take(void)
{
    ckpt_wire *wire = NULL;

    pthread_mutex_lock(&loa_it.lock);
    if (loa_it.n_idle > 0)
        wire = loa_it.idle[--loa_it.n_idle];
    pthread_mutex_unlock(&loa_it.lock);
    return wire ? wire : loa_it.plugin->open();
}

void ckpt_wire_give(ckpt_wire *wire)
{
    pthread_mutex_lock(&loa_it.lock);
    if (loa_it.n_idle < LOA_IDLE) {
        loa_it.idle[loa_it.n_idle++] = wire;
        wire = NULL;
    }
    pthread_mutex_unlock(&loa_it.lock);
    if (wire)
        loa_it.plugin->close(wire);
}

void ckpt_wire_get(ckpt_wire *wire, const ckpt_wire_request *request, ckpt_wire_outcome *out)
{
    loa_it.plugin->get(wire, request, out);
}
