/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide.h: declares how the modules of diffusion models that loaders hold in F32 keep their dtype.
 */
#ifndef CKPT_FORMATS_HF_WIDE_H
#define CKPT_FORMATS_HF_WIDE_H

#include "libckpt/map/map.h"

/*
 * Give these modules' tensors the dtype that the source has, if all floats are to be written in F16
 * or BF16, and note it.
 *
 * to, from  one model, under its own names
 * class     "WanTransformer3DModel"; classes without such modules change nothing
 * dtype     the requested dtype of all floats; NONE: as they are
 */
int ckpt_hf_keep_wide(ckpt_map *to, const ckpt_map *from, const char *class, ckpt_dtype dtype,
                      ckpt_err *err);

#endif
