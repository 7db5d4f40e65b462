/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help_mail.h: for tests: processes that are forked, and letters between them through memory that
 * they share.
 */
#ifndef TESTS_UNIT_COPY_HELP_MAIL_H
#define TESTS_UNIT_COPY_HELP_MAIL_H

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libckpt/include/ckpt_team.h"
#include "tests/unit/unit.h"

enum { MAIL_MAX = 4, MAIL_ROOM = 4 << 20, MAIL_ABORTED = 42 };

/* What was sent to a process and not taken yet: letters one behind the other. */
typedef struct mail_box {
    pthread_mutex_t lock;
    size_t n;
    uint8_t bytes[MAIL_ROOM];
} mail_box;

/* What stands before the bytes of a letter. */
typedef struct mail_envelope {
    size_t n;
    unsigned from;
} mail_envelope;

/* A letter that was not delivered yet, or nobody has asked about since. */
typedef struct mail_ticket {
    struct mail_ticket *next;
    unsigned to;
    const void *bytes;
    size_t n;
    int done;
} mail_ticket;

static mail_box *mail_boxes;
static unsigned mail_me, mail_n;
static mail_ticket *mail_first, **mail_last = &mail_first; /* to be delivered, in order */

static inline void mail_lock(mail_box *b)
{
    // its owner may have died
    if (pthread_mutex_lock(&b->lock) != 0)
        (void)pthread_mutex_consistent(&b->lock);
}

static inline void *mail_send(void *ctx, unsigned to, const void *bytes, size_t n)
{
    mail_ticket *t = malloc(sizeof *t);

    (void)ctx;
    if (!t)
        return NULL;
    *t = (mail_ticket){.to = to, .bytes = bytes, .n = n};
    *mail_last = t;
    mail_last = &t->next;
    return t;
}

/* The first that waits into its box; 0: there is no room. */
static inline int mail_deliver(void)
{
    mail_ticket *t = mail_first;
    mail_box *b = &mail_boxes[t->to];
    const mail_envelope e = {t->n, mail_me};

    mail_lock(b);
    if (b->n + sizeof e + t->n <= MAIL_ROOM) {
        memcpy(b->bytes + b->n, &e, sizeof e);
        memcpy(b->bytes + b->n + sizeof e, t->bytes, t->n);
        b->n += sizeof e + t->n;
        t->done = 1;
        mail_first = t->next;
        mail_last = mail_first ? mail_last : &mail_first;
    }
    pthread_mutex_unlock(&b->lock);
    return t->done;
}

static inline int mail_sent(void *ctx, void *p)
{
    mail_ticket *t = p;
    int done;

    (void)ctx;
    while (!t->done && mail_deliver())
        continue;
    done = t->done;
    if (done)
        free(t);
    return done;
}

static inline int mail_look(void *ctx, unsigned *from, size_t *n)
{
    mail_box *b = &mail_boxes[mail_me];
    mail_envelope e = {0};
    int some;

    (void)ctx;
    mail_lock(b);
    some = b->n > 0;
    if (some)
        memcpy(&e, b->bytes, sizeof e);
    pthread_mutex_unlock(&b->lock);
    *from = e.from;
    *n = e.n;
    return some;
}

static inline int mail_take(void *ctx, void *bytes, size_t n)
{
    mail_box *b = &mail_boxes[mail_me];
    size_t used = sizeof(mail_envelope) + n;

    (void)ctx;
    mail_lock(b);
    memcpy(bytes, b->bytes + sizeof(mail_envelope), n);
    memmove(b->bytes, b->bytes + used, b->n - used);
    b->n -= used;
    pthread_mutex_unlock(&b->lock);
    return 0;
}

static inline const char *mail_why(void *ctx)
{
    (void)ctx;
    return "no reason";
}

static inline void mail_abort(void *ctx, int status, const char *why)
{
    (void)ctx;
    (void)status;
    (void)why;
    _exit(MAIL_ABORTED);
}

/* The mail of this process; ranks 0 and 1 are on one machine. */
static inline ckpt_mail mail_mine(void)
{
    return (ckpt_mail){.size = sizeof(ckpt_mail),
                       .rank = mail_me,
                       .n_ranks = mail_n,
                       .host = mail_me < 2 ? "first" : "second",
                       .send = mail_send,
                       .sent = mail_sent,
                       .look = mail_look,
                       .take = mail_take,
                       .why = mail_why,
                       .abort = mail_abort};
}

/* Run n processes, each of which exits with what fn returns; status[r] is what rank r ended with. */
static inline void mail_run(unsigned n, int (*fn)(void *ctx), void *ctx, int *status)
{
    pthread_mutexattr_t attr;
    pid_t pid[MAIL_MAX];

    mail_n = n;
    mail_boxes = mmap(NULL, MAIL_MAX * sizeof *mail_boxes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(mail_boxes != MAP_FAILED);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (unsigned i = 0; i < n; i++)
        pthread_mutex_init(&mail_boxes[i].lock, &attr);
    (void)fflush(NULL);
    for (mail_me = 0; mail_me < n; mail_me++) {
        pid[mail_me] = fork();
        assert_true(pid[mail_me] >= 0);
        if (pid[mail_me] == 0) {
            (void)alarm(60);
            _exit(fn(ctx));
        }
    }
    for (unsigned i = 0; i < n; i++) {
        int how = 0;

        assert_int_equal(waitpid(pid[i], &how, 0), pid[i]);
        status[i] = WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
    }
    assert_int_equal(munmap(mail_boxes, MAIL_MAX * sizeof *mail_boxes), 0);
}

#endif
