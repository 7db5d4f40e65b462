/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h: declares changes to the text of a config.json.
 */
#ifndef CKPT_FORMATS_HF_CONFIG_H
#define CKPT_FORMATS_HF_CONFIG_H

#include "libckpt/base/vec.h"
#include "libckpt/include/ckpt_types.h"

/*
 * Append the n bytes of a config.json to out with its dtype changed to `dtype` ("bfloat16"), also
 * in the configurations of parts ("text_config"); nothing else changes.  A configuration without a
 * dtype gets one.
 *
 * Errors   CKPT_EFORMAT: not a JSON object, the content of out is undefined; CKPT_ELIMIT: out of
 *          memory
 */
int ckpt_hf_config_dtype(ckpt_bytes *out, const char *text, uint64_t n, const char *dtype);

/*
 * Append the n bytes of a config.json to out without the member `key`, also in the configurations
 * of parts.
 *
 * Errors   CKPT_EFORMAT: not a JSON object; CKPT_ELIMIT
 */
int ckpt_hf_config_drop(ckpt_bytes *out, const char *text, uint64_t n, const char *key);

/* A member of a configuration, and its new value. */
typedef struct ckpt_hf_member {
    const char *key;   /* "vocab_size" */
    const char *value; /* JSON text */
    /* change only this value; NULL: change any value, and add the member if absent */
    const char *old;
} ckpt_hf_member;

/*
 * Append the n bytes of a config.json to out with one member changed, also in the configurations of
 * parts; nothing else changes.
 *
 * Errors   like ckpt_hf_config_drop; CKPT_EMISSING: no member has the value `old`
 */
int ckpt_hf_config_set(ckpt_bytes *out, const char *text, uint64_t n, const ckpt_hf_member *m);

#endif
