/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h: one command carried out by all processes of an MPI job.
 */
#ifndef TOOLS_MPI_RANKS_H
#define TOOLS_MPI_RANKS_H

#include "ckpt.h"

/*
 * Join the other processes, where mpirun or srun started several.  From here on rank 0 alone is
 * heard: what the others print goes nowhere, and failures of any of them reach it.
 *
 * argv    the words of the command, which are to be the same for all
 * Errors  CKPT_EUNSUPPORTED: there is no plugin; CKPT_EIO: MPI does not start; CKPT_EUSAGE: they
 *         were not started alike; those of ckpt_team_join
 */
int ranks_enter(int argc, char **argv, ckpt_err *err);

/* True if there are others. */
bool ranks_shared(void);

/* One line on standard error: what the processes have sent each other. */
void ranks_tell(void);

/* Leave with an outcome; the outcome of all. */
int ranks_leave(int rc, ckpt_err *err);

/* The last thing, when all is printed: the status to exit with, which is rank 0's to tell. */
int ranks_close(int status);

#endif
