/* SPDX-License-Identifier: Apache-2.0 */
/* device.h: declares the search for the device of a mount, which works while its server is busy. */
#ifndef TOOLS_MOUNT_DEVICE_H
#define TOOLS_MOUNT_DEVICE_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Get the number of the device that a path is on, without asking the file system's server.
 *
 * follow   follow a symbolic link at the end of the path
 * Returns  false, with errno
 */
bool mount_device(dev_t *out, const char *path, bool follow);

#endif
