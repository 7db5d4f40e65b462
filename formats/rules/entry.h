/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.h: entries of universal_checkpoint_info that are more than a pattern: sub-parameters
 * and affine maps.
 */
#ifndef CKPT_FORMATS_UNI_ENTRY_H
#define CKPT_FORMATS_UNI_ENTRY_H

#include "libckpt/map/slices.h"

/*
 * Sub-parameters: {shape, partition_dim} and, or NULL, their widths on each rank.  rule->pattern is
 * set already, for messages.
 *
 * Errors   CKPT_EFORMAT: not what the keys are documented to hold; CKPT_ELIMIT
 */
int ckpt_uni_sub_read(ckpt_slice_rule *rule, ckpt_arena *arena, const ckpt_value *fields,
                      const ckpt_value *width, ckpt_err *err);

/*
 * One parameter's affine map: {logical_shape, ranks: {rank: {shard_shape, pieces}}}.
 *
 * pattern  for messages
 * Errors   CKPT_EFORMAT; CKPT_EUNSUPPORTED: a piece with a scale, which only weights could be
 *          given, not their moments; CKPT_ELIMIT
 */
int ckpt_uni_affine_read(const ckpt_affine **out, ckpt_arena *arena, const ckpt_value *v,
                         const char *pattern, ckpt_err *err);

#endif
