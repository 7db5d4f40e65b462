/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yaml.h: YAML text -> tree of values: configurations of merges.
 *
 * libyaml 0.2 reads YAML 1.1; of it what such files use: one document of mappings, lists and plain
 * or quoted scalars.  Plain scalars are null, true and false, integers, floats, else text.
 */
#ifndef CKPT_CODEC_YAML_H
#define CKPT_CODEC_YAML_H

#include "libckpt/map/value.h"

/* Limits of one text. */
#define CKPT_YAML_DEPTH  64u        /* containers inside each other */
#define CKPT_YAML_VALUES (1u << 20) /* nodes */

/*
 * Parse n bytes into DICT, LIST, STR, INT, FLOAT, BOOL and NONE values in the arena.  name begins
 * messages.
 *
 * Errors   CKPT_EFORMAT: not YAML, a key twice in one mapping, a key that is no scalar, several
 *          documents; CKPT_EUNSUPPORTED: anchors and aliases; CKPT_ELIMIT
 */
int ckpt_yaml_parse(ckpt_value **out, ckpt_arena *a, const char *name, const char *text, uint64_t n,
                    ckpt_err *err);

#endif
