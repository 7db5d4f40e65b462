/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp.c: lists the refused system calls, and installs the filter.
 *
 * It is a list of refused calls, not of allowed ones, because the C library, OpenSSL and threads
 * use other calls with every release, and a new one must not end a conversion.  Refused are all
 * calls that affect more than this process's own memory and files.  Landlock protects the contents
 * of files, but not their modes, owners, times and attributes, so those calls are refused here.  A
 * refused call fails with EPERM, an error that every caller handles.
 */
#define _GNU_SOURCE /* syscall, F_SETSIG, CLONE_NEWUSER */
#include "tools/sandbox/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define SC_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define SC_ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define SC_ARCH AUDIT_ARCH_RISCV64
#else
#define SC_ARCH 0 /* no filter, because the numbers below are those of other architectures */
#endif

/* Numbers that all architectures share; headers may be older than the kernel. */
enum {
    SC_PIDFD_SEND_SIGNAL = 424,
    SC_IO_URING_FIRST = 425, /* setup, enter, register */
    SC_OPEN_TREE = 428,      /* up to 433: move_mount, fsopen, fsconfig, fsmount, fspick */
    SC_PIDFD_OPEN = 434,
    SC_PIDFD_GETFD = 438,
    SC_CLONE3 = 435,
    SC_PROCESS_MADVISE = 440,
    SC_MOUNT_SETATTR = 442,
    SC_QUOTACTL_FD = 443,
    SC_PROCESS_MRELEASE = 448,
    SC_FCHMODAT2 = 452,
    SC_LSM_SET_SELF_ATTR = 460,
    SC_SETXATTRAT = 463,
    SC_REMOVEXATTRAT = 466,
    SC_FILE_SETATTR = 469
};

static const int comp_refused[] = {
    // starting programs
    SYS_execve,
    SYS_execveat,
    // accepting connections
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    // access to other processes
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SC_PIDFD_SEND_SIGNAL,
    SC_PIDFD_OPEN,
    SC_PIDFD_GETFD,
    SC_PROCESS_MADVISE,
    SYS_shmget,
    SYS_shmat,
    SYS_msgget,
    SYS_semget,
    SYS_mq_open,
    SYS_setpriority,
    SYS_ioprio_set,
    SYS_setpgid,
    SYS_get_robust_list,
    SC_PROCESS_MRELEASE,
    SYS_move_pages,
    SYS_migrate_pages,
    // metadata of files, and truncation by path, which Landlock 1 and 2 do not restrict
    SYS_fchmod,
    SYS_fchmodat,
    SC_FCHMODAT2,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SC_SETXATTRAT,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SC_REMOVEXATTRAT,
    SC_FILE_SETATTR,
    SYS_truncate,
    SYS_inotify_init1,
#if defined(__x86_64__)
    // calls that newer architectures never had
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_inotify_init,
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
    // other views of the file system, and access to files without a path
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SC_OPEN_TREE,
    SC_OPEN_TREE + 1,
    SC_OPEN_TREE + 2,
    SC_OPEN_TREE + 3,
    SC_OPEN_TREE + 4,
    SC_OPEN_TREE + 5,
    SC_MOUNT_SETATTR,
    SYS_open_by_handle_at,
    SYS_quotactl,
    SC_QUOTACTL_FD,
    SYS_swapon,
    SYS_swapoff,
    // calls that can hide other calls, and further kernel interfaces
    SC_IO_URING_FIRST,
    SC_IO_URING_FIRST + 1,
    SC_IO_URING_FIRST + 2,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_fanotify_init,
    // control of the machine
    SYS_reboot,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_acct,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_vhangup,
    SYS_personality,
    // identity of the user
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_capset,
    SC_LSM_SET_SELF_ATTR,
};

/* Calls on the process in the first argument; 0 means this one. */
static const int comp_own[] = {
    SYS_prlimit64,          SYS_sched_setaffinity, SYS_sched_setparam,
    SYS_sched_setscheduler, SYS_sched_setattr,
};

