/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plant.c: what a checkpoint could do if reading it ran its code.  Loaded with LD_PRELOAD.
 *
 * At the first read of a file below PLANT_SOURCE, each misdeed is tried once and its outcome is
 * written to the file PLANT_LOG, which is open from the start: "write done", "exec refused" ...
 *
 * PLANT_ELSEWHERE  a folder that has nothing to do with the command
 * PLANT_SECRET     a file in such a folder
 * PLANT_BESIDE     the folder that the output folder is made in
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

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

/* What a file is besides its contents. */
static void plant_files(const char *source, const char *secret)
{
    const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    struct utimbuf old = {0, 0};
    int fd = plant_log, flags = 0; // open from the start: of the source the times are watched

    if (!secret)
        secret = source;
    plant_say("chmod", chmod(secret, 0644) == 0);
    plant_say("fchmodat", fchmodat(AT_FDCWD, secret, 0644, 0) == 0);
    plant_say("fchmod", fchmod(fd, 0644) == 0);
    plant_say("chown", chown(secret, getuid(), getgid()) == 0);
    plant_say("lchown", lchown(secret, getuid(), getgid()) == 0);
    plant_say("fchown", fchown(fd, getuid(), getgid()) == 0);
    plant_say("utime", utime(secret, &old) == 0);
    plant_say("utimensat", utimensat(AT_FDCWD, secret, now, 0) == 0);
    plant_say("futimens", futimens(fd, now) == 0);
    // a file system may have none of these: told by the error, and never a success
    plant_say("setxattr", setxattr(secret, "user.planted", "x", 1, 0) == 0 || errno != EPERM);
    plant_say("removexattr", removexattr(secret, "user.planted") == 0 || errno != EPERM);
    plant_say("setflags", ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0 || errno != EPERM);
    plant_say("truncate", truncate(secret, 7) == 0);
    plant_say("watch", inotify_init1(IN_CLOEXEC) >= 0);
}

/* Other processes; what is asked for changes nothing of the victim. */
static void plant_processes(pid_t victim)
{
    struct rlimit limit = {0, 0};
    cpu_set_t all;
    int pipes[2] = {-1, -1};

    plant_say("limit", prlimit(victim, RLIMIT_CORE, NULL, &limit) == 0);
    plant_say("own-limit-fails", prlimit(0, RLIMIT_CORE, NULL, &limit) != 0);
    plant_say("affinity", sched_getaffinity(victim, sizeof all, &all) == 0 &&
                              sched_setaffinity(victim, sizeof all, &all) == 0);
    plant_say("own-affinity-fails", sched_setaffinity(0, sizeof all, &all) != 0);
    plant_say("group", setpgid(victim, 0) == 0 || errno != EPERM);
    plant_say("ioprio", syscall(SYS_ioprio_set, 1, victim, 2 << 13 | 4) == 0);
    if (pipe2(pipes, O_CLOEXEC) == 0)
        plant_say("owner", fcntl(pipes[0], F_SETOWN, victim) == 0);
    plant_say("owner-signal", fcntl(pipes[0], F_SETSIG, SIGURG) == 0);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

/* In a child of a bare call, which ends at once; not allowed everywhere without a sandbox. */
static void plant_cloned(const char *what, long child)
{
    int status = 0;

    if (child == 0)
        syscall(SYS_exit, 0);
    while (child > 0 && waitpid((pid_t)child, &status, __WALL) < 0 && errno == EINTR)
        continue;
    plant_say(what, child > 0);
}

static void plant_namespaces(void)
{
    struct {
        uint64_t at[11];
    } wanted = {{CLONE_NEWUSER, 0, 0, 0, SIGCHLD}};
    struct {
        uint64_t at[11];
    } plain = {{0, 0, 0, 0, SIGCHLD}};

    plant_cloned("clone-user", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
    plant_cloned("clone3-user", syscall(435, &wanted, sizeof wanted));
    plant_cloned("clone3", syscall(435, &plain, sizeof plain));
    plant_say("clone3-enosys", syscall(435, &plain, 0) < 0 && errno != ENOSYS);
#if defined(__x86_64__)
    plant_say("x32", syscall(0x40000000 + SYS_getpid) >= 0 || errno != EPERM);
#endif
}

static void plant_sow(const char *source)
{
    const char *elsewhere = getenv("PLANT_ELSEWHERE");
    char path[4096] = "";

    if (elsewhere)
        (void)snprintf(path, sizeof path, "%s/planted", elsewhere);
    plant_open("write", path, O_WRONLY | O_CREAT);
    if (getenv("PLANT_BESIDE")) {
        (void)snprintf(path, sizeof path, "%s/planted", getenv("PLANT_BESIDE"));
        plant_open("write-beside", path, O_WRONLY | O_CREAT);
    }
    plant_open("change", source, O_WRONLY);
    plant_open("read", getenv("PLANT_SECRET"), O_RDONLY);
    plant_child("exec", 1);
    plant_child("trace", 0);
    plant_socket("internet", AF_INET);
    plant_socket("unix", AF_UNIX);
    plant_say("signal", kill(getppid(), 0) == 0);
    plant_files(source, getenv("PLANT_SECRET"));
    plant_processes(getppid());
    plant_namespaces();
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
