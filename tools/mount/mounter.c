/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounter.c: implements both ends of the mounter: the reader's requests, each a letter, and the
 * process that executes them.
 */
#define _GNU_SOURCE // pipe2
#include "tools/mount/mounter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "libckpt/base/number.h"
#include "libckpt/base/plugin.h"
#include "libckpt/base/vec.h"
#include "tools/cli/out.h"
#include "tools/mount/device.h"
#include "tools/mount/table.h"

/* Requests to the mounter process, one letter each. */
enum { MTR_ATTACH = 'a', MTR_SERVING = 's', MTR_UNMOUNT = 'u' };

/*
 * KiB of read-ahead for sequential readers, if this process may set it; the kernel's default is
 * 128.
 */
#define MTR_AHEAD "1024"

enum {
    MTR_LINE = 1024,
    MTR_TRIES = 100 /* 2 s in all */
};

CKPT_VEC(mtr_files, int);

struct mounter {
    const mount_plugin *plugin;
    mounter_opts opts;
    pid_t pid;
    int socket;     /* connection to the process */
    int null;       /* /dev/null, opened early because it cannot be opened later */
    int log;        /* daemon: pipe for stderr; else -1 */
    mtr_files held; /* daemon: descriptors inherited from the caller */
};

/* State of the mounter process. */
typedef struct mtr_state {
    const mounter *m;
    int socket, log, ready; /* -1: none; ready: pipe to a daemon's parent */
    bool mounted;
    dev_t device;
    bool made;           /* the folder was created for the mount */
    char line[MTR_LINE]; /* unfinished line of the log */
    size_t n_line;
} mtr_state;

/* ---- the process ---- */

/* Refuse a folder with files, because the mount would hide them, and one may be the source. */
static int mtr_empty(const char *dir, ckpt_err *err)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    bool empty = true;

    if (!d && errno == ENOTCONN)
        return fail(
            err, CKPT_EIO,
            "%s: is the mount of a process that has ended: unmount it with fusermount3 -u '%s'",
            dir, dir);
    if (!d)
        return errno == ENOTDIR ? fail(err, CKPT_EUSAGE, "%s: is not a folder", dir)
                                : fail(err, CKPT_EIO, "%s: the folder cannot be opened: %s", dir,
                                       strerror(errno));
    while (empty && (e = readdir(d)))
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    (void)closedir(d);
    return empty ? CKPT_OK
                 : fail(err, CKPT_EUSAGE, "%s: is not empty: the mount would hide its files", dir);
}

static int mtr_send(const mtr_state *s, const ckpt_err *answer, int fd)
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

static ckpt_err mtr_unmount(mtr_state *s)
{
    ckpt_err answer = {0};
    char why[300];

    if (s->mounted && mount_table_clear(s->device, why, sizeof why) != 0)
        (void)fail(&answer, CKPT_EIO, "%s", why);
    s->mounted = false;
    if (s->made)
        (void)rmdir(s->m->opts.dir);
    s->made = false;
    return answer;
}

/* Get the device number without asking the server, because it may not answer yet. */
static bool mtr_device(mtr_state *s)
{
    return mount_device(&s->device, s->m->opts.dir, true);
}

/* Raise the kernel's read-ahead; users other than root cannot, and keep the default. */
static void mtr_read_ahead(const mtr_state *s)
{
    char path[64];
    int fd;

    (void)snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major(s->device),
                   minor(s->device));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, MTR_AHEAD, sizeof MTR_AHEAD - 1) < 0)
        errno = 0;
    (void)close(fd);
}

/* Mount; returns the device, or -1. */
static int mtr_mount(mtr_state *s, ckpt_err *err)
{
    const mounter_opts *o = &s->m->opts;
    char why[300];
    int fd;

    // check again, because opening the source may have taken long
    if (mtr_empty(o->dir, err) != CKPT_OK)
        return -1;
    fd = s->m->plugin->attach(o->dir, o->from, o->allow_other, why, sizeof why);
    if (fd < 0)
        (void)fail(err, CKPT_EIO, "%s: cannot be mounted: %s", o->dir, why);
    s->mounted = fd >= 0 && mtr_device(s);
    if (s->mounted || fd < 0)
        return fd;
    (void)fail(err, CKPT_EIO, "%s: the mount disappeared immediately", o->dir);
    (void)close(fd);
    return -1;
}

/*
 * Lock the folder, because only one process may mount there at a time; another mounter holds the
 * lock for a moment only.  A lock held for longer (flock dir ckpt mount ...) has another purpose,
 * and is ignored.
 */