/* Network calls; writing to stdout does not need them, even if it is a socket. */
static const int comp_network[] = {
    SYS_socketpair, SYS_connect,  SYS_sendto,  SYS_sendmsg,
    SYS_sendmmsg,   SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg,
};

enum {
    SC_N = sizeof comp_refused / sizeof *comp_refused,
    SC_N_NETWORK = sizeof comp_network / sizeof *comp_network,
    SC_N_OWN = sizeof comp_own / sizeof *comp_own,
    SC_ROOM = 2 * (SC_N + SC_N_NETWORK) + 6 * SC_N_OWN + 64
};

#define SC_FIELD(field) ((uint32_t)offsetof(struct seccomp_data, field))
/* the low half of an argument; the supported architectures are little-endian */
#define SC_LOAD(field)   (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SC_FIELD(field))
#define SC_END(action)   (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, (action))
#define SC_SKIP(k, t, f) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (k), (t), (f))
#define SC_REFUSE        (SECCOMP_RET_ERRNO | EPERM)

/* Allow a call only on this process itself, which its first argument names. */
static size_t comp_self(struct sock_filter *at, uint32_t call)
{
    at[0] = SC_SKIP(call, 0, 4);
    at[1] = SC_LOAD(args[0]);
    at[2] = SC_SKIP((uint32_t)getpid(), 0, 1);
    at[3] = SC_END(SECCOMP_RET_ALLOW);
    at[4] = SC_END(SC_REFUSE);
    return 5;
}

/* Allow a call only on this process itself, which its first argument names by 0 or by its id. */
static size_t comp_own_process(struct sock_filter *at, uint32_t call)
{
    at[0] = SC_SKIP(call, 0, 5);
    at[1] = SC_LOAD(args[0]);
    at[2] = SC_SKIP(0, 1, 0);
    at[3] = SC_SKIP((uint32_t)getpid(), 0, 1);
    at[4] = SC_END(SECCOMP_RET_ALLOW);
    at[5] = SC_END(SC_REFUSE);
    return 6;
}

/*
 * ioctl: refuse typing into the user's terminal, signals to other processes, and all requests of
 * file systems, because these change flags, labels, encryption and subvolumes even through a
 * read-only descriptor.
 */
static size_t comp_ioctl(struct sock_filter *at)
{
    static const uint32_t refused[] = {TIOCSTI, 0x541C /* TIOCLINUX pastes the selection */,
                                       FIOSETOWN, SIOCSPGRP};
    // request groups, by the second byte: 'f' and 'v' of all file systems, 'X' of XFS, 0x94 of
    // btrfs
    static const uint32_t letters[] = {'f' << 8, 'v' << 8, 'X' << 8, 0x94 << 8};
    enum { N = sizeof refused / sizeof *refused, LETTERS = sizeof letters / sizeof *letters };
    size_t n = 2;

    at[0] = SC_SKIP(SYS_ioctl, 0, N + LETTERS + 4);
    at[1] = SC_LOAD(args[1]);
    for (size_t i = 0; i < N; i++, n++)
        at[n] = SC_SKIP(refused[i], (uint8_t)(N - i + LETTERS + 1), 0);
    at[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00);
    for (size_t i = 0; i < LETTERS; i++, n++)
        at[n] = SC_SKIP(letters[i], (uint8_t)(LETTERS - i), 0);
    at[n++] = SC_END(SECCOMP_RET_ALLOW);
    at[n++] = SC_END(SC_REFUSE);
    return n;
}

/* fcntl: refuse a chosen signal to a chosen process when a descriptor becomes ready. */
static size_t comp_fcntl(struct sock_filter *at)
{
    at[0] = SC_SKIP(SYS_fcntl, 0, 6);
    at[1] = SC_LOAD(args[1]);
    at[2] = SC_SKIP(F_SETOWN, 3, 0);
    at[3] = SC_SKIP(F_SETOWN_EX, 2, 0);
    at[4] = SC_SKIP(F_SETSIG, 1, 0);
    at[5] = SC_END(SECCOMP_RET_ALLOW);
    at[6] = SC_END(SC_REFUSE);
    return 7;
}

