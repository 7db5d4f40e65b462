/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounter.c: both ends: what the reader asks for by a letter, and the process that does it.
 */
#define _GNU_SOURCE // pipe2, major, minor
#include "tools/mount/mounter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "tools/cli/out.h"
#include "tools/cli/plugin.h"

/* The letters. */
enum { MTR_ATTACH = 'a', MTR_SERVING = 's', MTR_UNMOUNT = 'u' };

/* What the kernel reads ahead for who reads in order, where we may say so; its own is 128. */
#define MTR_AHEAD "1024"

enum { MTR_TEXT = 400, MTR_LINE = 1024 };

struct mounter {
    const mount_plugin *plugin;
    mounter_opts opts;
    pid_t pid;
    int socket; /* to the process */
    int null;   /* /dev/null, which cannot be opened later */
    int log;    /* daemon: where stderr goes; else -1 */
};

/* The answer to MTR_ATTACH; the device goes along. */
typedef struct mtr_answer {
    int rc;
    char text[MTR_TEXT];
} mtr_answer;

/* The process's own state. */
typedef struct mtr_state {
    const mounter *m;
    int socket, log, ready; /* -1: none; ready: who started a daemon waits for a byte */
    void *handle;           /* NULL: nothing is mounted */
    bool made;              /* the folder was made for it */
    bool seen;              /* its device number is known: */
    dev_t device;
    char line[MTR_LINE]; /* of the log, so far */
    size_t n_line;
} mtr_state;

/* ---- the process ---- */

/* Some mount has this device number.  Paths would say less: other things may be mounted there. */
static bool mtr_mounted(dev_t device)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    unsigned ma = 0, mi = 0;
    char *line = NULL;
    size_t room = 0;
    bool found = !f;

    while (!found && getline(&line, &room, f) > 0)
        found = sscanf(line, "%*d %*d %u:%u ", &ma, &mi) == 2 && makedev(ma, mi) == device;
    free(line);
    if (f)
        (void)fclose(f);
    return found;
}

static int mtr_send(const mtr_state *s, const mtr_answer *answer, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)answer, .iov_len = sizeof *answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(s->socket, &message, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static void mtr_unmount(mtr_state *s)
{
    if (s->handle && (!s->seen || mtr_mounted(s->device)))
        s->m->plugin->detach(s->handle);
    s->handle = NULL;
    if (s->made)
        (void)rmdir(s->m->opts.dir);
}

static void mtr_attach(mtr_state *s)
{
    const mounter_opts *o = &s->m->opts;
    mtr_answer answer = {.rc = CKPT_OK};
    int fd = -1;

    s->made = mkdir(o->dir, 0755) == 0;
    s->handle =
        s->m->plugin->attach(o->dir, o->from, o->allow_other, &fd, answer.text, sizeof answer.text);
    if (!s->handle)
        answer.rc = CKPT_EIO;
    if (mtr_send(s, &answer, fd) != 0 || !s->handle)
        mtr_unmount(s);
    if (s->handle)
        s->m->plugin->part(s->handle);
}

/* The first request, which waits until it is answered; then who waits is told. */
static void mtr_serving(mtr_state *s)
{
    char path[64];
    struct stat st;
    int fd;

    s->seen = stat(s->m->opts.dir, &st) == 0;
    s->device = s->seen ? st.st_dev : 0;
    if (!s->seen)
        return;
    (void)snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev),
                   minor(st.st_dev));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        // users other than root cannot, and do with less
        if (write(fd, MTR_AHEAD, sizeof MTR_AHEAD - 1) < 0)
            fd = fd + 0;
        (void)close(fd);
    }
    if (s->ready < 0)
        return;
    if (write(s->ready, "", 1) != 1)
        syslog(LOG_WARNING, "%s: who started this is gone", s->m->opts.dir);
    (void)close(s->ready);
    s->ready = -1;
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        (void)dup2(s->m->null, fd);
}

/* Messages of a daemon, a line each. */
static void mtr_log(mtr_state *s)
{
    char buf[512];
    ssize_t n = read(s->log, buf, sizeof buf);

    for (ssize_t i = 0; i < n; i++) {
        if (buf[i] != '\n' && s->n_line + 1 < sizeof s->line) {
            s->line[s->n_line++] = buf[i];
            continue;
        }
        s->line[s->n_line] = 0;
        syslog(LOG_WARNING, "%s", s->line);
        s->n_line = 0;
    }
    if (n == 0 || (n < 0 && errno != EINTR))
        s->log = -1;
}

