/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h: the text of a file that an option names.
 */
#ifndef TOOLS_TEXT_H
#define TOOLS_TEXT_H

#include "ckpt.h"

/* The text of a file that an option names, terminated; the caller frees it.  what: "the order". */
int text_read(char **out, const char *path, const char *what, ckpt_err *err);

#endif
