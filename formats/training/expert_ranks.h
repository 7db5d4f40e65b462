/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expert_ranks.h: declares how the experts of several expert-parallel ranks become one group, and
 * how such a group is split again.
 */
#ifndef CKPT_FORMATS_TRAINING_EXPERT_RANKS_H
#define CKPT_FORMATS_TRAINING_EXPERT_RANKS_H

#include "libckpt/map/state.h"

/*
 * Copy the state into the arena so that each group has the parameters of all expert-parallel ranks
 * (lanes); *out is s itself if no group has several lanes.
 */
int ckpt_train_lanes_join(const ckpt_state **out, const ckpt_state *s, ckpt_arena *arena,
                          ckpt_err *err);

/*
 * Split groups into lanes again if their name gives the number of lanes; the group's parameters are
 * sorted by lane.
 *
 * odd     out: the name of a group whose parameters do not fit its lanes, or NULL
 */
int ckpt_train_lanes_cut(ckpt_state *s, const char **odd, ckpt_err *err);

#endif