/* What the reader asks for; it is gone: as if it had asked for the end. */
static void mtr_answer_one(mtr_state *s)
{
    char letter = 0;
    ssize_t n = read(s->socket, &letter, 1);

    if (n < 0 && errno == EINTR)
        return;
    if (n == 1 && letter == MTR_ATTACH) {
        mtr_attach(s);
    } else if (n == 1 && letter == MTR_SERVING) {
        mtr_serving(s);
    } else {
        mtr_unmount(s);
        if (n != 1 || send(s->socket, &letter, 1, MSG_NOSIGNAL) != 1)
            s->socket = -1;
    }
}

/* Until the reader is gone, and all that it said is logged. */
static void mtr_loop(mtr_state *s)
{
    while (s->socket >= 0 || s->log >= 0) {
        struct pollfd on[2] = {{.fd = s->socket, .events = POLLIN},
                               {.fd = s->log, .events = POLLIN}};

        if (poll(on, 2, -1) < 0 && errno != EINTR)
            return;
        // what is in the log was said before what is asked now
        if (on[1].revents)
            mtr_log(s);
        else if (on[0].revents)
            mtr_answer_one(s);
    }
}

__attribute__((noreturn)) static void mtr_process(const mounter *m, int socket, int log, int ready)
{
    static const int kept[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    mtr_state s = {.m = m, .socket = socket, .log = log, .ready = ready};

    // it ends when the reader does, which gets these too
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        (void)signal(kept[i], SIG_IGN);
    openlog("ckpt", LOG_PID, LOG_DAEMON);
    mtr_loop(&s);
    mtr_unmount(&s);
    _exit(0);
}

/* ---- the reader's end ---- */

/* Nothing may lie under what is mounted, least of all the source. */
static int mtr_check(const char *dir, ckpt_err *err)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    bool empty = true;

    if (!d && errno == ENOENT)
        return CKPT_OK;
    if (!d && errno == ENOTDIR)
        return fail(err, CKPT_EUSAGE, "%s: is no folder", dir);
    if (!d && errno == ENOTCONN)
        return fail(err, CKPT_EIO,
                    "%s: is the mount of a process that is gone: fusermount3 -u '%s' clears it",
                    dir, dir);
    if (!d)
        return fail(err, CKPT_EIO, "%s: %s", dir, strerror(errno));
    while (empty && (e = readdir(d)))
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    (void)closedir(d);
    return empty ? CKPT_OK
                 : fail(err, CKPT_EUSAGE, "%s: is not empty: what is in it would be hidden", dir);
}

static int mtr_load(mounter *m, ckpt_err *err)
{
    char why[300];
    void *lib = plugin_open(MOUNT_PLUGIN, "CKPT_MOUNT_PLUGIN", false, why, sizeof why);
    const mount_plugin *p = NULL;

    if (!lib)
        return fail(err, CKPT_EUNSUPPORTED,
                    "file systems are mounted through libfuse3, by %s, which cannot be loaded: %s; "
                    "it is built where libfuse3's headers are (Debian: libfuse3-dev)",
                    MOUNT_PLUGIN, why);
    if (!plugin_find(lib, MOUNT_TABLE, &p) || p->version != MOUNT_VERSION)
        return fail(err, CKPT_EUNSUPPORTED, "%s is of another version than this program",
                    MOUNT_PLUGIN);
    m->plugin = p;
    return CKPT_OK;
}

