/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.h: drops the empty parameter groups of a run that is converted to DeepSpeed.
 */
#ifndef CKPT_INIT_STATE_GROUPS_H
#define CKPT_INIT_STATE_GROUPS_H

#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

/*
 * Drop the groups without parameters from the run of another framework, with their entries in its
 * schedule, and report it in a note. Runs of DeepSpeed, and runs without such groups, do not
 * change.
 */
int ckpt_groups_drop_empty(ckpt_map *map, ckpt_err *err);

#endif
