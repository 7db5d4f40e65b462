/* SPDX-License-Identifier: Apache-2.0 */
/*
 * none.c: in the place of load.c where the program is one static file, which can load nothing.
 */
#include "tools/mpi/load.h"

#include "tools/cli/out.h"

int plugin_load(int (**start)(ckpt_mail *, char *, size_t), void (**close)(void), ckpt_err *err)
{
    (void)start;
    (void)close;
    return fail(err, CKPT_EUNSUPPORTED,
                "a launcher has started several processes, and this ckpt is one static file, which "
                "can load no MPI plugin: use one that was built or installed with MPI, or start "
                "one process (CKPT_MPI=no)");
}
