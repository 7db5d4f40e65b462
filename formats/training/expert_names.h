/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expert_names.h: declares the search for an expert's number in the name of its parameter.
 */
#ifndef CKPT_FORMATS_TRAINING_EXPERT_NAMES_H
#define CKPT_FORMATS_TRAINING_EXPERT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text before the number in DeepSpeed's names of experts. */
#define CKPT_TRAIN_EXPERTS ".deepspeed_experts."

/*
 * Find the number in an expert's name ("...deepspeed_experts.3.fc.weight"; AutoEP:
 * "...experts.w1.3"): *n bytes from byte *at on; false for other names.
 */
bool ckpt_train_expert_number(const char *name, size_t *at, size_t *n, uint64_t *number);

#endif
