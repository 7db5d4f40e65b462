/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team_join.c: joins a process to a team, and lets it leave.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libckpt/dist/team_inside.h"

#define TEAM_FINISH 10.0 /* seconds to wait for the others to leave, without a message from them */
#define TEAM_LOST   2.0  /* the same, if one is lost */

/* ---- joining ---- */

/* A process's introduction. */
typedef struct team_hello {
    char version[32];
    char host[256];
    /* boot id of its kernel, because containers on several machines may have one name */
    char boot[40];
    team_processors processors;
    uint32_t sizes; /* of structs that messages contain unchanged */
} team_hello;

/* Read the boot id, which distinguishes machines with one name; empty if /proc lacks it. */
static void team_boot(char *out, size_t room)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (f && !fgets(out, (int)room, f))
        out[0] = 0;
    if (f)
        (void)fclose(f);
}

static bool team_one_machine(const team_hello *a, const team_hello *b)
{
    return memcmp(a->host, b->host, sizeof a->host) == 0 &&
           memcmp(a->boot, b->boot, sizeof a->boot) == 0;
}

/* Number the machines in the order of their first ranks. */
static int team_nodes(team_state *t, const ckpt_blobs *in, ckpt_err *err)
{
    for (unsigned i = 0; i < t->team.n; i++) {
        const team_hello *h = (const team_hello *)(const void *)in->at[i];
        unsigned k, r = 0;

        while (r < i && !team_one_machine((const team_hello *)(const void *)in->at[r], h))
            r++;
        k = r < i ? t->team.node[r] : t->team.n_nodes;
        t->team.node[i] = k;
        if (r < i)
            continue;
        t->team.host[k] = ckpt_alloc(sizeof h->host);
        if (!t->team.host[k])
            return ckpt_fail_memory(err);
        memcpy(t->team.host[k], h->host, sizeof h->host);
        t->team.n_nodes++;
    }
    return CKPT_OK;
}

/* Set the number of threads of each process. */
static int team_share(team_state *t, const ckpt_blobs *in, ckpt_err *err)
{
    const team_processors **each = ckpt_alloc(t->team.n * sizeof *each);

    if (!each)
        return ckpt_fail_memory(err);
    for (unsigned i = 0; i < t->team.n; i++)
        each[i] = &((const team_hello *)(const void *)in->at[i])->processors;
    t->team.threads = team_threads(each, t->team.node, t->team.n);
    ckpt_free(each);
    return CKPT_OK;
}

/* Exchange introductions; all processes must run this program. */
static int team_meet(team_state *t, ckpt_err *err)
{
    team_hello h = {.sizes = (uint32_t)(sizeof(void *) << 16 | sizeof(ckpt_err))};
    ckpt_blobs in = {0};
    int rc;

    (void)snprintf(h.version, sizeof h.version, "%s", t->opts.version);
    (void)snprintf(h.host, sizeof h.host, "%s", t->mail.host);
    team_boot(h.boot, sizeof h.boot);
    team_see_processors(&h.processors);
    rc = ckpt_team_all(&t->team, &h, sizeof h, &in, err);
    for (unsigned i = 0; rc == CKPT_OK && i < t->team.n; i++) {
        const team_hello *other = (const team_hello *)(const void *)in.at[i];

        if (in.n[i] != sizeof h || memcmp(other->version, h.version, sizeof h.version) != 0 ||
            other->sizes != h.sizes)
            rc = ckpt_fail(err, CKPT_EUSAGE,
                           "rank %u runs another version of this program than rank %u (%s)", i,
                           t->team.rank, h.version);
    }
    if (rc == CKPT_OK)
        rc = team_nodes(t, &in, err);
    if (rc == CKPT_OK)
        rc = team_share(t, &in, err);
    pthread_mutex_lock(&t->lock);
    t->met = rc == CKPT_OK;
    pthread_mutex_unlock(&t->lock);
    ckpt_blobs_free(&in);
    return rc;
}

static int team_init(team_state *t, const ckpt_mail *mail, const ckpt_team_opts *opts,
                     ckpt_err *err)
{
    double now = ckpt_post_clock();

    t->mail = *mail;
    t->opts = *opts;
    t->limit = opts->limit > 0 ? opts->limit : CKPT_TEAM_LIMIT;
    t->team.rank = mail->rank;
    t->team.n = mail->n_ranks;
    t->asked_end = &t->asked;
    t->ticked = t->beaten = now;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->noting, NULL);
    pthread_cond_init(&t->news, NULL);
    t->mate = ckpt_alloc(t->team.n * sizeof *t->mate);
    t->team.node = ckpt_alloc(t->team.n * sizeof *t->team.node);
    t->team.host = ckpt_alloc(t->team.n * sizeof(char *));
    if (!t->mate || !t->team.node || !t->team.host)
        return ckpt_fail_memory(err);
    for (unsigned i = 0; i < t->team.n; i++)
        t->mate[i].heard = now;
    return CKPT_OK;
}

int ckpt_team_start(const ckpt_mail *mail, const ckpt_team_opts *opts, ckpt_err *err)
{
    assert(mail && opts && opts->answer && !team_here() && mail->rank < mail->n_ranks);
    team_state *t = ckpt_alloc(sizeof *t);
    int rc = t ? team_init(t, mail, opts, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = team_open(t, team_tick, err);
    // After a failure the state stays until the process ends, because other threads may use it.
    return rc == CKPT_OK ? team_meet(t, err) : rc;
}

/* ---- leaving ---- */

/*
 * True if all others have left; *more: seconds to wait for them from now on, 0: as before. This
 * process waits for others as long as it gets their heartbeats.
 */
static bool team_all_gone(team_state *t, double *more)
{
    bool all = true;

    pthread_mutex_lock(&t->lock);
    *more = t->lost.code == CKPT_OK && (t->team.rank == 0 || !t->mate[0].gone) ? TEAM_FINISH : 0;
    for (unsigned i = 0; i < t->team.n; i++)
        all = all && (i == t->team.rank || t->mate[i].gone);
    pthread_mutex_unlock(&t->lock);
    return all;
}

/* Wait until they have left, as long as they live; false: they have not. */
static bool team_wait_gone(team_state *t)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    double end = ckpt_post_clock() + TEAM_LOST, more;
    bool all;

    while (!(all = team_all_gone(t, &more)) && ckpt_post_clock() < end) {
        end = more > 0 ? ckpt_post_clock() + more : end;
        (void)nanosleep(&pause, NULL);
    }
    return all;
}

int ckpt_team_leave(int rc, ckpt_err *err)
{
    team_state *t = team_here();
    ckpt_err why = {0};

    if (!t)
        return rc;
    // A process that stopped because of another one learns the reason.
    if (rc == CKPT_OK || ckpt_team_echoes(&t->team, rc))
        rc = ckpt_team_agree(&t->team, rc, err);
    if (rc != CKPT_OK && err && err->code != CKPT_OK)
        why = *err;
    why.code = rc;
    team_say_all(t, TEAM_GONE, 0, &why, sizeof why);
    if (!team_wait_gone(t))
        t->mail.abort(t->mail.ctx, ckpt_err_status(rc != CKPT_OK ? rc : CKPT_EIO),
                      why.text[0] ? why.text : "not all processes have ended");
    team_close(t, TEAM_FINISH);
    return rc;
}
