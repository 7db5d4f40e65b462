/* SPDX-License-Identifier: Apache-2.0 */
/* mail.h: declares the interface between ckpt and its MPI plugin. */
#ifndef TOOLS_MPI_MAIL_H
#define TOOLS_MPI_MAIL_H

#include "ckpt_team.h"

/* Names of the plugin and of its functions. */
#define MAIL_PLUGIN "libckpt-mpi.so"
#define MAIL_OPEN   "ckpt_mpi_open"
#define MAIL_CLOSE  "ckpt_mpi_close"

/*
 * Start MPI; all processes of the job must call it.  why: a buffer of `room` bytes for an error
 * text.
 *
 * Returns  0; -1: error, see why
 */
CKPT_API int ckpt_mpi_open(ckpt_mail *out, char *why, size_t room);
CKPT_API void ckpt_mpi_close(void);

#endif
