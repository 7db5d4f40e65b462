/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.c: sends and receives messages in one thread, with queues of those that wait and those
 * under way.
 */
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/dist/transport.h"

enum {
    POST_EAGER = 64, /* polls without a pause after some progress */
    /* polls with a short pause after that, because questions come in series */
    POST_SOON = 400,
    /* nanoseconds of such a pause, or of one while a message is under way */
    POST_SHORT = 50 * 1000,
    POST_LONG = 1000 * 1000,      /* nanoseconds of other pauses */
    POST_ROOM = 64 * 1024 * 1024, /* limit of the bytes that wait */
};

#define POST_TICK 0.1 /* seconds */

/* The header of a message. */
typedef struct post_head {
    uint32_t kind, check;
    uint64_t id;
} post_head;

/* A message in memory has room for its header, so that both go out in one piece. */
typedef struct post_parcel {
    ckpt_letter letter; /* first, so that a pointer to it is a pointer to post_parcel */
    void *ticket;
    post_head head;
    uint8_t bytes[];
} post_parcel;

struct ckpt_post {
    ckpt_mail mail;
    ckpt_post_calls calls;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t room;
    ckpt_letter *first, **last; /* queue of messages to send */
    ckpt_letter *going;         /* messages being sent; only the thread uses this list */
    size_t n_waiting;           /* bytes of all messages in both lists */
    uint64_t n_letters, n_bytes;
    double end; /* time at which the thread ends at the latest; 0: not closing */
    bool broken;
};

/* True in a post's own thread, which must not wait for itself. */
static _Thread_local bool post_own;

