/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heartbeat.c: sends heartbeats, and notices a rank that sends none any more.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "libckpt/dist/team_inside.h"

#define TEAM_BEATS 1.0  /* seconds between heartbeats, at most a quarter of the limit */
#define TEAM_GAP   2.0  /* seconds without a tick: this process itself was stopped */
#define TEAM_GRACE 10.0 /* seconds to report a failure after a process is lost */

/*
 * True if a rank gets heartbeats from this one: rank 0 gets them from all, and all get them from
 * rank 0.
 */
static bool team_listens(const team_state *t, unsigned to)
{
    return to != t->team.rank && (t->team.rank == 0 || to == 0) && !t->mate[to].gone;
}

/* Record a process as lost if it was silent for too long. */
static void team_look(team_state *t, double now)
{
    for (unsigned i = 0; i < t->team.n && t->lost.code == CKPT_OK; i++) {
        ckpt_err err = {0};

        if (!team_listens(t, i) || now - t->mate[i].heard <= t->limit)
            continue;
        (void)ckpt_fail(&err, CKPT_EIO,
                        "rank %u%s%s has not responded for %.0f s: it hangs, is stopped, or its "
                        "machine is down",
                        i, t->met ? " on " : "", t->met ? t->team.host[t->team.node[i]] : "",
                        t->limit);
        t->vanished = true;
        team_lose(t, &err);
    }
}

void team_tick(void *ctx)
{
    team_state *t = ctx;
    double now = ckpt_post_clock();
    uint64_t done = atomic_load(&t->done);
    bool beat, over;

    pthread_mutex_lock(&t->lock);
    // The job was suspended, so the others could not send heartbeats either.
    for (unsigned i = 0; now - t->ticked > TEAM_GAP && i < t->team.n; i++)
        t->mate[i].heard += now - t->ticked;
    t->ticked = now;
    if (!t->closing)
        team_look(t, now);
    beat = now - t->beaten >= (t->limit < 4 * TEAM_BEATS ? t->limit / 4 : TEAM_BEATS);
    t->beaten = beat ? now : t->beaten;
    over = t->vanished && now - t->lost_at > TEAM_GRACE;
    pthread_mutex_unlock(&t->lock);
    for (unsigned i = 0; beat && i < t->team.n; i++) {
        if (team_listens(t, i))
            team_say(t, i, TEAM_BEAT, 0, &done, sizeof done);
    }
    // The thread that should report the failure is blocked, perhaps in a read.
    if (over) {
        t->mail.abort(t->mail.ctx, ckpt_err_status(t->lost.code), t->lost.text);
    }
}
