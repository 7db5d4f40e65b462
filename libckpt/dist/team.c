/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.c: handles incoming messages and questions.
 */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "libckpt/dist/team_inside.h"

#define TEAM_PAUSE_NS 100000000 /* nanoseconds of one wait */

static team_state *team_it;
static _Atomic unsigned team_aside; /* nesting of ckpt_team_alone */

ckpt_team *ckpt_team_now(void)
{
    return team_it && atomic_load(&team_aside) == 0 ? &team_it->team : NULL;
}

ckpt_team *ckpt_team_any(void)
{
    return team_it ? &team_it->team : NULL;
}

unsigned ckpt_team_first(const ckpt_team *t, unsigned node)
{
    unsigned r = 0;

    while (t->node[r] != node)
        r++;
    return r;
}

void ckpt_team_alone(bool alone)
{
    if (alone)
        (void)atomic_fetch_add(&team_aside, 1);
    else
        (void)atomic_fetch_sub(&team_aside, 1);
}

void ckpt_team_local(bool local)
{
    if (team_it)
        team_it->team.local = local;
}

/* Bytes of a machine's name that are compared: up to the first dot, unless `whole` is set. */
static size_t team_name_length(const char *name, bool whole)
{
    return whole ? strlen(name) : strcspn(name, ".");
}

/* Find the machine of a name; several machines that match only up to the first dot are an error. */
static int team_find_host(const ckpt_team *t, const char *name, uint32_t *node, ckpt_err *err)
{
    for (unsigned whole = 2; whole-- > 0;) {
        unsigned n = 0;

        for (uint32_t k = 0; k < t->n_nodes; k++) {
            size_t length = team_name_length(t->host[k], whole);

            if (length != team_name_length(name, whole) || memcmp(t->host[k], name, length) != 0)
                continue;
            *node = k;
            n++;
        }
        if (n == 1)
            return CKPT_OK;
        if (n > 1)
            return ckpt_fail(err, CKPT_EUSAGE, "%u machines are called %.200s: write the names out",
                             n, name);
    }
    return ckpt_fail(err, CKPT_EMISSING,
                     "no process is on a machine called %.200s; that of rank 0 is called %s", name,
                     t->host[0]);
}

int ckpt_team_spread(const char *const *host, size_t n, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_team *t = team_it ? &team_it->team : NULL;
    int rc = CKPT_OK;

    if (!t)
        return CKPT_OK;
    ckpt_free(t->place);
    t->place = host ? ckpt_alloc((n + 1) * sizeof *t->place) : NULL;
    t->n_places = host ? n : 0;
    if (host && !t->place)
        rc = ckpt_fail_memory(err);
    for (size_t i = 0; rc == CKPT_OK && i < t->n_places; i++)
        rc = team_find_host(t, host[i], &t->place[i], err);
    t->spread = rc == CKPT_OK;
    return rc;
}

unsigned ckpt_team_size(void)
{
    return team_it ? team_it->team.n : 1;
}

unsigned ckpt_team_rank(void)
{
    return team_it ? team_it->team.rank : 0;
}

/* ---- failures ---- */

void team_lose(team_state *t, const ckpt_err *why)
{
    if (t->lost.code == CKPT_OK) {
        t->lost = *why;
        t->lost_at = ckpt_post_clock();
    }
    pthread_cond_broadcast(&t->news);
}

/*
 * Fail if there is a reason to stop waiting; the caller holds the lock. A process that has left
 * with a failure still answers questions until all have left, because the others may fail for the
 * same reason and report it themselves.
 */
static int team_failed(const team_state *t, bool together, ckpt_err *err)
{
    const ckpt_err *why = t->lost.code != CKPT_OK ? &t->lost : &t->left;

    return why->code == CKPT_OK || (why == &t->left && !together)
               ? CKPT_OK
               : ckpt_fail(err, why->code, "%s", why->text);
}

/* Fail if another process has failed in this round; the caller holds the lock. */
static int team_stopped(const team_state *t, ckpt_err *err)
{
    return t->stopped > t->round ? ckpt_fail(err, CKPT_ECANCELED, "another process has failed")
                                 : CKPT_OK;
}

