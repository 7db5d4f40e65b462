/* SPDX-License-Identifier: Apache-2.0 */
/* page.h: declares writing the complete report as one HTML page. */
#ifndef TOOLS_PAGE_H
#define TOOLS_PAGE_H

#include "tools/report/curves.h"
#include "tools/report/differ.h"
#include "tools/report/layers.h"
#include "tools/report/parts.h"
#include "tools/report/sheet.h"
#include "tools/report/stats.h"
#include "tools/report/tags.h"

/* Contents of a page; NULL or empty parts have no section. */
typedef struct page {
    const char *path;    /* as the user gave it */
    const char *trouble; /* why the checkpoint could not be opened; NULL: it is open */
    const ckpt_map *map; /* NULL: it could not be opened */
    const tags *run;
    const layers *layers;
    parts *parts;
    const stats *stats;
    const char *other; /* path of the other checkpoint; the differences */
    const differ *differ;
    const curves *curves;
} page;

/* Write the page; the sheet keeps write errors. */
void page_write(sheet *s, const page *p);

#endif
