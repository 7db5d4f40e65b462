/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h: what a config.json states, changed in place.
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
 * Append the n bytes of a config.json to out without a member, in the configurations of parts, too.
 *
 * Errors   CKPT_EFORMAT: no JSON object; CKPT_ELIMIT
 */
int ckpt_hf_config_drop(ckpt_bytes *out, const char *text, uint64_t n, const char *key);

/* A member of a configuration, and what it shall say. */
typedef struct ckpt_hf_member {
    const char *key;   /* "vocab_size" */
    const char *value; /* as JSON has it */
    const char *old;   /* only where it is this; NULL: whatever it is, and where there is none */
} ckpt_hf_member;

/*
 * Append the n bytes of a config.json to out with one member changed, in the configurations of
 * parts, too; nothing else changes.
 *
 * Errors   as above; CKPT_EMISSING: nothing is `old`
 */
int ckpt_hf_config_set(ckpt_bytes *out, const char *text, uint64_t n, const ckpt_hf_member *m);

#endif