/*
 * Allow threads and processes, but no namespaces, because a process would gain privileges in them.
 * The flags of clone3 are in memory, which filters cannot read, so it fails with ENOSYS; the C
 * library then uses clone.
 */
static size_t comp_clone(struct sock_filter *at)
{
    const uint32_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

    at[0] = SC_SKIP(SC_CLONE3, 0, 1);
    at[1] = SC_END(SECCOMP_RET_ERRNO | ENOSYS);
    at[2] = SC_SKIP(SYS_clone, 0, 4);
    at[3] = SC_LOAD(args[0]);
    at[4] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, namespaces, 1, 0);
    at[5] = SC_END(SECCOMP_RET_ALLOW);
    at[6] = SC_END(SC_REFUSE);
    return 7;
}

static size_t comp_refuse(struct sock_filter *at, uint32_t call)
{
    at[0] = SC_SKIP(call, 0, 1);
    at[1] = SC_END(SC_REFUSE);
    return 2;
}

/* Allow internet sockets, and netlink, which lists this machine's addresses. */
static size_t comp_socket(struct sock_filter *at)
{
    at[0] = SC_SKIP(SYS_socket, 0, 6);
    at[1] = SC_LOAD(args[0]);
    at[2] = SC_SKIP(AF_INET, 2, 0);
    at[3] = SC_SKIP(AF_INET6, 1, 0);
    at[4] = SC_SKIP(AF_NETLINK, 0, 1);
    at[5] = SC_END(SECCOMP_RET_ALLOW);
    at[6] = SC_END(SC_REFUSE);
    return 7;
}

/* Build the filter; returns the number of instructions. */
static size_t comp_filter(struct sock_filter at[SC_ROOM], bool network, bool files)
{
    size_t n = 0;

    // on another architecture the numbers mean other calls
    at[n++] = SC_LOAD(arch);
    at[n++] = SC_SKIP(SC_ARCH, 1, 0);
    at[n++] = SC_END(SC_REFUSE);
    at[n++] = SC_LOAD(nr);
#if defined(__x86_64__)
    // x32 has the same architecture value but other numbers
    at[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
    at[n++] = SC_END(SC_REFUSE);
#endif
    for (size_t i = 0; i < SC_N; i++)
        n += comp_refuse(at + n, (uint32_t)comp_refused[i]);
    for (size_t i = 0; i < SC_N_NETWORK && !network; i++) {
        if (!files || comp_network[i] != SYS_recvmsg)
            n += comp_refuse(at + n, (uint32_t)comp_network[i]);
    }
    n += network ? comp_socket(at + n) : comp_refuse(at + n, SYS_socket);
    n += comp_self(at + n, SYS_kill);
    n += comp_self(at + n, SYS_tgkill);
    for (size_t i = 0; i < SC_N_OWN; i++)
        n += comp_own_process(at + n, (uint32_t)comp_own[i]);
    n += comp_ioctl(at + n);
    n += comp_fcntl(at + n);
    n += comp_clone(at + n);
    at[n++] = SC_END(SECCOMP_RET_ALLOW);
    return n;
}

bool seccomp_known(void)
{
    uint32_t action = SECCOMP_RET_ERRNO;

    return SC_ARCH != 0 && syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

bool seccomp_enforce(bool network, bool files)
{
    struct sock_filter filter[SC_ROOM];
    const struct sock_fprog program = {.len = (unsigned short)comp_filter(filter, network, files),
                                       .filter = filter};

    if (SC_ARCH == 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    // allow speculation, because no foreign code runs here: the mitigation would only cost time
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                   &program) == 0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}
