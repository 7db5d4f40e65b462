/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yaml.h: converts YAML text (configurations of merges) to a tree of values.
 *
 * libyaml 0.2 parses YAML 1.1.  Of that we accept one document of mappings, lists and plain or
 * quoted scalars.  A plain scalar is null, a boolean, an integer, a float, or otherwise text.
 */
#ifndef CKPT_CODEC_YAML_H
#define CKPT_CODEC_YAML_H

#include "libckpt/map/value.h"

/* Limits of one text. */
#define CKPT_YAML_DEPTH  64u        /* depth of nested containers */
#define CKPT_YAML_VALUES (1u << 20) /* nodes of the document */

/*
 * Parse n bytes into DICT, LIST, STR, INT, FLOAT, BOOL and NONE values in the arena.  name is the
 * prefix of messages.
 *
 * Errors   CKPT_EFORMAT: not YAML, a key twice in one mapping, a key that is not a scalar, several
 *          documents; CKPT_EUNSUPPORTED: anchors and aliases; CKPT_ELIMIT
 */
int ckpt_yaml_parse(ckpt_value **out, ckpt_arena *a, const char *name, const char *text, uint64_t n,
                    ckpt_err *err);

#endif
