/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: asks the kernel for the device of a path, by statx. */
#define _GNU_SOURCE /* statx */
#include "tools/mount/device.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

// musl before 1.2.5 has neither the struct nor the function, but the kernel's header has the struct
#ifndef STATX_TYPE
#include <linux/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#define statx(...) syscall(SYS_statx, __VA_ARGS__)
#endif

bool mount_device(dev_t *out, const char *path, bool follow)
{
    struct statx st;
    int flags = AT_STATX_DONT_SYNC | (follow ? 0 : AT_SYMLINK_NOFOLLOW);

    if (statx(AT_FDCWD, path, flags, 0, &st) != 0)
        return false;
    *out = makedev(st.stx_dev_major, st.stx_dev_minor);
    return true;
}