/* The old process: ends as the new one says, or as it ends. */
__attribute__((noreturn)) static void mtr_wait(pid_t pid, int ready)
{
    char byte;
    int status = 0;
    ssize_t n;

    do
        n = read(ready, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1)
        _exit(0);
    (void)waitpid(pid, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* Go on in a new process; the old one stays until *ready is written to, or closed. */
static int mtr_daemon(int *ready, ckpt_err *err)
{
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return fail(err, CKPT_EIO, "cannot make a pipe: %s", strerror(errno));
    (void)fflush(NULL);
    pid = fork();
    if (pid > 0) {
        (void)close(ends[1]);
        mtr_wait(pid, ends[0]);
    }
    (void)close(ends[0]);
    *ready = ends[1];
    if (pid < 0)
        return fail(err, CKPT_EIO, "cannot start a process: %s", strerror(errno));
    (void)setsid();
    return CKPT_OK;
}

/* The socket, the pipe of the log, and the process between them. */
static int mtr_start(mounter *m, int ready, ckpt_err *err)
{
    int ends[2] = {-1, -1}, log[2] = {-1, -1};

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 ||
        (m->opts.daemon && pipe2(log, O_CLOEXEC) != 0))
        return fail(err, CKPT_EIO, "cannot make a socket: %s", strerror(errno));
    (void)fflush(NULL);
    m->pid = fork();
    if (m->pid < 0)
        return fail(err, CKPT_EIO, "cannot start a process: %s", strerror(errno));
    if (m->pid == 0) {
        (void)close(ends[0]);
        if (log[1] >= 0)
            (void)close(log[1]);
        mtr_process(m, ends[1], log[0], ready);
    }
    (void)close(ends[1]);
    if (log[0] >= 0)
        (void)close(log[0]);
    if (ready >= 0)
        (void)close(ready);
    m->socket = ends[0];
    m->log = log[1];
    return CKPT_OK;
}

int mounter_begin(mounter **out, const mounter_opts *opts, ckpt_err *err)
{
    mounter *m = calloc(1, sizeof *m);
    int ready = -1, rc;

    *out = NULL;
    if (!m)
        return fail(err, CKPT_ELIMIT, "out of memory");
    m->opts = *opts;
    m->socket = m->log = -1;
    m->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    rc = m->null >= 0 ? mtr_check(opts->dir, err)
                      : fail(err, CKPT_EIO, "/dev/null: cannot be opened");
    if (rc == CKPT_OK)
        rc = mtr_load(m, err);
    if (rc == CKPT_OK && opts->daemon)
        rc = mtr_daemon(&ready, err);
    if (rc == CKPT_OK)
        rc = mtr_start(m, ready, err);
    if (rc == CKPT_OK)
        *out = m;
    else
        free(m);
    return rc;
}

const mount_plugin *mounter_plugin(const mounter *m)
{
    return m->plugin;
}

static bool mtr_ask(const mounter *m, char letter)
{
    ssize_t n;

    do
        n = write(m->socket, &letter, 1);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* The answer to MTR_ATTACH, and the descriptor that came with it or -1. */
static bool mtr_receive(const mounter *m, mtr_answer *answer, int *fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {.iov_base = answer, .iov_len = sizeof *answer};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    ssize_t n;

    *fd = -1;
    do
        n = recvmsg(m->socket, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof *answer)
        return false;
    answer->text[MTR_TEXT - 1] = 0;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return true;
}

int mounter_attach(const mounter *m, int *fd, ckpt_err *err)
{
    mtr_answer answer;

    if (!mtr_ask(m, MTR_ATTACH) || !mtr_receive(m, &answer, fd))
        return fail(err, CKPT_EIO, "%s: the process that mounts is gone", m->opts.dir);
    if (answer.rc != CKPT_OK || *fd < 0)
        return fail(err, CKPT_EIO, "%s: cannot be mounted: %s", m->opts.dir, answer.text);
    return CKPT_OK;
}

void mounter_serving(const mounter *m)
{
    if (m->opts.daemon) {
        (void)fflush(NULL);
        (void)dup2(m->null, STDIN_FILENO);
        (void)dup2(m->null, STDOUT_FILENO);
        (void)dup2(m->log, STDERR_FILENO);
    }
    (void)mtr_ask(m, MTR_SERVING);
}

void mounter_unmount(const mounter *m)
{
    char letter = 0;
    ssize_t n = -1;

    if (mtr_ask(m, MTR_UNMOUNT)) {
        do
            n = read(m->socket, &letter, 1);
        while (n < 0 && errno == EINTR);
    }
    if (n != 1)
        say_warning("%s: the process that unmounts is gone: fusermount3 -u '%s' does it",
                    m->opts.dir, m->opts.dir);
}

void mounter_end(mounter *m)
{
    if (!m)
        return;
    (void)close(m->socket);
    // a daemon's reads what this one says until its end
    if (!m->opts.daemon)
        (void)waitpid(m->pid, NULL, 0);
    (void)close(m->null);
    if (m->log >= 0)
        (void)close(m->log);
    free(m);
}
