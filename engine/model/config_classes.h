/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_classes.h: declares the table of model classes: their keys in a config.json, with
 * defaults, and the settings that are refused.  Internal to engine/model.
 */
#ifndef ZT_MODEL_CONFIG_CLASSES_H
#define ZT_MODEL_CONFIG_CLASSES_H

#include <stddef.h>

#include "engine/model/config_file.h"

/*
 * ZT_CF_HEADS  a size that has a default when absent; if it is null, it is set later
 * ZT_CF_ABOVE  a number above 0
 * ZT_CF_CAP    the same; 0 if it is null
 */
typedef enum zt_config_type {
    ZT_CF_SIZE,
    ZT_CF_HEADS,
    ZT_CF_BOOL,
    ZT_CF_RATE,
    ZT_CF_REAL,
    ZT_CF_ABOVE,
    ZT_CF_CAP
} zt_config_type;

/* A key of the file, and the member that it sets. */
typedef struct zt_config_field {
    const char *key, *other; /* other: a second spelling with priority, or NULL */
    zt_config_type kind;
    size_t at;        /* offset in zt_model_config of a uint64_t, bool or float */
    double otherwise; /* when absent; below 0: null counts as absent, the value is set later */
} zt_config_field;

/* A key that must be absent, null, false, 0, empty, or the word `only`. */
typedef struct zt_config_refusal {
    const char *key, *only, *why;
} zt_config_refusal;

typedef struct zt_config_class {
    const char *class_name, *model_type;
    zt_arch arch;
    const zt_config_field *fields;
    const zt_config_refusal *refusals;
    zt_windows windows;
} zt_config_class;

/* T5 without the map to the vocabulary: its parameters can be counted, not trained. */
#define ZT_CONFIG_T5_BODY "T5Model"

enum { ZT_CONFIG_CLASSES = 16 };
extern const zt_config_class zt_config_classes[ZT_CONFIG_CLASSES];

/* Refused for all models. */
extern const zt_config_refusal zt_config_common_refusals[];

/* Refused for models of one stack. */
extern const zt_config_refusal zt_config_stack_refusals[];

#endif
