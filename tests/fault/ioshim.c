/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ioshim.c: an LD_PRELOAD library that makes one chosen system call fail.
 *
 *     IOSHIM_OP=pwrite IOSHIM_NTH=3 IOSHIM_KIND=ENOSPC LD_PRELOAD=.../ioshim.so ckpt convert ...
 *
 * IOSHIM_OP      which calls count, a comma-separated list of: open read pread write pwrite fsync
 *                close rename link ftruncate fallocate mkdir unlink; or "any".  open stands for
 *                openat too, fsync for fdatasync, rename for renameat and renameat2, mkdir for
 *                mkdirat, unlink for unlinkat and rmdir.  Unset: nothing ever fails.
 * IOSHIM_NTH     number of the call that fails, from 1 on; 0 or unset: none (calls are still
 *                counted)
 * IOSHIM_KIND    what happens to it:
 *                EIO (default), ENOSPC, EINTR, EACCES, EMFILE, ENOSYS, EINVAL: it is not carried
 *                out and fails with this (close is carried out, as the kernel does).  EINTR spares
 *                rename, mkdir and unlink, which have none.
 *                short: read, pread, write and pwrite move half of what was asked for, at least 1
 *                byte; other calls are carried out.
 *                kill: the process is killed before it; of write and pwrite half is done.
 *                stop: the process stops before it (SIGSTOP) and carries it out when it goes on.
 * IOSHIM_REPEAT  1: every counted call from IOSHIM_NTH on fails
 * IOSHIM_PATH    only calls on files whose path holds this text count (paths as given, those that
 *                are relative to a descriptor made whole, and as /proc/self/fd has them for
 *                descriptors)
 * IOSHIM_NO_LINKS  1: linkat fails with EPERM
 * IOSHIM_FLAGS   1: renameat2 with flags fails with EINVAL, as on file systems that have none
 * IOSHIM_LOG     name of a file: each counted call is added to it as a line "OP PATH", before it is
 *                carried out
 * IOSHIM_COUNT   name of a file: at exit the number of counted calls is written to it as one
 *                decimal line.  A loop over IOSHIM_NTH can stop at that number.
 *
 * A test loops IOSHIM_NTH over 1..count and expects: exit status 7, the old output intact, no
 * temporary file left; or, for EINTR and short, status 0 and the same bytes.
 *
 * The real calls are made by syscall(): Linux on 64-bit machines only.
 */
#ifdef _FORTIFY_SOURCE
#undef _FORTIFY_SOURCE // its inline wrappers would clash with what is defined here
#endif
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What programs built with _FORTIFY_SOURCE call instead; no header declares them. */
ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);
ssize_t __pread_chk(int fd, void *buf, size_t n, off_t at, size_t room);
ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t at, size_t room);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);

/* What is to happen to a call. */
typedef enum shim_fate { SHIM_PASS, SHIM_FAIL, SHIM_SHORT, SHIM_TORN } shim_fate;

static _Atomic unsigned long shim_calls; /* counted so far */
static int shim_to_log = -1, shim_to_count = -1;

/* ---- deciding ---- */

static const char *shim_env(const char *name)
{
    const char *v = getenv(name);

    return v ? v : "";
}

/* True if the list names op. */
static bool shim_listed(const char *list, const char *op)
{
    size_t n = strlen(op);

    for (const char *p = list; *p != 0; p += strcspn(p, ","), p += *p == ',') {
        size_t m = strcspn(p, ",");

        if ((m == n && memcmp(p, op, n) == 0) || (m == 3 && memcmp(p, "any", 3) == 0))
            return true;
    }
    return false;
}

/* The path that a descriptor is open on; "" when there is none. */
static void shim_path_of(int fd, char name[4096])
{
    char link[64];
    ssize_t n;

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, name, 4095);
    name[n < 0 ? 0 : n] = 0;
}

/* True if the path (relative to fd, unless that is AT_FDCWD), or what fd is open on, is one to look
 * at. */
static bool shim_wanted(const char *path, int fd)
{
    const char *text = shim_env("IOSHIM_PATH");
    char name[4096];

    if (text[0] == 0 || (path && strstr(path, text)))
        return true;
    if (path && (path[0] == '/' || fd == AT_FDCWD))
        return false;
    shim_path_of(fd, name);
    return strstr(name, text) != NULL;
}

