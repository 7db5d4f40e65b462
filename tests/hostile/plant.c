/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plant.c: what a checkpoint could do if reading it ran its code.  Loaded with LD_PRELOAD.
 *
 * At the first read of a file below PLANT_SOURCE, each misdeed is tried once and its outcome is
 * written to the file PLANT_LOG, which is open from the start: "write done", "exec refused" ...
 *
 * PLANT_ELSEWHERE  a folder that has nothing to do with the command
 * PLANT_SECRET     a file in such a folder
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static int plant_log = -1;
static _Atomic int plant_sown;

__attribute__((constructor)) static void plant_begin(void)
{
    const char *log = getenv("PLANT_LOG");

    // high, so that the program's own descriptors have the numbers they always have
    int fd = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    plant_log = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 200) : -1;
    if (fd >= 0)
        (void)close(fd);
}

static void plant_say(const char *what, int done)
{
    char line[128];
    int n = snprintf(line, sizeof line, "%s %s\n", what, done ? "done" : "refused");

    if (syscall(SYS_write, plant_log, line, (size_t)n) != n)
        abort();
}

static void plant_open(const char *what, const char *path, int flags)
{
    int fd = path ? open(path, flags | O_CLOEXEC, 0600) : -1;

    plant_say(what, fd >= 0);
    if (fd >= 0)
        (void)close(fd);
}

/* In a child, since success does not return: the child's status is 0 when it was done. */
static void plant_child(const char *what, int exec)
{
    static char name[] = "true";
    static char *const argv[] = {name, NULL};
    int status = 1;
    pid_t child = fork();

    if (child == 0) {
        if (exec)
            (void)execve("/bin/true", argv, argv + 1);
        else
            _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 ? 0 : 1);
        _exit(1);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    plant_say(what, child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void plant_socket(const char *what, int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    plant_say(what, fd >= 0);
    if (fd >= 0)
        (void)close(fd);
}

static void plant_sow(const char *source)
{
    const char *elsewhere = getenv("PLANT_ELSEWHERE");
    char path[4096] = "";

    if (elsewhere)
        (void)snprintf(path, sizeof path, "%s/planted", elsewhere);
    plant_open("write", path, O_WRONLY | O_CREAT);
    plant_open("change", source, O_WRONLY);
    plant_open("read", getenv("PLANT_SECRET"), O_RDONLY);
    plant_child("exec", 1);
    plant_child("trace", 0);
    plant_socket("internet", AF_INET);
    plant_socket("unix", AF_UNIX);
    plant_say("signal", kill(getppid(), 0) == 0);
}

/* A file below PLANT_SOURCE is about to be read. */
static void plant_look(int fd)
{
    const char *source = getenv("PLANT_SOURCE");
    char link[64], path[4096];

    if (!source || plant_log < 0 || atomic_load(&plant_sown))
        return;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return;
    path[n] = 0;
    if (strncmp(path, source, strlen(source)) == 0 && atomic_exchange(&plant_sown, 1) == 0)
        plant_sow(path);
}

ssize_t pread(int fd, void *buf, size_t n, off_t at);
ssize_t pread64(int fd, void *buf, size_t n, off64_t at);
ssize_t read(int fd, void *buf, size_t n);
ssize_t __pread_chk(int fd, void *buf, size_t n, off_t at, size_t room);
ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t at, size_t room);
ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    plant_look(fd);
    return syscall(SYS_pread64, fd, buf, n, at);
}

ssize_t pread64(int fd, void *buf, size_t n, off64_t at)
{
    return pread(fd, buf, n, at);
}

ssize_t __pread_chk(int fd, void *buf, size_t n, off_t at, size_t room)
{
    return n > room ? -1 : pread(fd, buf, n, at);
}

ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t at, size_t room)
{
    return n > room ? -1 : pread(fd, buf, n, at);
}

ssize_t read(int fd, void *buf, size_t n)
{
    plant_look(fd);
    return syscall(SYS_read, fd, buf, n);
}

ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
    return n > room ? -1 : read(fd, buf, n);
}
