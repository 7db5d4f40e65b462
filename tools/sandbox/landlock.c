/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock.c: makes the system calls of Landlock, which the C library lacks.
 *
 * It has its own definitions, because headers may be older than the kernel.  That is safe: new
 * rights are only ever appended, and a kernel accepts a structure longer than the one it knows if
 * the rest is zero.  Source: Documentation/userspace-api/landlock.rst of Linux
 */
#define _GNU_SOURCE /* O_PATH, syscall */
#include "tools/sandbox/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The numbers are equal on all architectures. */
enum { LL_CREATE = 444, LL_ADD = 445, LL_RESTRICT = 446 };
enum { LL_VERSION = 1, LL_BENEATH = 1 };

enum {
    LL_EXECUTE = 1 << 0,
    LL_WRITE_FILE = 1 << 1,
    LL_READ_FILE = 1 << 2,
    LL_READ_DIR = 1 << 3,
    LL_REMOVE_DIR = 1 << 4,
    LL_REMOVE_FILE = 1 << 5,
    LL_MAKE_DIR = 1 << 7,
    LL_MAKE_REG = 1 << 8,
    LL_FIRST = (1 << 13) - 1, /* all rights of version 1 */
    LL_REFER = 1 << 13,       /* 2 */
    LL_TRUNCATE = 1 << 14,    /* 3 */
    LL_IOCTL_DEV = 1 << 15,   /* 5 */
    LL_NET = 3,               /* 4: TCP bind and connect */
    LL_SCOPES = 3,            /* 6: abstract sockets and signals of other processes */
    LL_OF_FILES = LL_EXECUTE | LL_WRITE_FILE | LL_READ_FILE | LL_TRUNCATE | LL_IOCTL_DEV
};

typedef struct land_rules {
    uint64_t fs, net, scoped;
} land_rules;

/* Packed, because the kernel's structure has no padding. */
typedef struct __attribute__((packed)) land_beneath {
    uint64_t allowed;
    int32_t fd;
} land_beneath;

int landlock_abi(void)
{
    long abi = syscall(LL_CREATE, NULL, (size_t)0, LL_VERSION);

    return abi > 0 ? (int)abi : 0;
}

/* All file rights of a version; the process loses those that no rule allows. */
static uint64_t land_known(int abi)
{
    return LL_FIRST | (abi >= 2 ? LL_REFER : 0) | (abi >= 3 ? LL_TRUNCATE : 0) |
           (abi >= 5 ? LL_IOCTL_DEV : 0);
}

int landlock_new(bool writes, bool network)
{
    int abi = landlock_abi();
    const land_rules rules = {
        .fs = land_known(abi),
        .net = abi >= 4 && !network ? LL_NET : 0,
        .scoped = abi >= 6 ? LL_SCOPES : 0,
    };

    if (abi < (writes ? 2 : 1))
        return -1;
    return (int)syscall(LL_CREATE, &rules, sizeof rules, 0);
}

/* The kernel's rights for a use. */
static uint64_t land_rights(unsigned use)
{
    uint64_t rights = 0;

    if (use & LANDLOCK_READ)
        rights |= LL_READ_FILE | LL_READ_DIR;
    if (use & LANDLOCK_WRITE)
        rights |= LL_WRITE_FILE | LL_TRUNCATE | LL_REMOVE_FILE | LL_REMOVE_DIR | LL_MAKE_DIR |
                  LL_MAKE_REG | LL_REFER;
    if (use & LANDLOCK_RMDIR)
        rights |= LL_REMOVE_DIR;
    return rights & land_known(landlock_abi());
}

bool landlock_allow(int rules, int at, const char *path, unsigned use)
{
    land_beneath rule = {.allowed = land_rights(use)};
    struct stat st;

    do
        rule.fd = openat(at, path, O_PATH | O_CLOEXEC);
    while (rule.fd < 0 && errno == EINTR);
    if (rule.fd < 0)
        return false;
    // the kernel refuses folder rights on other files
    if (fstat(rule.fd, &st) == 0 && !S_ISDIR(st.st_mode))
        rule.allowed &= LL_OF_FILES;
    if (rule.allowed)
        (void)syscall(LL_ADD, rules, LL_BENEATH, &rule, 0);
    (void)close(rule.fd);
    return true;
}

bool landlock_enforce(int rules)
{
    bool done = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(LL_RESTRICT, rules, 0) == 0;

    (void)close(rules);
    return done;
}
