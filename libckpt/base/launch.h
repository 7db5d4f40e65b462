/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h: what the launchers of parallel programs leave in the environment.
 */
#ifndef CKPT_BASE_LAUNCH_H
#define CKPT_BASE_LAUNCH_H

/* A variable's value as a count; -1: not set, or no number. */
long ckpt_launch_count(const char *name);

/* How many processes an MPI launcher says there are; -1: none started this one. */
long ckpt_launch_size(void);

#endif
