/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h: declares running one command in all processes of an MPI job. */
#ifndef TOOLS_MPI_RANKS_H
#define TOOLS_MPI_RANKS_H

#include "ckpt.h"

/*
 * Join the other processes if mpirun or srun started several.  From then on only rank 0 prints;
 * failures of other processes are sent to it.
 *
 * argv    the words of the command, which must be equal in all processes
 * Errors  CKPT_EUNSUPPORTED: there is no plugin; CKPT_EIO: MPI does not start; CKPT_EUSAGE:
 *         different words or variables; those of ckpt_team_join
 */
int ranks_enter(int argc, char **argv, ckpt_err *err);

/* True if the job has other processes. */
bool ranks_shared(void);

/* Print the bytes that the processes have exchanged, one line on stderr. */
void ranks_tell(void);

/* Leave the job with this process's outcome; returns the outcome of all processes. */
int ranks_leave(int rc, ckpt_err *err);

/* Must be the last call, after all output: returns the exit status, which only rank 0 sets. */
int ranks_close(int status);

#endif