static void mtr_lock(int fd)
{
    static const struct timespec moment = {.tv_nsec = 20000000};

    for (int i = 0; i < MTR_TRIES && flock(fd, LOCK_EX | LOCK_NB) != 0; i++)
        (void)nanosleep(&moment, NULL);
}

/* The path of the folder above, or NULL: out of memory. */
static char *mtr_above(const char *dir)
{
    char *path = strdup(dir), *slash;

    if (!path)
        return NULL;
    for (slash = path + strlen(path) - 1; slash > path && *slash == '/'; slash--)
        *slash = 0;
    slash = strrchr(path, '/');
    if (slash) {
        slash[slash == path ? 1 : 0] = 0;
        return path;
    }
    free(path);
    return strdup(".");
}

/* Create the folder if it is missing, and lock it; -1: see err. */
static int mtr_make(mtr_state *s, ckpt_err *err)
{
    const char *dir = s->m->opts.dir;
    int fd;

    s->made = mkdir(dir, 0755) == 0;
    if (!s->made && errno != EEXIST) {
        (void)fail(err, CKPT_EIO, "%s: cannot be made: %s", dir, strerror(errno));
        return -1;
    }
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        (void)fail(err, CKPT_EIO, "%s: cannot be opened: %s", dir, strerror(errno));
    else
        mtr_lock(fd);
    return fd;
}

/*
 * Create and lock the folder; -1: see err.  A lock on the folder above keeps another mounter from
 * locking a folder before the mounter that made it, which alone removes it.
 */
static int mtr_folder(mtr_state *s, ckpt_err *err)
{
    char *above = mtr_above(s->m->opts.dir);
    // without permission to read it, go on without the lock
    int lock = above ? open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, fd;

    if (lock >= 0)
        mtr_lock(lock);
    fd = mtr_make(s, err);
    if (lock >= 0)
        (void)close(lock);
    free(above);
    return fd;
}

static void mtr_attach(mtr_state *s)
{
    ckpt_err answer = {0};
    int folder = mtr_folder(s, &answer), fd = answer.code == CKPT_OK ? mtr_mount(s, &answer) : -1;

    if (folder >= 0)
        (void)close(folder);
    if (s->mounted)
        mtr_read_ahead(s);
    if (mtr_send(s, &answer, fd) != 0 || fd < 0)
        (void)mtr_unmount(s);
    // close it here, because only the server may hold the device: otherwise reads would wait for
    // ever, instead of failing, after the server has died
    if (fd >= 0)
        (void)close(fd);
}

/* Tell the old process of a daemon that requests are served.  If it has gone, unmount. */
static void mtr_serving(mtr_state *s)
{
    if (s->ready < 0)
        return;
    if (write(s->ready, "", 1) != 1)
        (void)mtr_unmount(s);
    (void)close(s->ready);
    s->ready = -1;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        (void)dup2(s->m->null, fd);
}

/* Write a daemon's messages to the system log, line by line. */
static void mtr_log(mtr_state *s)
{
    char buf[512];
    ssize_t n = read(s->log, buf, sizeof buf);

    for (ssize_t i = 0; i < n; i++) {
        if (buf[i] != '\n')
            s->line[s->n_line++] = buf[i];
        if (buf[i] != '\n' && s->n_line + 1 < sizeof s->line)
            continue;
        s->line[s->n_line] = 0;
        syslog(LOG_WARNING, "%s", s->line);
        s->n_line = 0;
    }
    if (n > 0 || (n < 0 && errno == EINTR))
        return;
    s->line[s->n_line] = 0;
    if (s->n_line > 0)
        syslog(LOG_WARNING, "%s", s->line);
    s->log = -1;
}

/* After the reader has ended: unmount, and print a failure here, because no other process would. */
static void mtr_last(mtr_state *s)
{
    ckpt_err answer = mtr_unmount(s);

    s->socket = -1;
    if (answer.code == CKPT_OK)
        return;
    say_error("%s", answer.text);
    if (s->m->opts.daemon)
        syslog(LOG_ERR, "%s", answer.text);
}

/* Execute one request of the reader. */
static void mtr_one(mtr_state *s)
{
    char letter = 0;
    ssize_t n = read(s->socket, &letter, 1);

    if (n < 0 && errno == EINTR)
        return;
    if (n == 1 && letter == MTR_ATTACH) {
        mtr_attach(s);
    } else if (n == 1 && letter == MTR_SERVING) {
        mtr_serving(s);
    } else if (n == 1 && letter == MTR_UNMOUNT) {
        ckpt_err answer = mtr_unmount(s);

        (void)mtr_send(s, &answer, -1);
    } else {
        mtr_last(s);
    }
}

