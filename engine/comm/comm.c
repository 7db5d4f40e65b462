/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c: owns what is the same for every kind of communicator: agreeing on an outcome, knowing a
 * launcher's environment, freeing.
 */
#include "engine/comm/comm.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void zt_comm_free(zt_comm *c)
{
    if (c) {
        c->ops->free(c);
    }
}

/* A variable's value as a count; -1: not set, or no number. */
static long cm_count(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    long n;

    if (!text || !*text) {
        return -1;
    }
    n = strtol(text, &end, 10);
    return *end == 0 && n >= 0 ? n : -1;
}

bool zt_comm_launched(void)
{
    // mpirun's own first: it may run inside a Slurm step, whose variables it passes on.
    // Open MPI; MPICH, Intel MPI and srun --mpi=pmi2; MVAPICH; srun of any kind.  A batch script
    // has SLURM_NTASKS too, though srun did not start it: only a step counts.
    static const char *const name[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                                       "SLURM_STEP_NUM_TASKS"};

    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        long n = cm_count(name[i]);

        if (n >= 0) {
            return n > 1;
        }
    }
    return false;
}

int zt_comm_agree(zt_comm *c, int rc, ckpt_err *err)
{
    int32_t lowest = rc != CKPT_OK ? c->rank : INT_MAX;
    ckpt_err told = {.code = CKPT_OK}, failed = {.code = CKPT_OK};
    int bad;

    if (rc != CKPT_OK && err && err->code != CKPT_OK) {
        told = *err;
        told.code = rc;
    } else if (rc != CKPT_OK) {
        ckpt_fail(&told, rc, "%s", ckpt_err_text(rc));
    }
    bad = c->ops->all_reduce(c, &lowest, 1, CKPT_I32, ZT_MIN, &failed);
    if (bad == CKPT_OK && lowest == INT_MAX) {
        return CKPT_OK;
    }
    if (bad == CKPT_OK) {
        bad = c->ops->broadcast(c, &told, sizeof told, lowest, &failed);
    }
    if (bad != CKPT_OK) {
        // the others cannot be asked: an own failure is the better explanation
        told = rc != CKPT_OK ? told : failed;
    }
    told.text[sizeof told.text - 1] = 0;
    if (err) {
        *err = told;
    }
    return told.code;
}
