#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Print style.inc: the page's style and program as strings of C, and the SHA-256 of what stands in its elements.
#
#   style.sh FOLDER
set -eu
cd "$1"

# lines NAME FILE: a backslash before what a string of C would take for something else ("??" begins a trigraph)
lines() {
    echo "static const char *const $1[] = {"
    sed -e 's/[\\"?]/\\&/g' -e 's/.*/    "&\\n",/' "$2"
    echo "    NULL,"
    echo "};"
}

lines picture_css picture.css
lines page_css page.css
lines page_js page.js
echo "static const char style_sha256[] = \"$(cat picture.css page.css | sha256sum | cut -c 1-64)\";"
echo "static const char script_sha256[] = \"$(sha256sum <page.js | cut -c 1-64)\";"
