/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same_config.h: compares the configurations of two models whose weights become one.
 */
#ifndef CKPT_TRANSFORM_SAME_CONFIG_H
#define CKPT_TRANSFORM_SAME_CONFIG_H

#include "libckpt/map/map.h"

/*
 * Warn, in `into`, if config.json beside `model` has other values than that beside `base`, which
 * the output keeps. Only fields that both have, and that may change what a model computes, are
 * compared.
 *
 * Errors  CKPT_EFORMAT: no JSON; CKPT_EIO; CKPT_ELIMIT
 */
int ckpt_config_compare(ckpt_map *into, ckpt_map *model, ckpt_map *base, ckpt_err *err);

#endif
