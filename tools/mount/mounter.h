/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounter.h: a process that mounts and unmounts for the one that reads a checkpoint, which has no
 * right to.
 *
 * It is started before the reader gives up its rights, and ends with it, whatever ends that: also
 * after kill -9 of the reader nothing stays mounted.  Of a daemon it writes the messages to the
 * system's log.
 */
#ifndef TOOLS_MOUNT_MOUNTER_H
#define TOOLS_MOUNT_MOUNTER_H

#include "tools/mount/plugin.h"

typedef struct mounter mounter;

typedef struct mounter_opts {
    const char *dir;  /* an empty folder, or one that is to be made */
    const char *from; /* what is shown as the source */
    bool allow_other; /* than the user who mounts it */
    bool daemon;      /* this call returns in a new process; the old one waits and ends */
} mounter_opts;

/*
 * Load the plugin and start the process.  The strings outlive it.
 *
 * Errors   CKPT_EUNSUPPORTED: no plugin; CKPT_EUSAGE: dir is not empty, or no folder; CKPT_EIO:
 *          it cannot be made, nothing can be mounted
 */
int mounter_begin(mounter **out, const mounter_opts *opts, ckpt_err *err);
const mount_plugin *mounter_plugin(const mounter *m);

/*
 * Mount; *fd is the device.
 *
 * Errors   CKPT_EIO: the text says why
 */
int mounter_attach(const mounter *m, int *fd, ckpt_err *err);

/*
 * Requests are answered from now on.  Who started a daemon is told when one has been; its stdin,
 * stdout, stderr and what else its caller had open are let go, and messages go to the system's log.
 *
 * Errors   CKPT_EIO: the process is gone
 */
int mounter_serving(const mounter *m, ckpt_err *err);

/*
 * Unmount, wherever it is mounted by now: whoever asks for something from then on does not wait for
 * answers.
 *
 * Errors   CKPT_EIO: the process is gone; something is mounted over it
 */
int mounter_unmount(const mounter *m, ckpt_err *err);

/*
 * The same, and end the process: of a daemon when it has logged what is said until the reader ends.
 * Frees m; NULL is fine.
 */
void mounter_end(mounter *m);

#endif
