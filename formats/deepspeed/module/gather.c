/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.c: completes the model file's `module` dict from the layer and expert files next to it.
 */
#include <inttypes.h>

#include "formats/deepspeed/layout/autoep.h"
#include "formats/deepspeed/module/experts.h"
#include "formats/deepspeed/module/module.h"
#include "formats/deepspeed/module/pipe.h"

/* Returns whether a number, or an item of a list, is greater than one. */
static bool dsb_several(const ckpt_value *v)
{
    ckpt_seq list = ckpt_value_seq(v);
    int64_t n = 0;
    bool several = ckpt_value_as_int(v, &n) && n > 1;

    for (uint64_t i = 0; i < list.n; i++)
        several = several || (ckpt_value_as_int(list.at[i], &n) && n > 1);
    return several;
}

/* Reads AutoEP's layers; AutoEP is supported only with ZeRO and without model parallelism. */
static int dsb_autoep(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head)
{
    int rc = ckpt_ds_autoep_read(job, head);

    if (rc != CKPT_OK || head->autoep.n == 0)
        return rc;
    // the files of the experts have the weights of stages 1 and 2, too
    const char *why = head->stage == 0 && !job->opts->weights_only ? "without ZeRO"
                      : dir->n_mp > 1 || dir->layers.n ? "with tensor or pipeline parallelism"
                                                       : NULL;
    if (why)
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: AutoEP %s is not supported: ckpt reads it with ZeRO stages 1, 2 and "
                         "3 without model parallelism",
                         head->model.path, why);
    if (head->stage == 3 && dir->experts.n)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: a file of an expert, which stage 3 does not write: left behind "
                               "by another run; move it away",
                               dir->experts.at[0].path);
    return rc;
}

/*
 * Checks that the files of all model-parallel ranks and of all experts are present, because one
 * slice is not the model.
 */
static int dsb_complete(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head)
{
    const ckpt_value *degrees = ckpt_ds_head_get(head, "checkpoint_parallel_dimensions");
    int64_t tp = 1, pp = 1, n = 0;
    int rc = dsb_autoep(job, dir, head);

    if (rc != CKPT_OK || (head->autoep.n && job->broken))
        return rc;
    // Stage 3 partitions experts like all other parameters.
    if (dsb_several(ckpt_ds_head_get(head, "num_experts")) && dir->experts.n == 0 &&
        !(head->autoep.n && head->stage == 3))
        return ckpt_ds_problem(job, CKPT_EMISSING,
                               "%s: missing: a mixture of experts needs the files of its experts "
                               "(layer_*_expert_*_model_states.pt): they were not copied",
                               job->map->path);
    (void)ckpt_value_as_int(ckpt_value_get(degrees, "tp_degree"), &tp);
    (void)ckpt_value_as_int(ckpt_value_get(degrees, "pp_degree"), &pp);
    if (!ckpt_value_as_int(ckpt_ds_head_get(head, "mp_world_size"), &n) || n < 1)
        n = dir->n_mp;
    if (degrees && tp > 0 && pp > 0 && tp <= INT32_MAX && pp <= INT32_MAX)
        n = tp * pp;
    if (n == dir->n_mp)
        return CKPT_OK;
    return ckpt_ds_problem(
        job, n > dir->n_mp ? CKPT_EMISSING : CKPT_EMISMATCH,
        "%s: the run had %" PRId64
        " model-parallel (tensor x pipeline) ranks, but there are files of %" PRIu32 ": %s",
        head->model.path, n, dir->n_mp,
        n > dir->n_mp ? "missing: a process did not save, or its files were "
                        "not copied"
                      : "those of an earlier, larger run were left behind");
}

int ckpt_ds_module_gather(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                          const ckpt_ds_pipe *pipe)
{
    const ckpt_value *module = ckpt_value_get(head->model.root, "module");
    int rc = dsb_complete(job, dir, head);

    if (rc == CKPT_OK && module && module->kind == CKPT_V_NONE)
        rc = ckpt_ds_pipe_module(job, dir, head, pipe);
    else if (rc == CKPT_OK && dir->layers.n)
        rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                             "%s: holds a whole module, but there are also files of pipeline "
                             "layers, such as %s: one of them was left behind by another run",
                             head->model.path, dir->layers.at[0].path);
    if (rc == CKPT_OK && dir->experts.n)
        rc = ckpt_ds_moe_module(job, dir, head);
    if (rc == CKPT_OK && dir->optimizer)
        rc = ckpt_ds_moe_optimizer(job, dir, head);
    return rc;
}
