/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h: declares pictures as SVG, inside the page or (draw_begin, draw_end) as files of their
 * own.
 *
 * Colours are classes, so picture.css can choose them for light and dark backgrounds.
 */
#ifndef TOOLS_DRAW_H
#define TOOLS_DRAW_H

#include "tools/report/curves.h"
#include "tools/report/differ.h"
#include "tools/report/layers.h"
#include "tools/report/parts.h"
#include "tools/report/sheet.h"
#include "tools/report/tags.h"

static const int DRAW_WIDTH = 960;

/*
 * Begin an svg element of width DRAW_WIDTH and this height.  The title is for screen readers.
 * alone: a file of its own, with namespace and style.  draw_end closes the element.
 */
void draw_begin(sheet *s, double height, const char *title, bool alone);
void draw_end(sheet *s);

/* Draw the tags of a run as bars; the height shows the size. */
void draw_timeline(sheet *s, const tags *t, bool alone);

/*
 * Draw the bytes of each layer by dtype.  Of very many layers only the first appear, and the title
 * gives the number.
 */
void draw_layers(sheet *s, const layers *l, bool alone);

/* Draw the distribution of tensors over files: elements to the right, files downwards. */
void draw_map(sheet *s, parts *p, const layers *l, bool alone);

/* Draw loss, learning rate ... by step, one chart below the other. */
void draw_curves(sheet *s, const curves *c, bool alone);

/* Draw the distance of two checkpoints: layers downwards, names within layers to the right. */
void draw_heat(sheet *s, const differ *d, bool alone);

#endif