static int shim_errno(const char *kind)
{
    static const struct {
        const char *name;
        int sys;
    } known[] = {{"ENOSPC", ENOSPC}, {"EINTR", EINTR},   {"EACCES", EACCES},
                 {"EMFILE", EMFILE}, {"ENOSYS", ENOSYS}, {"EINVAL", EINVAL}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(kind, known[i].name) == 0)
            return known[i].sys;
    }
    return EIO;
}

/* A file of ours, under a number that is out of the way; -1: none is wanted. */
static int shim_file(const char *name, int flags)
{
    const char *path = shim_env(name);
    long fd = -1, high = -1;

    if (path[0] == 0)
        return -1;
    fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    high = fd < 0 ? -1 : syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 200);
    if (high < 0)
        _exit(99);
    (void)syscall(SYS_close, fd);
    return (int)high;
}

/* Before main, which may give up the right to open files. */
__attribute__((constructor)) static void shim_begin(void)
{
    shim_to_log = shim_file("IOSHIM_LOG", O_APPEND);
    shim_to_count = shim_file("IOSHIM_COUNT", O_TRUNC);
}

/* Note a call. */
static void shim_log(const char *op, const char *path, int fd)
{
    char folder[4096] = "", line[8300];
    bool whole = path && (path[0] == '/' || fd == AT_FDCWD);
    int n;

    if (shim_to_log < 0)
        return;
    if (!whole)
        shim_path_of(fd, folder);
    n = snprintf(line, sizeof line, "%s %s%s%s\n", op, folder, whole || !path ? "" : "/",
                 path ? path : "");
    if (syscall(SYS_write, shim_to_log, line, (size_t)n) != n)
        _exit(99);
}

/* Count a call and say what becomes of it; on SHIM_FAIL errno is set. */
static shim_fate shim_decide(const char *op, const char *path, int fd)
{
    const char *kind = shim_env("IOSHIM_KIND");
    unsigned long nth = strtoul(shim_env("IOSHIM_NTH"), NULL, 10), now;
    int saved = errno;

    if (!shim_listed(shim_env("IOSHIM_OP"), op) || !shim_wanted(path, fd)) {
        errno = saved;
        return SHIM_PASS;
    }
    shim_log(op, path, fd);
    now = atomic_fetch_add(&shim_calls, 1) + 1;
    errno = saved;
    if (nth == 0 || now < nth || (now > nth && strcmp(shim_env("IOSHIM_REPEAT"), "1") != 0))
        return SHIM_PASS;
    if (strcmp(kind, "short") == 0)
        return SHIM_SHORT;
    if (strcmp(kind, "stop") == 0) {
        (void)kill(getpid(), SIGSTOP);
        return SHIM_PASS;
    }
    if (strcmp(kind, "EINTR") == 0 && shim_listed("rename,mkdir,unlink", op))
        return SHIM_PASS;
    if (strcmp(kind, "kill") == 0) {
        if (shim_listed("write,pwrite", op))
            return SHIM_TORN;
        (void)kill(getpid(), SIGKILL);
    }
    errno = shim_errno(kind);
    return SHIM_FAIL;
}

/* Half of a count that is to be cut short. */
static size_t shim_half(shim_fate fate, size_t n)
{
    return fate >= SHIM_SHORT && n > 1 ? n / 2 : n;
}

/* After a write that is torn there is nothing more. */
static ssize_t shim_wrote(shim_fate fate, ssize_t n)
{
    if (fate == SHIM_TORN)
        (void)kill(getpid(), SIGKILL);
    return n;
}

/* Tell how many calls there were. */
__attribute__((destructor)) static void shim_end(void)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%lu\n", atomic_load(&shim_calls));

    if (shim_to_count < 0 || n < 0)
        return;
    if (syscall(SYS_write, shim_to_count, text, (size_t)n) != n)
        _exit(99);
}

/* ---- opening ---- */

static int shim_open(int dir, const char *path, int flags, mode_t mode)
{
    if (shim_decide("open", path, dir) == SHIM_FAIL)
        return -1;
    return (int)syscall(SYS_openat, dir, path, flags, mode);
}

/* The mode is there only when a file may be made. */
#define SHIM_OPEN(dir, path, flags)                                                                \
    mode_t mode = 0;                                                                               \
    if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) {                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode = (mode_t)va_arg(args, unsigned);                                                     \
        va_end(args);                                                                              \
    }                                                                                              \
    return shim_open(dir, path, flags, mode)

int open(const char *path, int flags, ...)
{
    SHIM_OPEN(AT_FDCWD, path, flags);
}

int open64(const char *path, int flags, ...)
{
    SHIM_OPEN(AT_FDCWD, path, flags);
}