/* Serve until the reader has ended and all its messages are logged. */
static void mtr_loop(mtr_state *s)
{
    int table = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);

    while (s->socket >= 0 || s->log >= 0) {
        struct pollfd on[3] = {{.fd = s->socket, .events = POLLIN},
                               {.fd = s->log, .events = POLLIN},
                               {.fd = table, .events = POLLPRI}};

        if (poll(on, 3, -1) < 0 && errno != EINTR)
            return;
        // if others have unmounted it, forget the device, because its number may be reused
        if (on[2].revents && s->mounted)
            s->mounted = mount_table_has(s->device);
        // log first, because these messages came before the request
        if (on[1].revents)
            mtr_log(s);
        else if (on[0].revents)
            mtr_one(s);
    }
}

/*
 * Close the descriptors that a daemon inherited, so programs at their other ends do not wait for
 * the daemon.  Keep one that is the source (/dev/fd/7), because it may be opened again.
 */
static void mtr_let_go(const mounter *m, const char *source)
{
    char name[2][40];

    for (size_t i = 0; i < m->held.n; i++) {
        (void)snprintf(name[0], sizeof name[0], "/dev/fd/%d", m->held.at[i]);
        (void)snprintf(name[1], sizeof name[1], "/proc/self/fd/%d", m->held.at[i]);
        if (!source || (strcmp(source, name[0]) != 0 && strcmp(source, name[1]) != 0))
            (void)close(m->held.at[i]);
    }
}

