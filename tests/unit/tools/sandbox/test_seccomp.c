/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_seccomp.c: tries system calls in children that have entered the filter: which ones it
 * refuses, and which ones it must leave alone.
 *
 * The arguments are such that a call that passes the filter fails, too, with another error than the
 * filter's.
 */
#define _GNU_SOURCE // syscall, F_SETSIG
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"
#include "tools/sandbox/seccomp.h"

/* A call with three arguments, and its name for messages. */
typedef struct attempt {
    const char *name;
    long number;
    long argument[4];
} attempt;

#define TRY(name, ...)                                                                             \
    {                                                                                              \
#name, SYS_##name,                                                                         \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

enum { NO_FD = -1, NO_ID = -1, OWN = 0x7fffffff };

/* Refused in every sandbox. */
static const attempt refused[] = {
    TRY(execve, 0, 0, 0),
    TRY(execveat, NO_FD, 0, 0),
    TRY(bind, NO_FD, 0, 0),
    TRY(listen, NO_FD, 0),
    TRY(accept, NO_FD, 0, 0),
    TRY(accept4, NO_FD, 0, 0),
    TRY(ptrace, NO_ID, 0, 0),
    TRY(process_vm_readv, NO_ID, 0, 0),
    TRY(process_vm_writev, NO_ID, 0, 0),
    TRY(tkill, NO_ID, 0),
    TRY(fchmod, NO_FD, 0),
    TRY(fchmodat, NO_FD, 0, 0),
    TRY(fchown, NO_FD, 0, 0),
    TRY(fchownat, NO_FD, 0, 0),
    TRY(utimensat, NO_FD, 0, 0),
    TRY(fsetxattr, NO_FD, 0, 0),
    TRY(fremovexattr, NO_FD, 0),
    TRY(truncate, 0, 0),
    TRY(inotify_init1, NO_FD),
    TRY(mount, 0, 0, 0),
    TRY(umount2, 0, 0),
    TRY(pivot_root, 0, 0),
    TRY(chroot, 0),
    TRY(unshare, NO_ID),
    TRY(setns, NO_FD, 0),
    TRY(open_by_handle_at, NO_FD, 0, 0),
    TRY(bpf, NO_ID, 0, 0),
    TRY(perf_event_open, 0, 0, 0),
    TRY(userfaultfd, NO_FD),
    TRY(keyctl, NO_ID, 0, 0),
    TRY(setuid, NO_ID),
    TRY(setresuid, NO_ID, NO_ID, NO_ID),
    TRY(capset, 0, 0),
    TRY(personality, 0xffffffff),
    TRY(setpriority, NO_ID, 0, 0),
    TRY(setpgid, NO_ID, 0),
    TRY(shmget, 0, 0, 0),
    TRY(mq_open, 0, 0, 0),
    {"io_uring_setup", 425, {0, 0}},
    {"pidfd_open", 434, {NO_ID, 0}},
    {"open_tree", 428, {NO_FD, 0}},
    {"fspick", 433, {NO_FD, 0}},
    {"fchmodat2", 452, {NO_FD, 0, 0}},
    TRY(kill, 1, 0),
    TRY(kill, 0, 0),
    TRY(kill, NO_ID, 0),
    TRY(tgkill, 1, 1, 0),
    TRY(prlimit64, 1, RLIMIT_CORE, 0, 0),
    TRY(sched_setaffinity, 1, 0, 0),
    TRY(ioctl, NO_FD, TIOCSTI, 0),
    TRY(ioctl, NO_FD, 0x541c, 0),
    TRY(ioctl, NO_FD, FS_IOC_SETFLAGS, 0),
    TRY(ioctl, NO_FD, FS_IOC_GETFLAGS, 0),
    TRY(ioctl, NO_FD, FICLONE, 0), // 0x94, of btrfs
    TRY(fcntl, NO_FD, F_SETOWN, 0),
    TRY(fcntl, NO_FD, F_SETOWN_EX, 0),
    TRY(fcntl, NO_FD, F_SETSIG, 0),
    TRY(clone, 0x10000000 /* CLONE_NEWUSER */, 0, 0),
    TRY(clone, 0x20000000 /* CLONE_NEWPID */, 0, 0),
    TRY(clone, 0x40000000 /* CLONE_NEWNET */, 0, 0),
    TRY(socket, AF_UNIX, SOCK_STREAM, 0),
    TRY(socket, AF_PACKET, SOCK_RAW, 0),
#if defined(__x86_64__)
    TRY(chmod, 0, 0),
    TRY(chown, 0, 0, 0),
    TRY(utime, 0, 0),
    TRY(iopl, 9),
#endif
};

/* Refused unless the command reads from other machines. */
static const attempt network[] = {
    TRY(connect, NO_FD, 0, 0),       TRY(sendto, NO_FD, 0, 0),
    TRY(sendmsg, NO_FD, 0, 0),       TRY(recvfrom, NO_FD, 0, 0),
    TRY(socketpair, 0, 0, 0, 0),     TRY(socket, AF_INET, NO_ID, 0),
    TRY(socket, AF_INET6, NO_ID, 0), TRY(socket, AF_NETLINK, NO_ID, 0),
};

/* Calls of every reader and writer. */
static const attempt allowed[] = {
    TRY(read, NO_FD, 0, 0),
    TRY(pwrite64, NO_FD, 0, 0),
    TRY(openat, NO_FD, 0, 0),
    TRY(ftruncate, NO_FD, 0),
    TRY(fallocate, NO_FD, 0, 0, 1),
    TRY(fsync, NO_FD),
    TRY(renameat2, NO_FD, 0, NO_FD, 0),
    TRY(linkat, NO_FD, 0, NO_FD, 0),
    TRY(unlinkat, NO_FD, 0, 0),
    TRY(mkdirat, NO_FD, 0, 0),
    TRY(flock, NO_FD, 0),
    TRY(copy_file_range, NO_FD, 0, NO_FD, 0),
    TRY(sched_getaffinity, 0, 0, 0),
    TRY(prlimit64, 0, NO_ID, 0, 0),
    TRY(prlimit64, OWN, NO_ID, 0, 0),
    TRY(kill, OWN, -2),
    TRY(tgkill, OWN, NO_ID, -2),
    TRY(ioctl, NO_FD, TIOCGWINSZ, 0),
    TRY(ioctl, NO_FD, FIONREAD, 0),
    TRY(fcntl, NO_FD, F_GETFL, 0),
    TRY(fcntl, NO_FD, F_SETLK, 0),
};

static long called(const attempt *a)
{
    // getpid cannot be in a table
    long first = a->argument[0] == OWN ? (long)getpid() : a->argument[0];

    errno = 0;
    return syscall(a->number, first, a->argument[1], a->argument[2], a->argument[3], 0L, 0L);
}

/* True if the filter's answer, and nothing else, came back. */
static bool blocked(const attempt *a)
{
    return called(a) == -1 && errno == EPERM;
}

/* The number of attempts in a list that end otherwise than expected; each is printed. */
static int wrong(const char *list, const attempt *at, size_t n, bool expected)
{
    int failed = 0;

    for (size_t i = 0; i < n; i++) {
        if (blocked(&at[i]) != expected) {
            printf("%s: %s(%ld, %ld): %s\n", list, at[i].name, at[i].argument[0], at[i].argument[1],
                   strerror(errno));
            failed++;
        }
    }
    return failed;
}

#define N(list) (sizeof(list) / sizeof *(list))

/* Enter the filter in a child, and run a check there. */
static void in_child(bool with_network, bool files, int (*check)(bool with_network, bool files))
{
    int status = 0;
    pid_t child;

    if (!seccomp_known())
        skip();
    (void)fflush(stdout);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int failed = seccomp_enforce(with_network, files) ? check(with_network, files) : 100;
        (void)fflush(stdout);
        _exit(failed);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int check_lists(bool with_network, bool files)
{
    const attempt receive = TRY(recvmsg, NO_FD, 0, 0);

    return wrong("refused", refused, N(refused), true) +
           wrong("allowed", allowed, N(allowed), false) +
           wrong("network", network, N(network), !with_network) +
           wrong("receive", &receive, 1, !with_network && !files);
}

static void test_lists(void **state)
{
    (void)state;
    in_child(false, false, check_lists);
    in_child(false, true, check_lists);
    in_child(true, false, check_lists);
    in_child(true, true, check_lists);
}

/* Without the filter none of these calls ends as in it, or the lists would show nothing. */
static void test_without(void **state)
{
    int failed = 0;

    (void)state;
    // as root some of them would succeed, and others need rights that a user lacks
    for (size_t i = 0; i < N(allowed); i++)
        failed += blocked(&allowed[i]);
    for (size_t i = 0; i < N(network); i++)
        failed += blocked(&network[i]);
    assert_int_equal(failed, 0);
}

static int check_life(bool with_network, bool files)
{
    const struct rlimit none = {0, 0};
    struct rlimit now;
    int status = 0;
    pid_t child;

    (void)with_network;
    (void)files;
    // clone3 ends with ENOSYS, so that the C library uses clone instead
    const attempt clone3 = {"clone3", 435, {0, 0}};
    if (called(&clone3) != -1 || errno != ENOSYS)
        return 1;
    child = fork();
    if (child == 0)
        _exit(7);
    if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7)
        return 2;
    if (kill(getpid(), 0) != 0 || kill(getppid(), 0) == 0)
        return 3;
    if (getrlimit(RLIMIT_CORE, &now) != 0 || setrlimit(RLIMIT_CORE, &none) != 0)
        return 4;
    // children inherit the filter, and no process leaves it
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 5;
}

static void test_life(void **state)
{
    (void)state;
    in_child(false, false, check_life);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_without),
        cmocka_unit_test(test_life),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