int ckpt_team_check(ckpt_team *team, ckpt_err *err)
{
    team_state *t = (team_state *)team;
    int rc;

    pthread_mutex_lock(&t->lock);
    rc = team_failed(t, true, err);
    if (rc == CKPT_OK)
        rc = team_stopped(t, err);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

bool ckpt_team_echoes(ckpt_team *team, int rc)
{
    return rc == CKPT_ECANCELED && ckpt_team_check(team, NULL) == CKPT_ECANCELED;
}

/* ---- the transport's thread ---- */

void team_say(team_state *t, unsigned to, enum team_kind kind, uint64_t id, const void *p, size_t n)
{
    ckpt_letter *l = ckpt_letter_new(to, kind, id, n);

    if (!l)
        return;
    if (n > 0)
        memcpy(l->bytes, p, n);
    ckpt_post_send(t->post, l);
}

void team_say_all(team_state *t, enum team_kind kind, uint64_t id, const void *p, size_t n)
{
    for (unsigned i = 0; i < t->team.n; i++) {
        if (i != t->team.rank)
            team_say(t, i, kind, id, p, n);
    }
}

void team_keep(ckpt_letter **list, ckpt_letter *l)
{
    l->next = *list;
    *list = l;
}

/* A process has left with a result: all processes that still wait for it fail with that. */
static void team_gone(team_state *t, const ckpt_letter *l)
{
    ckpt_err why = {0};

    t->mate[l->peer].gone = true;
    if (l->n == sizeof why)
        memcpy(&why, l->bytes, sizeof why);
    why.text[sizeof why.text - 1] = 0;
    if (t->left.code == CKPT_OK)
        t->left = why;
}

static void team_deliver(void *ctx, ckpt_letter *l)
{
    team_state *t = ctx;
    bool kept = true;

    pthread_mutex_lock(&t->lock);
    t->mate[l->peer].heard = ckpt_post_clock();
    switch (l->kind) {
    case TEAM_BLOB:
        team_keep(&t->blobs, l);
        break;
    case TEAM_ANSWER:
        team_keep(&t->answers, l);
        break;
    case TEAM_ASK:
    case TEAM_NOTE:
        l->next = NULL;
        *t->asked_end = l;
        t->asked_end = &l->next;
        break;
    default:
        kept = false;
        if (l->kind == TEAM_BEAT && l->n == sizeof t->mate->done)
            memcpy(&t->mate[l->peer].done, l->bytes, l->n);
        else if (l->kind == TEAM_STOP && l->id >= t->stopped)
            t->stopped = l->id + 1;
        else if (l->kind == TEAM_GONE)
            team_gone(t, l);
    }
    pthread_cond_broadcast(&t->news);
    pthread_mutex_unlock(&t->lock);
    if (!kept)
        ckpt_free(l);
}

static void team_broken(void *ctx, const char *why)
{
    team_state *t = ctx;
    ckpt_err err = {0};

    (void)ckpt_fail(&err, CKPT_EIO, "the other processes cannot be reached: %.300s", why);
    pthread_mutex_lock(&t->lock);
    team_lose(t, &err);
    pthread_mutex_unlock(&t->lock);
}

/* ---- waiting ---- */

/* Take the message with this id and sender out of a list. NULL: there is none. */
static ckpt_letter *team_find(ckpt_letter **list, unsigned from, uint64_t id)
{
    for (ckpt_letter **at = list; *at; at = &(*at)->next) {
        ckpt_letter *l = *at;

        if (l->peer == from && l->id == id) {
            *at = l->next;
            return l;
        }
    }
    return NULL;
}

/* Wait for news, with the lock held, and call the wait function now and then. */
static void team_pause(team_state *t)
{
    ckpt_team_wait_fn fn = t->waits;
    void *ctx = t->waits_ctx;
    struct timespec until = {0};

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += TEAM_PAUSE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&t->news, &t->lock, &until) == 0 || !fn)
        return;
    pthread_mutex_unlock(&t->lock);
    fn(ctx);
    pthread_mutex_lock(&t->lock);
}

/*
 * True if a process takes part in another collective than this one; the caller holds the lock.
 * Messages of one process come in order, so another message of this round shows it. Messages of a
 * failed round may be left over and do not count.
 */
static bool team_apart(const team_state *t, unsigned from, uint64_t id)
{
    bool left_over = t->failing || t->stopped > t->round;

    for (const ckpt_letter *l = t->blobs; l; l = l->next) {
        if (l->peer == from && l->id != id && TEAM_ROUND_OF(l->id) == TEAM_ROUND_OF(id) &&
            !left_over)
            return true;
    }
    return false;
}

/*
 * Fail if it is useless to wait for a message of a collective any longer; the caller holds the
 * lock.
 */
static int team_vain(team_state *t, unsigned from, uint64_t id, ckpt_err *err)
{
    int rc = team_failed(t, true, err);

    // All processes reach the agreement that ends a round, also those that have failed.
    if (rc == CKPT_OK && TEAM_STEP_OF(id) != TEAM_LAST_STEP)
        rc = team_stopped(t, err);
    if (rc != CKPT_OK || !team_apart(t, from, id))
        return rc;
    // No more agreement is possible: this process leaves, and the others learn of it.
    (void)ckpt_fail(
        &t->left, CKPT_EIO,
        "rank %u is at another step than rank %u: check that the same command started all ranks",
        from, t->team.rank);
    return team_failed(t, true, err);
}

