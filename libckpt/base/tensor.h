/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h: adds the library's own members to ckpt_tensor.
 *
 * Programs see a ckpt_tensor only through pointers to tensors that the library has made, and only
 * the members in ckpt_types.h, which come first. The build includes this file before its own
 * sources (-include), so that these see all members, and no public header depends on libckpt/base.
 * tools/ckpt and tools/report use the public members alone.
 */
#ifndef CKPT_BASE_TENSOR_H
#define CKPT_BASE_TENSOR_H

/*
 * extent  n_extents extents that cover each element exactly once, flat ones ascending ...
 * cut     ... or, unless NULL, the rule that computes them: ckpt_extent_of (map/extent.h) reads
 *         both
 * twin    a copy of the same or lower precision, equal to this tensor after rounding, or NULL. It
 *         may have a twin in turn and is not in the map's list
 * addend  a slice to average with: the values of this tensor are those of its extents plus those of
 *         all addends in turn, divided by their number; or NULL. It is not in the map's list
 * donor   target maps: the tensor with the values, if it is not in the source map's list; its
 *         extents refer to the source map's sources
 * importance  target maps: that of its columns, by which it is quantized; NULL: none
 */
#define CKPT_TENSOR_INTERNAL                                                                       \
    const struct ckpt_extent *extent;                                                              \
    const struct ckpt_cut *cut;                                                                    \
    const struct ckpt_tensor *twin;                                                                \
    const struct ckpt_tensor *addend;                                                              \
    const struct ckpt_tensor *donor;                                                               \
    const struct ckpt_importance *importance;

#endif
