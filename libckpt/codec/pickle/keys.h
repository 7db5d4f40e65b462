/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h: hashes and compares dict keys with Python's rules, for the check for duplicates.
 */
#ifndef CKPT_CODEC_PICKLE_KEYS_H
#define CKPT_CODEC_PICKLE_KEYS_H

#include "libckpt/base/index.h"
#include "libckpt/map/value.h"

/*
 * Hash a key so that equal keys have equal hashes: True, 1 and 1.0 are one key.
 *
 * Errors   CKPT_EFORMAT: the key, or an item of a tuple, is not hashable (lists, dicts, sets,
 *          tensors); CKPT_ELIMIT: tuples nested or grown beyond the needs of any checkpoint.
 * why   the reason on failure, a static text
 * cost  increased by the work beyond a usual key: bytes of long texts, items of tuples
 */
int ckpt_key_hash(const ckpt_value *key, uint32_t *out, uint64_t *cost, const char **why);

/* True if Python treats both as one key; both must have passed ckpt_key_hash. */
bool ckpt_key_same(const ckpt_value *a, const ckpt_value *b);

#endif
