/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_file.h: what the readers of a config.json share.  Internal to engine/model.
 */
#ifndef ZT_MODEL_CONFIG_FILE_H
#define ZT_MODEL_CONFIG_FILE_H

#include "engine/model/model.h"

/* What one reading needs everywhere. */
typedef struct zt_config_file {
    zt_model_config *out;
    const ckpt_value *json;
    const char *name; /* for messages */
    bool sizes;       /* only what tells parameters: activations, positions, windows are not read */
    ckpt_arena *arena;
    ckpt_err *err;
} zt_config_file;

/* A member that is not null; else NULL. */
const ckpt_value *zt_config_get(const ckpt_value *dict, const char *key);

/* A text as it is, true, false, null, "a list", "an object", "a number". */
const char *zt_config_kind(const ckpt_value *v);

/* INT or FLOAT; false: no number. */
bool zt_config_number(const ckpt_value *v, double *out);

/* CKPT_EFORMAT: the key, what was found, what was expected. */
int zt_config_fail(const zt_config_file *f, const char *key, const ckpt_value *v,
                   const char *expected);

/* A positive whole number. */
int zt_config_size(const zt_config_file *f, const char *key, const ckpt_value *v, uint64_t *out);

/* Whether a value says nothing: null, false, 0, empty. */
bool zt_config_idle(const ckpt_value *v);

/* The rotary positions of Llama and its kin. */
int zt_config_rope(const zt_config_file *f);

/*
 * Which layers have a window, and how wide: by `layer_types`, or as the class has it.
 *
 * ZT_WINDOW_ALL    Mistral: sliding_window (4096 when absent, null: none) in all layers
 * ZT_WINDOW_UPPER  Qwen2, Qwen3: with use_sliding_window, layers from max_window_layers on
 */
typedef enum zt_windows { ZT_WINDOW_NONE, ZT_WINDOW_ALL, ZT_WINDOW_UPPER } zt_windows;
int zt_config_windows(const zt_config_file *f, zt_windows kind);

#endif
