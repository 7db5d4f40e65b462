/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prepare.h: from a command line to a source that is ready to be laid out for its target: what
 * `ckpt convert` and `ckpt mount` share.
 */
#ifndef TOOLS_PREPARE_H
#define TOOLS_PREPARE_H

#include "tools/cli/args.h"

/*
 * Check and complete a->target, whose format and path are set; open the source, change it as the
 * options say, and tell what was understood and found.
 *
 * map      set also on failure, to be freed by the caller, as is training_free(a)
 * Errors   CKPT_EUSAGE; CKPT_EMISSING: there are no tensors; those of opening
 */
int convert_prepare(ckpt_map **map, cli_args *a, ckpt_err *err);

#endif
