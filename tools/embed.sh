#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make C of texts: the layout maps that the program knows by name, so that it needs no files beside it.
#
#   embed.sh FILE.map... > maps.c      what tools/cli/maps.h declares as maps_builtin
set -eu
LC_ALL=C
export LC_ALL

echo '/* Made by tools/embed.sh of tools/share/maps; changes there count, changes here are lost. */'
echo '#include "tools/cli/maps.h"'
echo 'const maps_text maps_builtin[] = {'
for file in "$@"; do
    printf '{"%s",\n' "${file##*/}"
    # two question marks may begin a trigraph
    sed 's/\\/\\\\/g; s/"/\\"/g; s/?/\\?/g; s/	/\\t/g; s/.*/"&\\n"/' "$file"
    echo '},'
done
echo '};'
echo 'const size_t maps_n_builtin = sizeof maps_builtin / sizeof *maps_builtin;'
