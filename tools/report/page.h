/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h: the whole report as one HTML page.
 */
#ifndef TOOLS_PAGE_H
#define TOOLS_PAGE_H

#include "tools/report/curves.h"
#include "tools/report/differ.h"
#include "tools/report/layers.h"
#include "tools/report/parts.h"
#include "tools/report/sheet.h"
#include "tools/report/stats.h"
#include "tools/report/tags.h"

/* What a page is about; parts that are NULL, or empty, have no section. */
typedef struct page {
    const char *path;    /* as it was given */
    const char *trouble; /* why the checkpoint could not be opened; NULL: it was */
    const ckpt_map *map; /* NULL: it could not be opened */
    const tags *run;
    const layers *layers;
    parts *parts;
    const stats *stats;
    const char *other; /* the path that it is compared with, and how they differ */
    const differ *differ;
    const curves *curves;
} page;

/* Write it; whether it could be written, the sheet knows. */
void page_write(sheet *s, const page *p);

#endif