__attribute__((noreturn)) static void mtr_process(const mounter *m, int socket, int log, int ready)
{
    static const int kept[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    mtr_state s = {.m = m, .socket = socket, .log = log, .ready = ready};

    // ignore signals, because this process ends with the reader, which gets them too
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        (void)signal(kept[i], SIG_IGN);
    mtr_let_go(m, NULL);
    openlog("ckpt", LOG_PID, LOG_DAEMON);
    mtr_loop(&s);
    _exit(0);
}

/* ---- the reader's end ---- */

/* Check the folder in which a missing mount point would be created. */
static int mtr_parent(const char *dir, ckpt_err *err)
{
    char *path = mtr_above(dir);
    int rc = CKPT_OK;

    if (!path)
        return fail(err, CKPT_ELIMIT, "out of memory");
    if (access(path, W_OK | X_OK) != 0)
        rc = fail(err, CKPT_EIO, "%s: cannot be made: %s: %s", dir, path, strerror(errno));
    free(path);
    return rc;
}

/* Check conditions early that would otherwise fail only after a large source has been opened. */
static int mtr_check(const char *dir, ckpt_err *err)
{
    if (!*dir || strncmp(dir, "/dev/fd/", 8) == 0 || ckpt_path_is_remote(dir))
        return fail(err, CKPT_EUSAGE, "'%s': expected a local folder to mount on", dir);
    return access(dir, F_OK) == 0 || errno != ENOENT ? mtr_empty(dir, err) : mtr_parent(dir, err);
}

static int mtr_fuse(ckpt_err *err)
{
    return access("/dev/fuse", R_OK | W_OK) == 0
               ? CKPT_OK
               : fail(err, CKPT_EIO,
                      "/dev/fuse: %s: ckpt cannot mount here (a container needs this device, and "
                      "permission to mount)",
                      strerror(errno));
}

static int mtr_load(mounter *m, ckpt_err *err)
{
    static const ckpt_plugin_want want = {.file = MOUNT_PLUGIN,
                                          .variable = "CKPT_MOUNT_PLUGIN",
                                          .library = "libfuse3",
                                          .package = "libfuse3-3"};
    char why[400];
    void *lib = ckpt_plugin_open(&want, why, sizeof why);
    const mount_plugin *p = NULL;

    if (!lib)
        return fail(err, CKPT_EUNSUPPORTED, "ckpt cannot mount: %s", why);
    if (!ckpt_plugin_find(lib, MOUNT_TABLE, &p) || p->version != MOUNT_VERSION)
        return fail(err, CKPT_EUNSUPPORTED, "%s does not have the version of this program",
                    MOUNT_PLUGIN);
    m->plugin = p;
    return CKPT_OK;
}

/* Process id of the new process, to which the old one passes its signals. */
static volatile sig_atomic_t mtr_pid;

static void mtr_pass_on(int sig)
{
    (void)kill((pid_t)mtr_pid, sig);
}

/*
 * The old process: exits when the first request has been answered, or with the new process' status.
 */
__attribute__((noreturn)) static void mtr_wait(pid_t pid, int ready, const char *dir)
{
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = mtr_pass_on}, old;
    struct stat st;
    char byte;
    int status = 0;
    ssize_t n;

    mtr_pid = (sig_atomic_t)pid;
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        if (sigaction(passed[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            (void)sigaction(passed[i], &action, NULL);
    }
    do
        n = read(ready, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1 && stat(dir, &st) == 0)
        _exit(0);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* List the descriptors that the caller has open. */
static void mtr_hold(mounter *m)
{
    DIR *d = opendir("/proc/self/fd");
    const struct dirent *e;

    while (d && (e = readdir(d))) {
        uint64_t fd = 0;
        bool held = ckpt_parse_u64(e->d_name, &fd) && fd > STDERR_FILENO && (int)fd != dirfd(d);
        int *more = held ? ckpt_vec_push(&m->held) : NULL;

        if (more)
            *more = (int)fd;
    }
    if (d)
        (void)closedir(d);
}

/* Continue in a new process; the old one stays until *ready is written to, or closed. */
static int mtr_daemon(int *ready, const char *dir, ckpt_err *err)
{
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return fail(err, CKPT_EIO, "cannot make a pipe: %s", strerror(errno));
    (void)fflush(NULL);
    pid = fork();
    if (pid > 0) {
        (void)close(ends[1]);
        mtr_wait(pid, ends[0], dir);
    }
    (void)close(ends[0]);
    *ready = ends[1];
    if (pid < 0)
        return fail(err, CKPT_EIO, "cannot start a process: %s", strerror(errno));
    (void)setsid();
    return CKPT_OK;
}

/* Create the socket, the log pipe, and the mounter process. */
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
    // do not block, because a stuck log must not stop its writer
    if (m->log >= 0)
        (void)fcntl(m->log, F_SETFL, O_NONBLOCK);
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
    // the default action, because waitpid needs the status of our children
    (void)signal(SIGCHLD, SIG_DFL);
    if (opts->daemon)
        mtr_hold(m);
    m->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    rc = m->null >= 0 ? mtr_check(opts->dir, err)
                      : fail(err, CKPT_EIO, "/dev/null: cannot be opened");
    if (rc == CKPT_OK)
        rc = mtr_load(m, err);
    if (rc == CKPT_OK)
        rc = mtr_fuse(err);
    if (rc == CKPT_OK && opts->daemon)
        rc = mtr_daemon(&ready, opts->dir, err);
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

/* Receive the answer to MTR_ATTACH, with the descriptor or -1. */
static bool mtr_receive(const mounter *m, ckpt_err *answer, int *fd)
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
    answer->text[sizeof answer->text - 1] = 0;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return true;
}

int mounter_attach(const mounter *m, int *fd, ckpt_err *err)
{
    ckpt_err answer;

    if (!mtr_ask(m, MTR_ATTACH) || !mtr_receive(m, &answer, fd))
        return fail(err, CKPT_EIO, "%s: the mounting process has ended", m->opts.dir);
    if (answer.code != CKPT_OK)
        return fail(err, answer.code, "%s", answer.text);
    return *fd >= 0 ? CKPT_OK
                    : fail(err, CKPT_EIO, "%s: the mounting process sent no device", m->opts.dir);
}

int mounter_serving(const mounter *m, ckpt_err *err)
{
    if (m->opts.daemon) {
        (void)fflush(NULL);
        (void)dup2(m->null, STDIN_FILENO);
        (void)dup2(m->null, STDOUT_FILENO);
        (void)dup2(m->log, STDERR_FILENO);
        mtr_let_go(m, m->opts.from);
    }
    return mtr_ask(m, MTR_SERVING)
               ? CKPT_OK
               : fail(err, CKPT_EIO, "%s: the unmounting process has ended", m->opts.dir);
}

int mounter_unmount(const mounter *m, ckpt_err *err)
{
    ckpt_err answer;
    int none;

    if (!mtr_ask(m, MTR_UNMOUNT) || !mtr_receive(m, &answer, &none))
        return fail(err, CKPT_EIO,
                    "%s: the unmounting process has ended: if the folder is still mounted, unmount "
                    "it with fusermount3 -u '%s'",
                    m->opts.dir, m->opts.dir);
    return answer.code == CKPT_OK ? CKPT_OK : fail(err, answer.code, "%s", answer.text);
}

void mounter_end(mounter *m)
{
    if (!m)
        return;
    (void)close(m->socket);
    // not for a daemon, whose mounter reads our messages until this process ends
    if (!m->opts.daemon)
        (void)waitpid(m->pid, NULL, 0);
    (void)close(m->null);
    if (m->log >= 0)
        (void)close(m->log);
    ckpt_vec_free(&m->held);
    free(m);
}
