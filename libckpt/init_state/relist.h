/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relist.h: parses a caller's list of parameters, and applies its order to a run's groups.
 */
#ifndef CKPT_RELIST_H
#define CKPT_RELIST_H

#include "libckpt/format.h"
#include "libckpt/map/state.h"

/*
 * Sort a run's parameters by a list (ckpt_target.order_text). Parameters remain in their groups, so
 * empty lines and names of untrained tensors have no effect. '*' stands for all unlisted parameters
 * in their current order.
 *
 * Errors  CKPT_EUSAGE: the files are DeepSpeed's, which store an order; an unknown or duplicate
 *         name; an unlisted trained parameter
 */
int ckpt_order_run(ckpt_map *map, const char *text, ckpt_err *err);

#endif
