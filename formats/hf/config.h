/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h: the dtype that a config.json states.
 */
#ifndef CKPT_FORMATS_HF_CONFIG_H
#define CKPT_FORMATS_HF_CONFIG_H

#include "libckpt/base/ckpt_types.h"
#include "libckpt/base/vec.h"

/*
 * Append the n bytes of a config.json to out, with the dtype it states changed to `dtype`
 * ("bfloat16"), also in the configurations of parts ("text_config"); nothing else changes.  Where
 * the whole states none, it gets one.
 *
 * Errors   CKPT_EFORMAT: no JSON object, out may hold rubbish; CKPT_ELIMIT: out of memory
 */
int ckpt_hf_config_dtype(ckpt_bytes *out, const char *text, uint64_t n, const char *dtype);

/*
 * Append the n bytes of a config.json to out, with tie_word_embeddings false; nothing else changes.
 *
 * Errors   as above
 */
int ckpt_hf_config_untie(ckpt_bytes *out, const char *text, uint64_t n);

#endif
