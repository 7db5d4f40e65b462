/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c: reads the number of processes from the environment variables of MPI launchers.
 */
#include "libckpt/base/launch.h"
#include "libckpt/base/number.h"

#include <stddef.h>
#include <stdlib.h>

long ckpt_launch_count(const char *name)
{
    const char *text = getenv(name);
    int64_t n = -1;

    return text && ckpt_parse_i64(text, &n) && n >= 0 ? (long)n : -1;
}

long ckpt_launch_size(void)
{
    // mpirun's own variable first, because mpirun may run inside a Slurm step and pass that step's
    // variables on. In order: Open MPI; MPICH, Intel MPI and srun --mpi=pmi2; MVAPICH; srun of any
    // kind. SLURM_NTASKS does not count, because a batch script has it without srun.
    static const char *const name[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                                       "SLURM_STEP_NUM_TASKS"};

    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        long n = ckpt_launch_count(name[i]);

        if (n >= 0)
            return n;
    }
    return -1;
}
