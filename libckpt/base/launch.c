/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c: owns the names of the variables that say how many processes an MPI launcher started.
 */
#include "libckpt/base/launch.h"

#include <stddef.h>
#include <stdlib.h>

long ckpt_launch_count(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    long n;

    if (!text || !*text)
        return -1;
    n = strtol(text, &end, 10);
    return *end == 0 && n >= 0 ? n : -1;
}

long ckpt_launch_size(void)
{
    // mpirun's own first: it may run inside a Slurm step, whose variables it passes on.
    // Open MPI; MPICH, Intel MPI and srun --mpi=pmi2; MVAPICH; srun of any kind.  A batch script
    // has SLURM_NTASKS too, though srun did not start it: only a step counts.
    static const char *const name[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                                       "SLURM_STEP_NUM_TASKS"};

    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        long n = ckpt_launch_count(name[i]);

        if (n >= 0)
            return n;
    }
    return -1;
}
