/* SPDX-License-Identifier: Apache-2.0 */
/*
 * single_values.h: finds out which members of an optimizer's state are scalars (a count, NAdam's
 * mu_product) and not moments, which are tensors of the map.
 */
#ifndef CKPT_FORMATS_TRAINING_SINGLE_VALUES_H
#define CKPT_FORMATS_TRAINING_SINGLE_VALUES_H

#include "libckpt/base/index.h"
#include "libckpt/map/state.h"

/* A kind of moments that some parameter of a group has: n bytes of a tensor's name. */
typedef struct ckpt_train_kind {
    const char *text;
    size_t n, group;
} ckpt_train_kind;

CKPT_VEC(ckpt_train_kinds, ckpt_train_kind);

/*
 * All kinds of all groups. They are found by one pass over the map's tensors, because a question
 * for each parameter of a group, asked for each parameter, would take quadratic time.
 */
typedef struct ckpt_train_moments {
    ckpt_train_kinds kind;
    ckpt_index index;
} ckpt_train_moments;

/*
 * Fill a zeroed struct; the map must outlive it. The caller frees it, also on failure.
 *
 * state    NULL: there is none, and no kind
 * Errors   CKPT_ELIMIT
 */
int ckpt_train_moments_find(ckpt_train_moments *m, const ckpt_map *from, const ckpt_state *state,
                            ckpt_err *err);
void ckpt_train_moments_free(ckpt_train_moments *m);

/*
 * True for a pair of an entry of the group with this number that is a single value, for which the
 * map has no tensor: the writer takes the others from there.
 */
bool ckpt_train_is_single(const ckpt_train_moments *m, size_t group, const ckpt_pair *p);

#endif
