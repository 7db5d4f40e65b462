/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h: declares the data for page.js: tensors and their parts, as JSON in a script element that
 * browsers do not execute.
 *
 *     {"dtypes": [names], "roles": [names], "layers": [names], "used": files that hold elements,
 *      "files": [[path, bytes, bytes held]...], "tensors": [...]}
 *
 * A tensor is {"l": layer, "n": rest of the name, "d": dtype, "s": shape, "r": role, "z": bytes,
 * "k": number of parts}; tied: also "o": the owner's name; else "p": [file, elements, times ...],
 * runs of flat parts one after the other in files file, file + 1 ... (-1: none), or "b": [[file,
 * start, count ... of each axis]...] boxes; "m": how many parts are left out of these.
 *
 * With statistics ("stats": true, "bins": STATS_HALF, "exponent": STATS_EXPONENT) it has "t": [NaN,
 * +Inf, -Inf, zeros, min, max, mean, std, norm, first bin, [counts]]; compared with another
 * ("other": true) and not equal to it "x": [what differs, elements, largest distance or null].
 */
#ifndef TOOLS_DATA_H
#define TOOLS_DATA_H

#include "tools/report/page.h"

/* Write the script element. */
void data_write(sheet *s, const page *p);

#endif
