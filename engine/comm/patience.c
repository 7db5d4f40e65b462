/* SPDX-License-Identifier: Apache-2.0 */
/* patience.c: owns the limits on waiting for another rank, and the messages of a long wait. */
#include "engine/comm/patience.h"

#include <assert.h>
#include <stdio.h>

#define PT_TELL 10.0 /* seconds until a message */
#define PT_STEP 2.0  /* maximum seconds counted per check */

static double pt_limit;

void zt_patience_limit(double seconds)
{
    pt_limit = seconds;
}

void zt_patience_begin(zt_patience *p)
{
    *p = (zt_patience){.looked = zt_process_clock(),
                       .tell = pt_limit > 0 && pt_limit < 2 * PT_TELL ? pt_limit / 2 : PT_TELL};
}

/* "rank 3 on host (process 17, stopped)" */
static void pt_name(char *to, size_t room, const zt_missing *m)
{
    size_t n;

    if (m->rank < 0) {
        (void)snprintf(to, room, "a rank of another host");
        return;
    }
    n = (size_t)snprintf(to, room, "rank %d%s%.80s", m->rank, m->host ? " on " : "",
                         m->host ? m->host : "");
    if (m->process.pid > 0 && n < room)
        n += (size_t)snprintf(to + n, room - n, " (process %lld%s)", (long long)m->process.pid,
                              zt_process_stopped(m->process) ? ", stopped by a signal" : "");
    if (m->more > 0 && n < room)
        (void)snprintf(to + n, room - n, " and %d more", m->more);
}

int zt_patience_look(zt_patience *p, const char *what, int rank, bool tells, const zt_missing *whom,
                     ckpt_err *err)
{
    double now = zt_process_clock(), step = now - p->looked;
    bool over;
    char name[200];

    assert(what && whom);
    p->looked = now;
    p->waited += step < PT_STEP ? step : PT_STEP;
    over = pt_limit > 0 && p->waited >= pt_limit;
    if (!over && p->waited < p->tell)
        return CKPT_OK;
    p->tell = 2 * p->waited;
    pt_name(name, sizeof name, whom);
    if (over)
        return ckpt_fail(err, CKPT_EIO, "%s: %s has not arrived for %.0f s (--wait-limit)", what,
                         name, p->waited);
    if (tells)
        fprintf(stderr, "zerotrain: rank %d has waited for %s for %.0f s (%s)\n", rank, name,
                p->waited, what);
    return CKPT_OK;
}
