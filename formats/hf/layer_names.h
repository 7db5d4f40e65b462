/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_names.h: declares the names of the weights in the layers of each model type.
 */
#ifndef CKPT_FORMATS_HF_LAYER_NAMES_H
#define CKPT_FORMATS_HF_LAYER_NAMES_H

/*
 * Names without the layers' prefix and number, and without ".weight"; '#' stands for another
 * number. Words are separated by blanks.
 */
typedef struct ckpt_hf_layer_names {
    const char *types;  /* values of model_type */
    const char *needed; /* names that every model of these types has */
    const char *more;   /* names that some of them have */
} ckpt_hf_layer_names;

/* The last row has no types. */
extern const ckpt_hf_layer_names ckpt_hf_layers[];

#endif
