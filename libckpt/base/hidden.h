/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hidden.h: recognises characters that a terminal interprets, or that a reader cannot see.
 */
#ifndef CKPT_BASE_HIDDEN_H
#define CKPT_BASE_HIDDEN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * True for control characters, direction marks and zero-width characters: print their codes
 * instead.
 */
bool ckpt_hidden(uint32_t code);

#endif
