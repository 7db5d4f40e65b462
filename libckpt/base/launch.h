/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h: reads the environment variables of parallel launchers.
 */
#ifndef CKPT_BASE_LAUNCH_H
#define CKPT_BASE_LAUNCH_H

/* A variable's value as a count; -1: not set, or no number. */
long ckpt_launch_count(const char *name);

/* The number of processes that an MPI launcher started; -1: there was no launcher. */
long ckpt_launch_size(void);

#endif