int team_await(team_state *t, ckpt_letter **list, unsigned from, uint64_t id, ckpt_letter **out,
               ckpt_err *err)
{
    int rc = CKPT_OK;

    pthread_mutex_lock(&t->lock);
    while (!(*out = team_find(list, from, id)) && rc == CKPT_OK) {
        rc = list == &t->answers ? team_failed(t, false, err) : team_vain(t, from, id, err);
        if (rc == CKPT_OK)
            team_pause(t);
    }
    pthread_mutex_unlock(&t->lock);
    return rc;
}

/* ---- questions ---- */

/* Send a question or a note, and wait for the answer. */
static int team_call(team_state *t, ckpt_letter *l, ckpt_letter **out, ckpt_err *err)
{
    unsigned rank = l->peer;
    uint64_t id = l->id;
    ckpt_err told;
    int rc;

    ckpt_post_send(t->post, l);
    rc = team_await(t, &t->answers, rank, id, out, err);
    if (rc != CKPT_OK)
        return rc;
    l = *out;
    if (l->n < sizeof told) {
        ckpt_free(l);
        return ckpt_fail(err, CKPT_EIO, "the answer of rank %u is too short", rank);
    }
    memcpy(&told, l->bytes, sizeof told);
    l->bytes += sizeof told;
    l->n -= sizeof told;
    told.text[sizeof told.text - 1] = 0;
    if (told.code == CKPT_OK)
        return CKPT_OK;
    ckpt_free(l);
    *out = NULL;
    if (err && err->code == CKPT_OK)
        *err = told;
    return told.code;
}

/* Make a message that needs an answer, with a new number. */
static ckpt_letter *team_question(team_state *t, unsigned rank, enum team_kind kind,
                                  const void *bytes, size_t n)
{
    ckpt_letter *l;
    uint64_t id;

    pthread_mutex_lock(&t->lock);
    id = t->next_ask++;
    pthread_mutex_unlock(&t->lock);
    l = ckpt_letter_new(rank, kind, id, n);
    if (l && n > 0)
        memcpy(l->bytes, bytes, n);
    return l;
}

int ckpt_team_ask(ckpt_team *team, unsigned rank, const void *bytes, size_t n, ckpt_letter **out,
                  ckpt_err *err)
{
    team_state *t = (team_state *)team;
    ckpt_letter *l = team_question(t, rank, TEAM_ASK, bytes, n);

    return l ? team_call(t, l, out, err) : ckpt_fail_memory(err);
}

int ckpt_team_note(ckpt_team *team, unsigned rank, const void *bytes, size_t n, ckpt_err *err)
{
    team_state *t = (team_state *)team;
    ckpt_letter *l = team_question(t, rank, TEAM_NOTE, bytes, n), *answer = NULL;
    int rc = l ? team_call(t, l, &answer, err) : ckpt_fail_memory(err);

    ckpt_free(answer);
    return rc;
}

void ckpt_team_on_note(ckpt_team *team, ckpt_team_note_fn fn, void *ctx)
{
    team_state *t = (team_state *)team;

    pthread_mutex_lock(&t->noting);
    t->note = fn;
    t->note_ctx = ctx;
    pthread_mutex_unlock(&t->noting);
}

/* Pass a note to the registered function. */
static int team_take_note(team_state *t, const ckpt_letter *l, ckpt_err *err)
{
    int rc;

    pthread_mutex_lock(&t->noting);
    rc = t->note ? t->note(t->note_ctx, l->bytes, l->n, err)
                 : ckpt_fail(err, CKPT_EIO, "rank %u does not accept journal messages now",
                             t->team.rank);
    pthread_mutex_unlock(&t->noting);
    return rc;
}

static int team_answer(team_state *t, const ckpt_letter *l, ckpt_bytes *answer, ckpt_err *err)
{
    if (!ckpt_bytes_add(answer, NULL, sizeof *err))
        return ckpt_fail_memory(err);
    return l->kind == TEAM_NOTE ? team_take_note(t, l, err) : t->opts.answer(l, answer, err);
}

/* Wait for the next question; NULL: the answering thread must end. */
static ckpt_letter *team_asked(team_state *t)
{
    ckpt_letter *l;

    pthread_mutex_lock(&t->lock);
    while (!t->asked && !t->closing)
        pthread_cond_wait(&t->news, &t->lock);
    l = t->asked;
    if (l)
        t->asked = l->next;
    if (!t->asked)
        t->asked_end = &t->asked;
    pthread_mutex_unlock(&t->lock);
    return l;
}

