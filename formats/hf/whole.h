/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole.h: are the tensors of a folder those of the model that its config.json describes?
 */
#ifndef CKPT_FORMATS_HF_WHOLE_H
#define CKPT_FORMATS_HF_WHOLE_H

#include "libckpt/map/map.h"

/*
 * Hold the layers and the embedding against config.json: a shard of a split model, or the slice of
 * one rank, may stand under the name of a whole model's file.
 *
 * config  of the folder
 * name    of the weight file or index, for messages
 * Errors  CKPT_EMISSING, a finding where the map collects them
 */
int ckpt_hf_whole(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err);

#endif
