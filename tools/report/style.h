/* SPDX-License-Identifier: Apache-2.0 */
/*
 * style.h: the files picture.css, page.css and page.js of this folder, which the build puts into
 * the program.
 */
#ifndef TOOLS_STYLE_H
#define TOOLS_STYLE_H

#include "tools/report/sheet.h"

/* picture.css: what the classes of pictures look like. */
void style_picture(sheet *s);

/*
 * The elements style (picture.css and page.css) and script (page.js), which the policy of
 * style_policy allows by their hashes and nothing else.
 */
void style_page(sheet *s);
void style_script(sheet *s);

/* The Content-Security-Policy of a page: its own style and script, and nothing else. */
void style_policy(sheet *s);

#endif
