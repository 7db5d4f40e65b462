/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounter.h: declares a process that mounts and unmounts on behalf of the reader of a checkpoint,
 * whose sandbox forbids that.
 *
 * It starts before the reader enters the sandbox, and ends with the reader in every case: even
 * after kill -9 of the reader no mount stays.  For a daemon it also writes messages to the system
 * log.
 */
#ifndef TOOLS_MOUNT_MOUNTER_H
#define TOOLS_MOUNT_MOUNTER_H

#include "tools/mount/plugin.h"

typedef struct mounter mounter;

typedef struct mounter_opts {
    const char *dir;  /* an empty folder, or one to create */
    const char *from; /* source that `mount` displays */
    bool allow_other; /* other users may use the mount, too */
    bool daemon;      /* the call returns in a new process; the old one waits and exits */
} mounter_opts;

/*
 * Load the plugin and start the process.  The strings must outlive it.
 *
 * Errors   CKPT_EUNSUPPORTED: no plugin; CKPT_EUSAGE: dir is not empty, or no folder; CKPT_EIO: dir
 *          cannot be created, or mounting is not possible
 */
int mounter_begin(mounter **out, const mounter_opts *opts, ckpt_err *err);
const mount_plugin *mounter_plugin(const mounter *m);

/*
 * Mount; *fd is the device.
 *
 * Errors   CKPT_EIO, with the reason
 */
int mounter_attach(const mounter *m, int *fd, ckpt_err *err);

/*
 * Call when requests are being served.  The old process of a daemon exits after the first answer;
 * the daemon then releases stdin, stdout, stderr and descriptors inherited from its caller, and
 * messages go to the system log.
 *
 * Errors   CKPT_EIO: the process has gone
 */
int mounter_serving(const mounter *m, ckpt_err *err);

/*
 * Unmount, even if the mount has been moved.  Later accesses do not wait for answers.
 *
 * Errors   CKPT_EIO: the process has gone; another file system is mounted over it
 */
int mounter_unmount(const mounter *m, ckpt_err *err);

/*
 * Unmount and end the process; a daemon's ends when it has logged all messages of the reader.
 * Frees m; NULL is fine.
 */
void mounter_end(mounter *m);

#endif
