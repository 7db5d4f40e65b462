/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_file.h: declares helpers that the readers of a config.json share.  Internal to
 * engine/model.
 */
#ifndef ZT_MODEL_CONFIG_FILE_H
#define ZT_MODEL_CONFIG_FILE_H

#include "engine/model/model.h"

/* State while one config.json is read. */
typedef struct zt_config_file {
    zt_model_config *out;
    const ckpt_value *json;
    const char *name; /* name in messages */
    bool sizes;       /* read only settings that determine parameters */
    ckpt_arena *arena;
    ckpt_err *err;
} zt_config_file;

/* Get a member; NULL if it is missing or null. */
const ckpt_value *zt_config_get(const ckpt_value *dict, const char *key);

/*
 * Describe a value for messages: a text as it is, or true, false, null, "a list", "an object", "a
 * number".
 */
const char *zt_config_kind(const ckpt_value *v);

/* Convert INT or FLOAT; false: not a number. */
bool zt_config_number(const ckpt_value *v, double *out);

/* Fail with CKPT_EFORMAT: the key, the value found, the value expected. */
int zt_config_fail(const zt_config_file *f, const char *key, const ckpt_value *v,
                   const char *expected);

/* Read a positive whole number. */
int zt_config_size(const zt_config_file *f, const char *key, const ckpt_value *v, uint64_t *out);

/* True if a value sets nothing: null, false, 0, empty. */
bool zt_config_idle(const ckpt_value *v);

/* Read the rotary positions of Llama and related models. */
int zt_config_rope(const zt_config_file *f);

/*
 * Find the layers that have a sliding window, and its width, from `layer_types` or the class'
 * default.
 *
 * ZT_WINDOW_ALL    Mistral: sliding_window (4096 when absent, null: none) in all layers
 * ZT_WINDOW_GIVEN  Phi-3: the same, but none when absent
 * ZT_WINDOW_UPPER  Qwen2, Qwen3: with use_sliding_window, layers from max_window_layers on
 * ZT_WINDOW_PATTERN  Gemma: in all layers but every second one (Gemma 2), or every
 *                    sliding_window_pattern-th (Gemma 3: 6 when absent)
 */
typedef enum zt_windows {
    ZT_WINDOW_NONE,
    ZT_WINDOW_ALL,
    ZT_WINDOW_GIVEN,
    ZT_WINDOW_UPPER,
    ZT_WINDOW_PATTERN
} zt_windows;
int zt_config_windows(const zt_config_file *f, zt_windows kind);

#endif
