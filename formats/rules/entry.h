/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.h: declares the reading of structured entries of universal_checkpoint_info: sub-parameters
 * and affine maps.
 */
#ifndef CKPT_FORMATS_UNI_ENTRY_H
#define CKPT_FORMATS_UNI_ENTRY_H

#include "libckpt/map/slices.h"

/*
 * Read a sub-parameter entry: {shape, partition_dim} and optionally (else NULL) the widths on each
 * rank.  rule->pattern must be set, because messages quote it.
 *
 * Errors   CKPT_EFORMAT: a value differs from the documented form; CKPT_ELIMIT
 */
int ckpt_uni_sub_read(ckpt_slice_rule *rule, ckpt_arena *arena, const ckpt_value *fields,
                      const ckpt_value *width, ckpt_err *err);

/*
 * Read one parameter's affine map: {logical_shape, ranks: {rank: {shard_shape, pieces}}}.
 *
 * pattern  the parameter's pattern, for messages
 * Errors   CKPT_EFORMAT; CKPT_EUNSUPPORTED: a piece with a scale, because it would apply to weights
 *          but not to their moments; CKPT_ELIMIT
 */
int ckpt_uni_affine_read(const ckpt_affine **out, ckpt_arena *arena, const ckpt_value *v,
                         const char *pattern, ckpt_err *err);

#endif
