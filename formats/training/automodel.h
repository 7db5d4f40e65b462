/* SPDX-License-Identifier: Apache-2.0 */
/*
 * automodel.h: declares how far a checkpoint of NeMo Automodel was saved, which has two forms.
 *
 *     epoch_0_step_20/config.yaml, losses.json, rng/ ...   written first
 *                     model/    a distributed checkpoint (.metadata), or safetensors of each rank
 *                     optim/    a distributed checkpoint, written last
 *
 * Source  nemo_automodel/recipes/base_recipe.py (save_checkpoint) and
 *         components/checkpoint/checkpointing.py of NeMo Automodel (August 2026)
 */
#ifndef CKPT_FORMATS_TRAINING_AUTOMODEL_H
#define CKPT_FORMATS_TRAINING_AUTOMODEL_H

#include "libckpt/copy/runs.h"
#include "libckpt/io/listing.h"

/* True if a checkpoint's save has finished, or the folder is a copy without the optimizer. */
bool ckpt_automodel_saved(const ckpt_listing *step);

/* True for a step's folder that has no finished checkpoint of any form. */
bool ckpt_automodel_cut(const ckpt_listing *step);

/* The layout of runs with models in sharded safetensors. */
extern const ckpt_run_layout ckpt_automodel_shards;

/* A file in a checkpoint's model folder that is neither of its forms: an adapter; or NULL. */
const char *ckpt_automodel_other(const ckpt_listing *step);

#endif
