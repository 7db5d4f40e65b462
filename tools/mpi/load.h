/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h: the MPI plugin, where the program can load one.
 */
#ifndef TOOLS_MPI_LOAD_H
#define TOOLS_MPI_LOAD_H

#include "ckpt.h"

/*
 * The plugin's functions (mail.h): CKPT_MPI_PLUGIN names its file; else it is looked for in
 * ../lib/ckpt and ../lib beside the program, then where the loader looks.
 *
 * Errors  CKPT_EUNSUPPORTED: there is none, it is none of this program's, or the program is one
 *         static file (none.c is linked in the place of load.c)
 */
int plugin_load(int (**start)(ckpt_mail *, char *, size_t), void (**close)(void), ckpt_err *err);

#endif
