/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sections.h: declares the optional sections of the page: training curves, and differences to
 * another checkpoint.
 */
#ifndef TOOLS_SECTIONS_H
#define TOOLS_SECTIONS_H

#include "tools/report/curves.h"
#include "tools/report/differ.h"
#include "tools/report/sheet.h"

/* Write the curves, and a table of their numbers. */
void section_curves(sheet *s, const curves *c);

/* Write the differences to the checkpoint at `other`, by layer, and as a list. */
void section_differences(sheet *s, const differ *d, const char *other);

#endif
