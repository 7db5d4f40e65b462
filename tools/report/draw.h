/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h: pictures as SVG: of the page, or (draw_begin, draw_end) as files of their own.
 *
 * Colours are classes; picture.css gives them a meaning on light and dark ground.
 */
#ifndef TOOLS_DRAW_H
#define TOOLS_DRAW_H

#include "tools/report/curves.h"
#include "tools/report/differ.h"
#include "tools/report/layers.h"
#include "tools/report/parts.h"
#include "tools/report/sheet.h"
#include "tools/report/tags.h"

enum { DRAW_WIDTH = 960 };

/*
 * Begin an svg element of DRAW_WIDTH and such a height: a title for who does not see it, and as a
 * file of its own (alone) also the namespace and the style.  draw_end closes it.
 */
void draw_begin(sheet *s, double height, const char *title, bool alone);
void draw_end(sheet *s);

/* The tags of a run as bars, as high as they are large. */
void draw_timeline(sheet *s, const tags *t, bool alone);

/* Bytes of each layer, by dtype.  Of very many layers the first: the title says how many. */
void draw_layers(sheet *s, const layers *l, bool alone);

/* Which file holds which part: elements of all tensors to the right, files downwards. */
void draw_map(sheet *s, parts *p, const layers *l, bool alone);

/* Loss, learning rate ... by step: a chart below the other. */
void draw_curves(sheet *s, const curves *c, bool alone);

/* How far two checkpoints are apart: layers downwards, what is in them to the right. */
void draw_heat(sheet *s, const differ *d, bool alone);

#endif
