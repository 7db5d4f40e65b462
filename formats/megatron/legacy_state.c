/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy_state.c: owns the optimizers' state of ranks' files.
 */
#include "formats/megatron/legacy.h"

int ckpt_meg_legacy_state(ckpt_meg_job *job, ckpt_meg_grid *grid)
{
    (void)grid;
    job->map->no_state = "the optimizer state of files for each rank is not read here: load it in "
                         "Megatron and save it with --ckpt-format torch_dist";
    return CKPT_OK;
}
