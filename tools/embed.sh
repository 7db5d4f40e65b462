#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Convert the layout maps to C strings, so that the program has them built in and needs no other files.
#
#   embed.sh FILE.map... > maps.c      defines maps_builtin, which tools/cli/maps.h declares
set -eu
LC_ALL=C
export LC_ALL

echo '/* Made by tools/embed.sh of tools/share/maps; changes there count, changes here are lost. */'
echo '#include "tools/cli/maps.h"'
echo 'const maps_text maps_builtin[] = {'
for file in "$@"; do
    printf '{"%s",\n' "${file##*/}"
    # escape question marks, because two of them may begin a trigraph
    sed 's/\\/\\\\/g; s/"/\\"/g; s/?/\\?/g; s/	/\\t/g; s/.*/"&\\n"/' "$file"
    echo '},'
done
echo '};'
echo 'const size_t maps_n_builtin = sizeof maps_builtin / sizeof *maps_builtin;'