/* Answer a question. An answer is always sent, because the sender waits for it. */
static void team_reply(team_state *t, const ckpt_letter *l)
{
    // Allocate the failure message first, so that a lack of memory can be reported.
    ckpt_letter *yes = NULL, *no = ckpt_letter_new(l->peer, TEAM_ANSWER, l->id, sizeof(ckpt_err));
    ckpt_bytes answer = {0};
    ckpt_err err = {0};
    int rc = no ? team_answer(t, l, &answer, &err) : ckpt_fail_memory(&err);

    if (rc == CKPT_OK)
        yes = ckpt_letter_new(l->peer, TEAM_ANSWER, l->id, answer.n);
    if (rc == CKPT_OK && !yes)
        rc = answer.n > CKPT_LETTER_MAX
                 ? ckpt_fail(&err, CKPT_ELIMIT, "a message of %zu bytes is too large", answer.n)
                 : ckpt_fail_memory(&err);
    err.code = rc;
    if (yes)
        memcpy(yes->bytes, answer.at, answer.n);
    else if (no)
        memcpy(no->bytes, &err, sizeof err);
    if (yes || no) {
        ckpt_post_send(t->post, yes ? yes : no);
    } else {
        pthread_mutex_lock(&t->lock);
        team_lose(t, &err);
        pthread_mutex_unlock(&t->lock);
    }
    if (yes)
        ckpt_free(no);
    ckpt_vec_free(&answer);
}

static void *team_clerk(void *arg)
{
    team_state *t = arg;
    ckpt_letter *l;

    while ((l = team_asked(t))) {
        team_reply(t, l);
        ckpt_free(l);
    }
    return NULL;
}

/* ---- progress ---- */

void ckpt_team_done(ckpt_team *team, uint64_t n_bytes, uint64_t *all)
{
    team_state *t = (team_state *)team;

    atomic_store(&t->done, n_bytes);
    *all = n_bytes;
    pthread_mutex_lock(&t->lock);
    for (unsigned i = 0; i < team->n; i++)
        *all += i == team->rank ? 0 : t->mate[i].done;
    pthread_mutex_unlock(&t->lock);
}

void ckpt_team_on_wait(ckpt_team *team, ckpt_team_wait_fn fn, void *ctx)
{
    team_state *t = (team_state *)team;

    pthread_mutex_lock(&t->lock);
    t->waits = fn;
    t->waits_ctx = ctx;
    pthread_mutex_unlock(&t->lock);
}

void ckpt_team_begin(ckpt_team *team, const uint64_t *share, const uint64_t *far)
{
    team_state *t = (team_state *)team;

    atomic_store(&t->done, 0);
    pthread_mutex_lock(&t->lock);
    for (unsigned i = 0; i < team->n; i++) {
        t->mate[i].n_share = share[i];
        t->mate[i].n_far += far[i];
        t->mate[i].done = 0;
    }
    pthread_mutex_unlock(&t->lock);
}

bool ckpt_team_member_at(unsigned rank, ckpt_team_member *out)
{
    team_state *t = team_it;
    const team_mate *m;

    if (!t || rank >= t->team.n)
        return false;
    m = &t->mate[rank];
    pthread_mutex_lock(&t->lock);
    *out = (ckpt_team_member){.host = t->team.host[t->team.node[rank]],
                              .n_share = m->n_share,
                              .n_done = rank == t->team.rank ? atomic_load(&t->done) : m->done,
                              .n_letters = m->n_letters,
                              .n_sent = m->n_sent,
                              .n_far = m->n_far};
    pthread_mutex_unlock(&t->lock);
    return true;
}

/* ---- the threads ---- */

team_state *team_here(void)
{
    return team_it;
}

int team_open(team_state *t, void (*tick)(void *ctx), ckpt_err *err)
{
    const ckpt_post_calls calls = {team_deliver, tick, team_broken, t};
    int rc = ckpt_post_open(&t->post, &t->mail, &calls, err);

    if (rc != CKPT_OK)
        return rc;
    team_it = t;
    if (pthread_create(&t->clerk, NULL, team_clerk, t) != 0)
        return ckpt_fail(err, CKPT_ELIMIT, "cannot start a thread for requests");
    t->has_clerk = true;
    return CKPT_OK;
}

void team_close(team_state *t, double seconds)
{
    pthread_mutex_lock(&t->lock);
    t->closing = true;
    pthread_cond_broadcast(&t->news);
    pthread_mutex_unlock(&t->lock);
    if (t->has_clerk)
        pthread_join(t->clerk, NULL);
    ckpt_post_close(t->post, seconds);
    team_it = NULL;
}
