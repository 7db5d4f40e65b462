/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mail.c: implements the plugin that exchanges messages by MPI.  ckpt loads it if mpirun or srun
 * started it.
 *
 * It is a library of its own, so ckpt starts on machines without MPI.  Only one thread calls it at
 * a time: first and last the main thread, in between the library's thread.
 */
#include <mpi.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/mpi/mail.h"

#define MAIL_TAG 1

typedef struct mail_state {
    MPI_Comm comm;
    MPI_Message message; /* message found by `look` */
    int said;            /* the original stderr, because ranks other than 0 lose theirs */
    char host[256];
    char why[MPI_MAX_ERROR_STRING + 64];
} mail_state;

static mail_state mail_it;

/* True if an MPI function succeeded; otherwise keep its error. */
static int mail_ok(mail_state *m, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;

    if (code == MPI_SUCCESS)
        return 1;
    (void)MPI_Error_string(code, text, &n);
    (void)snprintf(m->why, sizeof m->why, "%s: %s", what, text);
    return 0;
}

static void *mail_send(void *ctx, unsigned to, const void *bytes, size_t n)
{
    mail_state *m = ctx;
    MPI_Request *r = malloc(sizeof *r);

    if (r &&
        mail_ok(m, MPI_Isend(bytes, (int)n, MPI_BYTE, (int)to, MAIL_TAG, m->comm, r), "MPI_Isend"))
        return r;
    free(r);
    return NULL;
}

static int mail_sent(void *ctx, void *ticket)
{
    mail_state *m = ctx;
    MPI_Request *r = ticket;
    int done = 0;

    if (!mail_ok(m, MPI_Test(r, &done, MPI_STATUS_IGNORE), "MPI_Test"))
        return -1;
    if (done)
        free(r);
    return done;
}

static int mail_look(void *ctx, unsigned *from, size_t *n)
{
    mail_state *m = ctx;
    MPI_Status status;
    int some = 0, count = 0;

    if (!mail_ok(m, MPI_Improbe(MPI_ANY_SOURCE, MAIL_TAG, m->comm, &some, &m->message, &status),
                 "MPI_Improbe"))
        return -1;
    if (!some)
        return 0;
    if (!mail_ok(m, MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count"))
        return -1;
    *from = (unsigned)status.MPI_SOURCE;
    *n = (size_t)count;
    return 1;
}

static int mail_take(void *ctx, void *bytes, size_t n)
{
    mail_state *m = ctx;

    return mail_ok(m, MPI_Mrecv(bytes, (int)n, MPI_BYTE, &m->message, MPI_STATUS_IGNORE),
                   "MPI_Mrecv")
               ? 0
               : -1;
}

static const char *mail_why(void *ctx)
{
    return ((mail_state *)ctx)->why;
}

static void mail_abort(void *ctx, int status, const char *why)
{
    mail_state *m = ctx;

    (void)dprintf(m->said, "ckpt: %s\n", why);
    (void)fflush(NULL);
    (void)MPI_Abort(m->comm, status);
    _exit(status);
}

int ckpt_mpi_open(ckpt_mail *out, char *why, size_t room)
{
    mail_state *m = &mail_it;
    int level = 0, rank = 0, n = 0, length = 0;
    char host[MPI_MAX_PROCESSOR_NAME + 1] = "";

    m->said = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    (void)snprintf(why, room, "MPI_Init_thread failed");
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
        return -1;
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (level < MPI_THREAD_SERIALIZED) {
        (void)snprintf(why, room, "this MPI does not support MPI_THREAD_SERIALIZED");
        return -1;
    }
    if (!mail_ok(m, MPI_Comm_dup(MPI_COMM_WORLD, &m->comm), "MPI_Comm_dup") ||
        !mail_ok(m, MPI_Comm_rank(m->comm, &rank), "MPI_Comm_rank") ||
        !mail_ok(m, MPI_Comm_size(m->comm, &n), "MPI_Comm_size") ||
        !mail_ok(m, MPI_Get_processor_name(host, &length), "MPI_Get_processor_name")) {
        (void)snprintf(why, room, "%s", m->why);
        return -1;
    }
    (void)MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    (void)snprintf(m->host, sizeof m->host, "%.255s", host);
    *out = (ckpt_mail){.size = sizeof *out,
                       .rank = (unsigned)rank,
                       .n_ranks = (unsigned)n,
                       .host = m->host,
                       .ctx = m,
                       .send = mail_send,
                       .sent = mail_sent,
                       .look = mail_look,
                       .take = mail_take,
                       .why = mail_why,
                       .abort = mail_abort};
    return 0;
}

void ckpt_mpi_close(void)
{
    (void)MPI_Finalize();
}
