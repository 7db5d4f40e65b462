/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h: trees of values as JSON text: what model folders carry beside their weights.
 */
#ifndef ZT_SAVE_JSON_H
#define ZT_SAVE_JSON_H

#include "libckpt/map/value.h"

/* Indented JSON, in the arena; NULL: memory is exhausted, or the tree is deeper than 64 or no plain
 * data. */
const char *zt_json_text(ckpt_arena *arena, const ckpt_value *v);

#endif