double ckpt_post_clock(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

ckpt_letter *ckpt_letter_new(unsigned peer, uint32_t kind, uint64_t id, size_t n)
{
    post_parcel *p = n <= CKPT_LETTER_MAX ? ckpt_alloc(sizeof *p + n) : NULL;

    if (!p)
        return NULL;
    p->letter = (ckpt_letter){.peer = peer, .kind = kind, .id = id, .n = n, .bytes = p->bytes};
    p->head = (post_head){.kind = kind, .check = (uint32_t)n, .id = id};
    return &p->letter;
}

static void post_broken(ckpt_post *p, const char *why)
{
    if (!p->broken)
        p->calls.broken(p->calls.ctx, why);
    pthread_mutex_lock(&p->lock);
    p->broken = true;
    pthread_cond_broadcast(&p->room);
    pthread_mutex_unlock(&p->lock);
}

/* ---- sending ---- */

void ckpt_post_send(ckpt_post *p, ckpt_letter *letter)
{
    pthread_mutex_lock(&p->lock);
    while (!post_own && !p->broken && p->n_waiting > POST_ROOM)
        pthread_cond_wait(&p->room, &p->lock);
    letter->next = NULL;
    *p->last = letter;
    p->last = &letter->next;
    p->n_waiting += letter->n;
    pthread_mutex_unlock(&p->lock);
}

/* Take the queue of messages to send. */
static ckpt_letter *post_fetch(ckpt_post *p)
{
    ckpt_letter *list;

    pthread_mutex_lock(&p->lock);
    list = p->first;
    p->first = NULL;
    p->last = &p->first;
    pthread_mutex_unlock(&p->lock);
    return list;
}

/* Begin to send the waiting messages; true if there were any. */
static bool post_start(ckpt_post *p)
{
    ckpt_letter *list = post_fetch(p), *next;
    bool some = list != NULL;

    for (; list; list = next) {
        post_parcel *parcel = (post_parcel *)list;

        next = list->next;
        parcel->ticket =
            p->mail.send(p->mail.ctx, list->peer, &parcel->head, sizeof parcel->head + list->n);
        if (!parcel->ticket)
            post_broken(p, p->mail.why(p->mail.ctx));
        pthread_mutex_lock(&p->lock);
        p->n_letters++;
        p->n_bytes += list->n;
        pthread_mutex_unlock(&p->lock);
        list->next = p->going;
        p->going = list;
    }
    return some;
}

/* Free the messages that were sent; true if there were any. */
static bool post_reap(ckpt_post *p)
{
    size_t n = 0;

    for (ckpt_letter **at = &p->going; *at;) {
        ckpt_letter *l = *at;
        post_parcel *parcel = (post_parcel *)l;
        int done = parcel->ticket ? p->mail.sent(p->mail.ctx, parcel->ticket) : 1;

        if (done < 0)
            post_broken(p, p->mail.why(p->mail.ctx));
        if (done == 0) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        n += l->n;
        ckpt_free(l);
    }
    if (n > 0) {
        pthread_mutex_lock(&p->lock);
        p->n_waiting -= n;
        pthread_cond_broadcast(&p->room);
        pthread_mutex_unlock(&p->lock);
    }
    return n > 0;
}

/* ---- receiving ---- */

/* Receive one message, if there is one; true then. */
static bool post_receive(ckpt_post *p)
{
    unsigned from = 0;
    size_t n = 0;
    int some = p->mail.look(p->mail.ctx, &from, &n);
    ckpt_letter *l;
    post_parcel *parcel;

    if (some == 0)
        return false;
    l = some > 0 && n >= sizeof(post_head) ? ckpt_letter_new(from, 0, 0, n - sizeof(post_head))
                                           : NULL;
    parcel = (post_parcel *)l;
    if (!l || p->mail.take(p->mail.ctx, &parcel->head, n) != 0 ||
        parcel->head.check != (uint32_t)l->n || from >= p->mail.n_ranks) {
        post_broken(p, some < 0 ? p->mail.why(p->mail.ctx) : "a message could not be received");
        ckpt_free(l);
        return false;
    }
    l->kind = parcel->head.kind;
    l->id = parcel->head.id;
    p->calls.deliver(p->calls.ctx, l);
    return true;
}

/* ---- the thread ---- */

/* True until the post is closed, and then until everything is sent or the time limit is reached. */
static bool post_goes_on(ckpt_post *p)
{
    bool on;

    pthread_mutex_lock(&p->lock);
    on = !p->broken && (p->end == 0 || ((p->first || p->going) && ckpt_post_clock() < p->end));
    pthread_mutex_unlock(&p->lock);
    return on;
}

static void *post_main(void *arg)
{
    ckpt_post *p = arg;
    double told = 0;

    post_own = true;
    for (unsigned quiet = 0; post_goes_on(p);) {
        bool soon = p->going || quiet < POST_EAGER + POST_SOON;
        struct timespec pause = {.tv_nsec = soon ? POST_SHORT : POST_LONG};
        bool moved = post_start(p);

        moved = post_receive(p) || moved;
        moved = post_reap(p) || moved;
        quiet = moved ? 0 : quiet + 1;
        if (ckpt_post_clock() - told >= POST_TICK) {
            told = ckpt_post_clock();
            p->calls.tick(p->calls.ctx);
        }
        if (quiet > POST_EAGER)
            (void)nanosleep(&pause, NULL);
        else if (quiet > 0)
            (void)sched_yield();
    }
    return NULL;
}

int ckpt_post_open(ckpt_post **out, const ckpt_mail *mail, const ckpt_post_calls *calls,
                   ckpt_err *err)
{
    assert(out && mail && calls);
    ckpt_post *p = ckpt_alloc(sizeof *p);

    *out = NULL;
    if (!p)
        return ckpt_fail_memory(err);
    p->mail = *mail;
    p->calls = *calls;
    p->last = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->room, NULL);
    if (pthread_create(&p->thread, NULL, post_main, p) != 0) {
        ckpt_free(p);
        return ckpt_fail(err, CKPT_ELIMIT, "cannot start a thread for messages");
    }
    *out = p;
    return CKPT_OK;
}

void ckpt_post_count(ckpt_post *p, uint64_t *n_letters, uint64_t *n_bytes)
{
    pthread_mutex_lock(&p->lock);
    *n_letters = p->n_letters;
    *n_bytes = p->n_bytes;
    pthread_mutex_unlock(&p->lock);
}

/* Free a list of messages. */
static void post_free(ckpt_letter *list)
{
    while (list) {
        ckpt_letter *next = list->next;

        ckpt_free(list);
        list = next;
    }
}

void ckpt_post_close(ckpt_post *p, double seconds)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->end = ckpt_post_clock() + seconds;
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    post_free(p->first);
    // The transport may still read messages under way, so they are left until the process ends.
    if (!p->going)
        pthread_mutex_destroy(&p->lock);
    if (!p->going)
        ckpt_free(p);
}
