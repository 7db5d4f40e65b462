/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed_keys.h: declares the members of DeepSpeed's model files, and the releases that have
 * them.
 */
#ifndef CKPT_FORMATS_TRAINING_DEEPSPEED_KEYS_H
#define CKPT_FORMATS_TRAINING_DEEPSPEED_KEYS_H

#include <stdbool.h>

/* A release like 0.12.6 as a number that can be compared. */
#define CKPT_DS_RELEASE(a, b, c) ((a)*1000000 + (b)*1000 + (c))

typedef struct ckpt_train_key {
    const char *key;
    int since, until; /* first release with the key, and first without it again (0: none) */
} ckpt_train_key;

enum { CKPT_TRAIN_MODEL_KEYS = 22 };

/* The members in the order of the file. */
extern const ckpt_train_key ckpt_train_model_keys[CKPT_TRAIN_MODEL_KEYS];

/*
 * True for members of a model file that DeepSpeed writes; others are the program's client_state.
 */
bool ckpt_train_is_deepspeed_key(const char *key);

#endif
