/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives.c: implements the collectives of a team: gather, broadcast, alltoall, and a common
 * result.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/dist/team_inside.h"

/* The kind of a collective; processes that wait for different kinds are out of step. */
enum team_what { TEAM_GATHER = 1, TEAM_SPREAD, TEAM_DEAL, TEAM_VOTE, TEAM_OUTCOME };

void ckpt_blobs_free(ckpt_blobs *b)
{
    while (b->held) {
        ckpt_letter *next = b->held->next;

        ckpt_free(b->held);
        b->held = next;
    }
    ckpt_free(b->at);
    ckpt_free(b->n);
    *b = (ckpt_blobs){0};
}

static int team_blobs(ckpt_blobs *b, unsigned n, ckpt_err *err)
{
    *b = (ckpt_blobs){.ranks = n};
    b->at = ckpt_alloc(n * sizeof(const uint8_t *));
    b->n = ckpt_alloc(n * sizeof *b->n);
    return b->at && b->n ? CKPT_OK : ckpt_fail_memory(err);
}

/* The id of a new collective: the round's next step. */
static uint64_t team_number(team_state *t, enum team_what what)
{
    assert(t->step < TEAM_LAST_STEP);
    return TEAM_ID(t->round, t->step++, what);
}

static int team_send(team_state *t, unsigned to, uint64_t id, const void *p, size_t n,
                     ckpt_err *err)
{
    ckpt_letter *l = ckpt_letter_new(to, TEAM_BLOB, id, n);

    if (!l)
        return n > CKPT_LETTER_MAX
                   ? ckpt_fail(err, CKPT_ELIMIT, "a message of %zu bytes is too large", n)
                   : ckpt_fail_memory(err);
    if (n > 0)
        memcpy(l->bytes, p, n);
    ckpt_post_send(t->post, l);
    return CKPT_OK;
}

/* Receive a process's message of a collective as its blob. */
static int team_take(team_state *t, unsigned from, uint64_t id, ckpt_blobs *out, unsigned place,
                     ckpt_err *err)
{
    ckpt_letter *l = NULL;
    int rc = team_await(t, &t->blobs, from, id, &l, err);

    if (rc != CKPT_OK || !l)
        return rc != CKPT_OK ? rc : CKPT_EIO;
    team_keep(&out->held, l);
    out->at[place] = l->bytes;
    out->n[place] = l->n;
    return CKPT_OK;
}

/* Store this process's bytes as a blob. */
static int team_own(team_state *t, const void *p, size_t n, ckpt_blobs *out, ckpt_err *err)
{
    ckpt_letter *l = ckpt_letter_new(t->team.rank, TEAM_BLOB, 0, n);

    if (!l)
        return ckpt_fail_memory(err);
    if (n > 0)
        memcpy(l->bytes, p, n);
    team_keep(&out->held, l);
    out->at[t->team.rank] = l->bytes;
    out->n[t->team.rank] = n;
    return CKPT_OK;
}

/* Gather: rank 0 gets the bytes of all, including its own. */
static int team_gather(team_state *t, uint64_t id, const void *p, size_t n, ckpt_blobs *out,
                       ckpt_err *err)
{
    int rc = CKPT_OK;

    if (t->team.rank != 0)
        return team_send(t, 0, id, p, n, err);
    rc = team_own(t, p, n, out, err);
    for (unsigned i = 1; rc == CKPT_OK && i < t->team.n; i++)
        rc = team_take(t, i, id, out, i, err);
    return rc;
}

/* Broadcast: all get rank 0's bytes, as its blob. */
static int team_spread(team_state *t, uint64_t id, const void *p, size_t n, ckpt_blobs *out,
                       ckpt_err *err)
{
    int rc = CKPT_OK;

    if (t->team.rank != 0)
        return team_take(t, 0, id, out, 0, err);
    for (unsigned i = 1; rc == CKPT_OK && i < t->team.n; i++)
        rc = team_send(t, i, id, p, n, err);
    return rc == CKPT_OK ? team_own(t, p, n, out, err) : rc;
}

int ckpt_team_tell(ckpt_team *team, const void *bytes, size_t n, ckpt_blobs *out, ckpt_err *err)
{
    team_state *t = (team_state *)team;
    uint64_t id = team_number(t, TEAM_SPREAD);
    int rc = team_blobs(out, team->n, err);

    return rc == CKPT_OK ? team_spread(t, id, bytes, n, out, err) : rc;
}

