/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h: what is mounted where, as the kernel has it: paths that were given may have been renamed
 * since, and other things may be mounted at them.
 */
#ifndef TOOLS_MOUNT_TABLE_H
#define TOOLS_MOUNT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The device is mounted somewhere; also where the table cannot be read. */
bool mount_table_has(dev_t device);

/*
 * Unmount a device wherever it is mounted, also while files of it are open; never what somebody
 * else has mounted over it, or in it.
 *
 * Returns  0: it is mounted nowhere; -1: why, in room bytes
 */
int mount_table_clear(dev_t device, char *why, size_t room);

#endif
