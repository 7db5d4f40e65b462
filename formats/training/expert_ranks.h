/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expert_ranks.h: declares the joining of the parameter groups of several expert-parallel ranks
 * into one group, and the splitting of such a group.  A rank's share of a group is called a lane.
 */
#ifndef CKPT_FORMATS_TRAINING_EXPERT_RANKS_H
#define CKPT_FORMATS_TRAINING_EXPERT_RANKS_H

#include "libckpt/map/state.h"

/*
 * Copy the state into the arena, with the parameters of all expert-parallel ranks in each group.
 * *out is s itself if no group has several lanes.
 */
int ckpt_train_lanes_join(const ckpt_state **out, const ckpt_state *s, ckpt_arena *arena,
                          ckpt_err *err);

/*
 * Split each group whose name gives a number of lanes into these lanes; its parameters must be
 * sorted by lane.
 *
 * odd     out: the name of a group whose parameters do not fit its lanes, or NULL
 */
int ckpt_train_lanes_cut(ckpt_state *s, const char **odd, ckpt_err *err);

#endif