/* Serialise blobs, each after its length. */
static bool team_pack(ckpt_bytes *b, const ckpt_blobs *blobs)
{
    bool ok = true;

    for (unsigned i = 0; ok && i < blobs->ranks; i++) {
        uint64_t n = blobs->n[i];

        ok = ckpt_bytes_add(b, &n, sizeof n) &&
             (n == 0 || ckpt_bytes_add(b, blobs->at[i], (size_t)n));
    }
    return ok;
}

/* Parse the serialised blobs in blob 0; all blobs then point into its bytes. */
static int team_unpack(ckpt_blobs *blobs, ckpt_err *err)
{
    const uint8_t *p = blobs->at[0];
    size_t left = blobs->n[0];

    for (unsigned i = 0; i < blobs->ranks; i++) {
        uint64_t n = 0;

        if (left < sizeof n)
            return ckpt_fail(err, CKPT_EIO, "a message of rank 0 is too short");
        memcpy(&n, p, sizeof n);
        p += sizeof n;
        left -= sizeof n;
        if (n > left)
            return ckpt_fail(err, CKPT_EIO, "a message of rank 0 is too short");
        blobs->at[i] = p;
        blobs->n[i] = (size_t)n;
        p += n;
        left -= (size_t)n;
    }
    return CKPT_OK;
}

int ckpt_team_all(ckpt_team *team, const void *bytes, size_t n, ckpt_blobs *out, ckpt_err *err)
{
    team_state *t = (team_state *)team;
    ckpt_blobs in = {0};
    ckpt_bytes all = {0};
    uint64_t to = team_number(t, TEAM_GATHER), from = team_number(t, TEAM_SPREAD);
    int rc = team_blobs(out, team->n, err);

    if (rc == CKPT_OK)
        rc = team_blobs(&in, team->n, err);
    if (rc == CKPT_OK)
        rc = team_gather(t, to, bytes, n, &in, err);
    if (rc == CKPT_OK && team->rank == 0 && !team_pack(&all, &in))
        rc = ckpt_fail_memory(err);
    ckpt_blobs_free(&in);
    if (rc == CKPT_OK)
        rc = team_spread(t, from, all.at, all.n, out, err);
    ckpt_vec_free(&all);
    return rc == CKPT_OK ? team_unpack(out, err) : rc;
}

int ckpt_team_deal(ckpt_team *team, const ckpt_bytes *parts, ckpt_blobs *out, ckpt_err *err)
{
    team_state *t = (team_state *)team;
    uint64_t id = team_number(t, TEAM_DEAL);
    int rc = team_blobs(out, team->n, err);

    // Each rank begins with the next one, so that no rank gets all messages at once.
    for (unsigned i = 1; rc == CKPT_OK && i < team->n; i++) {
        unsigned to = (team->rank + i) % team->n;

        rc = team_send(t, to, id, parts[to].at, parts[to].n, err);
    }
    if (rc == CKPT_OK)
        rc = team_own(t, parts[team->rank].at, parts[team->rank].n, out, err);
    for (unsigned i = 0; rc == CKPT_OK && i < team->n; i++) {
        if (i != team->rank)
            rc = team_take(t, i, id, out, i, err);
    }
    return rc;
}

/* A process's result in a message. */
typedef struct team_vote {
    ckpt_err err;
    bool echo; /* the process stopped only because another one had failed */
} team_vote;

/*
 * The result of the lowest rank that failed by itself; else of any rank that failed; NULL: none
 * failed.
 */
static const team_vote *team_judge(const ckpt_blobs *in)
{
    const team_vote *worst = NULL;

    for (unsigned i = 0; i < in->ranks; i++) {
        const team_vote *v = (const team_vote *)(const void *)in->at[i];

        if (in->n[i] == sizeof *v && v->err.code != CKPT_OK &&
            (!worst || (worst->echo && !v->echo)))
            worst = v;
    }
    return worst;
}

