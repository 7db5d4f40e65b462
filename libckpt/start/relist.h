/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relist.h: a caller's list of parameters: its lines, and what a run's groups make of it.
 */
#ifndef CKPT_RELIST_H
#define CKPT_RELIST_H

#include "libckpt/format.h"
#include "libckpt/map/state.h"

/* A line without the blanks around it, which is no comment; n 0: an empty one. */
typedef int ckpt_order_line(void *ctx, uint64_t number, const char *line, size_t n);

/* Call `use` for each line of a list; the first code that is not CKPT_OK ends it. */
int ckpt_order_lines(const char *text, ckpt_order_line *use, void *ctx);

/*
 * Bring the parameters of a run into the order of a list (ckpt_target.order_text).  They stay in
 * their groups: empty lines mean nothing, nor do names that are not trained.  '*' stands for all
 * that no line names, as they stand now.
 *
 * Errors  CKPT_EUSAGE: the files of the run are DeepSpeed's, which has an order; a name that is not
 *         there, or twice; a trained parameter that is not listed
 */
int ckpt_order_run(ckpt_map *map, const char *text, ckpt_err *err);

#endif
