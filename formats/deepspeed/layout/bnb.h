/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bnb.h: the state that bitsandbytes' optimizers keep of a flat tensor, as Adam's moments.
 *
 *     {'step': 3, '__bnb_optimizer_quant_state__': {
 *         'state1': U8 [n], 'qmap1': F32 [256], 'absmax1': F32 [ceil(n / 256)],
 *         'state2', 'qmap2', 'absmax2': the same}}
 *
 * Releases before 0.46 keep these keys in the dict that has the step.  Tensors of fewer than 4096
 * elements, and optimizers of 32 bits, have only F32 states.  Optimizers with one moment (Lion,
 * Momentum, RMSprop, Adagrad) have no state2.
 */
#ifndef CKPT_FORMATS_DS_BNB_H
#define CKPT_FORMATS_DS_BNB_H

#include "formats/deepspeed/layout/layout.h"

typedef struct ckpt_ds_bnb {
    const ckpt_value *dict; /* where the tensors are: a dict in the state, or the state */
    uint32_t bits;          /* 8 or 32; 0: not bitsandbytes', or not readable (why) */
    uint32_t n;             /* number of moments, 1 or 2 */
    const char *why;        /* why ckpt cannot read this state of bitsandbytes; or NULL */
} ckpt_ds_bnb;

/* Describe a group's state; NULL: the group has none. */
ckpt_ds_bnb ckpt_ds_bnb_look(const ckpt_value *state);

/*
 * The name of moment i in the map: "exp_avg" or "exp_avg_sq" if there are two moments.  A single
 * moment is "state1", because the file does not show whether it is a mean or a mean of squares.
 */
const char *ckpt_ds_bnb_name(const ckpt_ds_bnb *b, uint32_t i);

/*
 * Moment i of a rank's group as a flat F32 tensor, which is computed from the rank's records.
 *
 * Errors  CKPT_EMISMATCH, or a finding: the moment's tensors do not fit each other
 */
int ckpt_ds_bnb_flat(ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_ds_bnb *b, uint32_t i,
                     size_t group, ckpt_ds_flat *out);

/*
 * The state, with the moments under the names that they have in the map; it lives in the map's
 * arena.  NULL: no memory.
 */
ckpt_value *ckpt_ds_bnb_entry(const ckpt_ds_job *job, const ckpt_ds_bnb *b, ckpt_value *state);

/* Add a fact to the map if rank 0 has 8-bit moments. */
int ckpt_ds_bnb_fact(const ckpt_ds_job *job, const ckpt_ds_head *head,
                     const ckpt_ds_layout *layout);

#endif
