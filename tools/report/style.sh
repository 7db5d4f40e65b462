#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Print style.inc: the page's style and script as C strings, and the SHA-256 of the contents of its elements.
#
#   style.sh FOLDER
set -eu
cd "$1"

# lines NAME FILE: print a file as C strings, with escapes (also of "?", because "??" begins a trigraph)
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
