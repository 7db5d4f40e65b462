/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sections.h: sections of the page that not every report has: how the training went, and how
 * another checkpoint differs.
 */
#ifndef TOOLS_SECTIONS_H
#define TOOLS_SECTIONS_H

#include "tools/report/curves.h"
#include "tools/report/differ.h"
#include "tools/report/sheet.h"

/* Curves, and a table that says them in numbers. */
void section_curves(sheet *s, const curves *c);

/* The differences to the checkpoint at `other`, by layer, and a list. */
void section_differences(sheet *s, const differ *d, const char *other);

#endif
