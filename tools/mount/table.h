/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h: declares the present mounts according to the kernel, because folders may have been
 * renamed since mounting, and other file systems may be mounted there.
 */
#ifndef TOOLS_MOUNT_TABLE_H
#define TOOLS_MOUNT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* True if the device is mounted, and also if the table cannot be read. */
bool mount_table_has(dev_t device);

/*
 * Unmount a device wherever it is mounted, even while its files are open.  Mounts of other programs
 * over it or in it stay.
 *
 * Returns  0: it is not mounted any more; -1: see why (room bytes)
 */
int mount_table_clear(dev_t device, char *why, size_t room);

#endif
