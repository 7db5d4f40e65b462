/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept_values.h: declares the storing of values that only DeepSpeed uses in FSDP's files, and their
 * restoring, so that a DeepSpeed run survives a conversion to FSDP and back.
 */
#ifndef CKPT_FORMATS_TRAINING_KEPT_VALUES_H
#define CKPT_FORMATS_TRAINING_KEPT_VALUES_H

#include "libckpt/map/state.h"

/*
 * True for a member of a run's state that FSDP's files store anyway: the learning-rate schedule,
 * and values of the training program.
 */
bool ckpt_train_fsdp_stores(const struct ckpt_state *state, const ckpt_pair *p);

/* True for a member that describes the layout of DeepSpeed's own files. */
bool ckpt_train_is_layout(const ckpt_pair *p);

/* True for a member that a conversion back can restore: plain data that does not describe the
 * layout of files. */
bool ckpt_train_kept_plain(ckpt_arena *arena, const ckpt_pair *p);

/*
 * Add "deepspeed" to the DICT of values other than model and optimizer, with the run's values that
 * FSDP cannot store.  Does nothing for runs of other frameworks.
 *
 * from    the map whose state has these values
 * Errors  CKPT_ELIMIT; those of reading the step counts
 */
int ckpt_train_keep(ckpt_value *values, ckpt_arena *arena, const ckpt_map *from,
                    const ckpt_state *state, ckpt_err *err);

/* True for the pair "deepspeed" that ckpt_train_keep writes. */
bool ckpt_train_is_kept(const ckpt_pair *p);

/*
 * Restore the state of the DeepSpeed run whose values the map keeps, if there are any.
 *
 * root    the state's model, a DICT; kept members are added to it
 * steps   the optimizer's step count; kept values of another step are dropped with a warning
 * Errors  CKPT_ELIMIT
 */
int ckpt_train_take_back(ckpt_map *map, ckpt_state *state, ckpt_value *root, int64_t steps,
                         ckpt_err *err);

#endif
