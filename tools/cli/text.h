/* SPDX-License-Identifier: Apache-2.0 */
/* text.h: declares reading the file of an option as text. */
#ifndef TOOLS_TEXT_H
#define TOOLS_TEXT_H

#include "ckpt.h"

/*
 * Read the file of an option, NUL-terminated; the caller frees it.  `what` names it in messages:
 * "the order".
 */
int text_read(char **out, const char *path, const char *what, ckpt_err *err);

#endif
