/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hidden.h: characters that a terminal acts on, or that a reader cannot see.
 */
#ifndef CKPT_BASE_HIDDEN_H
#define CKPT_BASE_HIDDEN_H

#include <stdbool.h>
#include <stdint.h>

/* Control characters, marks of direction and characters without width: shown by their codes. */
bool ckpt_hidden(uint32_t code);

#endif