int openat(int dir, const char *path, int flags, ...)
{
    SHIM_OPEN(dir, path, flags);
}

int openat64(int dir, const char *path, int flags, ...)
{
    SHIM_OPEN(dir, path, flags);
}

int __open_2(const char *path, int flags)
{
    return shim_open(AT_FDCWD, path, flags, 0);
}

int __open64_2(const char *path, int flags)
{
    return shim_open(AT_FDCWD, path, flags, 0);
}

int __openat_2(int dir, const char *path, int flags)
{
    return shim_open(dir, path, flags, 0);
}

int __openat64_2(int dir, const char *path, int flags)
{
    return shim_open(dir, path, flags, 0);
}

/* ---- reading and writing ---- */

ssize_t read(int fd, void *buf, size_t n)
{
    shim_fate fate = shim_decide("read", NULL, fd);

    return fate == SHIM_FAIL ? -1 : syscall(SYS_read, fd, buf, shim_half(fate, n));
}

ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
    if (n > room)
        abort();
    return read(fd, buf, n);
}

ssize_t pread64(int fd, void *buf, size_t n, off64_t at)
{
    shim_fate fate = shim_decide("pread", NULL, fd);

    return fate == SHIM_FAIL ? -1 : syscall(SYS_pread64, fd, buf, shim_half(fate, n), at);
}

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    return pread64(fd, buf, n, at);
}

ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t at, size_t room)
{
    if (n > room)
        abort();
    return pread64(fd, buf, n, at);
}

ssize_t __pread_chk(int fd, void *buf, size_t n, off_t at, size_t room)
{
    return __pread64_chk(fd, buf, n, at, room);
}

ssize_t write(int fd, const void *buf, size_t n)
{
    shim_fate fate = shim_decide("write", NULL, fd);

    return fate == SHIM_FAIL ? -1
                             : shim_wrote(fate, syscall(SYS_write, fd, buf, shim_half(fate, n)));
}

ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t at)
{
    shim_fate fate = shim_decide("pwrite", NULL, fd);

    return fate == SHIM_FAIL
               ? -1
               : shim_wrote(fate, syscall(SYS_pwrite64, fd, buf, shim_half(fate, n), at));
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
    return pwrite64(fd, buf, n, at);
}

/* ---- sizes, syncing, closing, renaming ---- */

int ftruncate64(int fd, off64_t size)
{
    return shim_decide("ftruncate", NULL, fd) == SHIM_FAIL ? -1
                                                           : (int)syscall(SYS_ftruncate, fd, size);
}

int ftruncate(int fd, off_t size)
{
    return ftruncate64(fd, size);
}

int fallocate64(int fd, int mode, off64_t at, off64_t n)
{
    return shim_decide("fallocate", NULL, fd) == SHIM_FAIL
               ? -1
               : (int)syscall(SYS_fallocate, fd, mode, at, n);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    return fallocate64(fd, mode, at, n);
}

int fsync(int fd)
{
    return shim_decide("fsync", NULL, fd) == SHIM_FAIL ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return shim_decide("fsync", NULL, fd) == SHIM_FAIL ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int close(int fd)
{
    bool failed = shim_decide("close", NULL, fd) == SHIM_FAIL;
    int sys = errno, rc;

    // A failing close has closed all the same.
    rc = (int)syscall(SYS_close, fd);
    if (failed)
        errno = sys;
    return failed ? -1 : rc;
}

static int shim_rename(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    if (shim_decide("rename", to, to_dir) == SHIM_FAIL)
        return -1;
    if (flags != 0 && strcmp(shim_env("IOSHIM_FLAGS"), "1") == 0) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int rename(const char *from, const char *to)
{
    return shim_rename(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return shim_rename(from_dir, from, to_dir, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return shim_rename(from_dir, from, to_dir, to, flags);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    // As on file systems that give a file one name only.
    if (strcmp(shim_env("IOSHIM_NO_LINKS"), "1") == 0) {
        errno = EPERM;
        return -1;
    }
    return shim_decide("link", to, to_dir) == SHIM_FAIL
               ? -1
               : (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
}

/* ---- making and removing names ---- */

int mkdirat(int dir, const char *path, mode_t mode)
{
    return shim_decide("mkdir", path, dir) == SHIM_FAIL
               ? -1
               : (int)syscall(SYS_mkdirat, dir, path, mode);
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int unlinkat(int dir, const char *path, int flags)
{
    return shim_decide("unlink", path, dir) == SHIM_FAIL
               ? -1
               : (int)syscall(SYS_unlinkat, dir, path, flags);
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
