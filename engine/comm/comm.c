/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c: owns the parts that every kind of communicator shares: agreeing on an outcome, reading a
 * launcher's environment, freeing.
 */
#include "engine/comm/comm.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/launch.h"

void zt_comm_free(zt_comm *c)
{
    if (c)
        c->ops->free(c);
}

bool zt_comm_launched(void)
{
    return ckpt_launch_size() > 1;
}

/*
 * The environment variables in which a launcher passes the number of processes and this process'
 * rank.
 */
typedef struct cm_told {
    const char *size, *rank;
    bool torch; /* scripts that use torch.distributed set these for MPI ranks, too */
    bool job;   /* set for every process of a cluster job, so mpirun may start in one */
} cm_told;

static const cm_told cm_launchers[] = {
    {"WORLD_SIZE", "RANK", true, false},
    {"LOCAL_WORLD_SIZE", "LOCAL_RANK", true, false},
    {"SLURM_NTASKS", "SLURM_PROCID", false, true},
    {"FLUX_JOB_SIZE", "FLUX_TASK_RANK", false, true},
    {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", false, false},
    {"HOROVOD_SIZE", "HOROVOD_RANK", false, false},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", false, false},
    {"PMI_SIZE", "PMI_RANK", false, false},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", false, false},
    {"PMIX_SIZE", "PMIX_RANK", false, false},
    {"PALS_SIZE", "PALS_RANKID", false, false},
};

int zt_comm_alone(bool launching, ckpt_err *err)
{
    long mpi = ckpt_launch_size();

    for (size_t i = 0; i < sizeof cm_launchers / sizeof *cm_launchers; i++) {
        const cm_told *t = &cm_launchers[i];
        long size = ckpt_launch_count(t->size), rank = ckpt_launch_count(t->rank),
             n = mpi > 1 ? mpi : 1;
        const char *name = size > 1 ? t->size : t->rank;

        // MPI's own variables describe its ranks better than those of the surrounding job
        if ((mpi >= 0 && !t->torch) || (launching && t->job))
            continue;
        // LOCAL_WORLD_SIZE and the like may be smaller than n, because a job may have several nodes
        if (strcmp(t->size, "WORLD_SIZE") == 0 ? size <= 1 || size == n : size <= n) {
            if (rank < n)
                continue;
            name = t->rank;
        }
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s is %s, but %s: the processes were not started by MPI, so that each "
                         "would train alone; start them by 'mpirun -n N zerotrain ...' (or srun "
                         "--mpi=pmix, or zerotrain --num_gpus N), or unset %s",
                         name, getenv(name),
                         mpi > 1 ? "MPI's launcher set another number" : "MPI sees one process",
                         name);
    }
    return CKPT_OK;
}

int zt_comm_agree(zt_comm *c, int rc, ckpt_err *err)
{
    int32_t lowest = rc != CKPT_OK ? c->rank : INT_MAX;
    ckpt_err told = {.code = CKPT_OK}, failed = {.code = CKPT_OK};
    int bad;

    assert(c->rank >= 0 && c->rank < c->world);
    if (rc != CKPT_OK && err && err->code != CKPT_OK) {
        told = *err;
        told.code = rc;
    } else if (rc != CKPT_OK) {
        ckpt_fail(&told, rc, "%s", ckpt_err_text(rc));
    }
    bad = c->ops->all_reduce(c, &lowest, 1, CKPT_I32, ZT_MIN, &failed);
    if (bad == CKPT_OK && lowest == INT_MAX)
        return CKPT_OK;
    if (bad == CKPT_OK)
        bad = c->ops->broadcast(c, &told, sizeof told, lowest, &failed);
    if (bad != CKPT_OK) {
        // if the broadcast failed, this rank's own failure is the better explanation
        told = rc != CKPT_OK ? told : failed;
    }
    told.text[sizeof told.text - 1] = 0;
    if (err)
        *err = told;
    return told.code;
}