/* Send the results to rank 0, and receive the common one in *out. */
static int team_vote_all(team_state *t, const team_vote *mine, ckpt_err *out, ckpt_err *err)
{
    ckpt_blobs in = {0}, told = {0};
    const team_vote *v = NULL;
    int rc = team_blobs(&in, t->team.n, err);

    if (rc == CKPT_OK)
        rc = team_blobs(&told, t->team.n, err);
    if (rc == CKPT_OK)
        rc = team_gather(t, TEAM_ID(t->round, TEAM_LAST_STEP, TEAM_VOTE), mine, sizeof *mine, &in,
                         err);
    if (rc == CKPT_OK && t->team.rank == 0)
        v = team_judge(&in);
    if (rc == CKPT_OK)
        rc = team_spread(t, TEAM_ID(t->round, TEAM_LAST_STEP, TEAM_OUTCOME), v ? &v->err : NULL,
                         v ? sizeof v->err : 0, &told, err);
    if (rc == CKPT_OK && told.n[0] == sizeof *out)
        memcpy(out, told.at[0], sizeof *out);
    out->text[sizeof out->text - 1] = 0;
    ckpt_blobs_free(&in);
    ckpt_blobs_free(&told);
    return rc;
}

int ckpt_team_agree(ckpt_team *team, int rc, ckpt_err *err)
{
    team_state *t = (team_state *)team;
    ckpt_err all = {0}, why = {0};
    team_vote mine;

    memset(&mine, 0, sizeof mine);
    if (rc != CKPT_OK && err && err->code != CKPT_OK)
        mine.err = *err;
    mine.err.code = rc;
    mine.echo = ckpt_team_echoes(team, rc);
    if (rc != CKPT_OK && !mine.echo)
        team_say_all(t, TEAM_STOP, t->round, NULL, 0);
    t->failing = rc != CKPT_OK;
    // This process's own failure explains more than a process that does not answer.
    team->decided = team_vote_all(t, &mine, &all, &why) == CKPT_OK;
    if (!team->decided)
        all = rc != CKPT_OK && !mine.echo ? mine.err : why;
    t->failing = false;
    pthread_mutex_lock(&t->lock);
    t->round++;
    pthread_mutex_unlock(&t->lock);
    t->step = 0;
    if (all.code != CKPT_OK && err)
        *err = all;
    return all.code;
}

/*
 * Report that this process's text differs from rank 0's; quote both from the first different word.
 */
static int team_unlike(const team_state *t, const char *what, const char *mine, const char *other,
                       ckpt_err *err)
{
    size_t at = 0;

    while (mine[at] && mine[at] == other[at])
        at++;
    while (at > 0 && mine[at - 1] != ' ')
        at--;
    return ckpt_fail(err, CKPT_EUSAGE,
                     "rank %u has another %s than rank 0: '%s%.100s' instead of "
                     "'%s%.100s'",
                     t->team.rank, what, at ? "... " : "", mine + at, at ? "... " : "", other + at);
}

int ckpt_team_same(const char *label, const char *text, ckpt_err *err)
{
    ckpt_err_clear(err);
    team_state *t = team_here();
    size_t n = text ? strlen(text) + 1 : 0;
    ckpt_blobs told = {0};
    int rc;

    if (!t)
        return CKPT_OK;
    if (!label || !text)
        return ckpt_fail(err, CKPT_EUSAGE, "no text to compare");
    rc = ckpt_team_tell(&t->team, text, t->team.rank == 0 ? n : 0, &told, err);
    if (rc == CKPT_OK && (told.n[0] == 0 || told.at[0][told.n[0] - 1] != 0))
        rc = ckpt_fail(err, CKPT_EIO, "rank 0 has sent no text");
    if (rc == CKPT_OK && (told.n[0] != n || memcmp(told.at[0], text, n) != 0))
        rc = team_unlike(t, label, text, (const char *)told.at[0], err);
    ckpt_blobs_free(&told);
    return ckpt_team_agree(&t->team, rc, err);
}

int ckpt_team_count(ckpt_team *team, ckpt_err *err)
{
    team_state *t = (team_state *)team;
    uint64_t mine[2];
    ckpt_blobs all = {0};
    int rc;

    ckpt_post_count(t->post, &mine[0], &mine[1]);
    rc = ckpt_team_all(team, mine, sizeof mine, &all, err);
    pthread_mutex_lock(&t->lock);
    for (unsigned i = 0; rc == CKPT_OK && i < team->n; i++) {
        if (all.n[i] != sizeof mine)
            continue;
        memcpy(&t->mate[i].n_letters, all.at[i], sizeof mine[0]);
        memcpy(&t->mate[i].n_sent, all.at[i] + sizeof mine[0], sizeof mine[1]);
    }
    pthread_mutex_unlock(&t->lock);
    ckpt_blobs_free(&all);
    return rc;
}
