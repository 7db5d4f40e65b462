/* SPDX-License-Identifier: Apache-2.0 */
/*
 * style.h: declares the files picture.css, page.css and page.js of this folder, which the build
 * puts into the program.
 */
#ifndef TOOLS_STYLE_H
#define TOOLS_STYLE_H

#include "tools/report/sheet.h"

/* Write picture.css: the appearance of the pictures' classes. */
void style_picture(sheet *s);

/*
 * Write the elements style (picture.css and page.css) and script (page.js).  style_policy allows
 * only these, by their hashes.
 */
void style_page(sheet *s);
void style_script(sheet *s);

/* Write the Content-Security-Policy of a page, which allows only its own style and script. */
void style_policy(sheet *s);

#endif
