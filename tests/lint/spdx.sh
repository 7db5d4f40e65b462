#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Name the source files whose head does not say the licence: the first line, or the one after a `#!` or `#compdef`.
#
#   spdx.sh [--fix]     --fix writes the line into them
set -u
text='SPDX-License-Identifier: Apache-2.0'

# one file a line; data of tests is not ours to mark
sources() {
    git ls-files --cached --others --exclude-standard | grep -v '^tests/fixtures/' |
        grep -E '\.(c|h|cu|cuh|cpp|py|sh|inc|bash|zsh|fish|mk)$|(^|/)(Makefile|meson\.build|meson_options\.txt)$|^\.ci/run$'
}

# the line as FILE's language has it
line() {
    case "$1" in
    *.c | *.h | *.cu | *.cuh | *.cpp) echo "/* $text */" ;;
    *) echo "# $text" ;;
    esac
}

# after how many lines of FILE it belongs
place() {
    case "$(head -n 1 "$1")" in
    '#!'* | '#compdef'*) echo 1 ;;
    *) echo 0 ;;
    esac
}

missing=0
for file in $(sources); do
    [ -f "$file" ] || continue
    at=$(place "$file")
    [ "$(sed -n "$((at + 1))p" "$file")" = "$(line "$file")" ] && continue
    if [ "${1:-}" = --fix ]; then
        { head -n "$at" "$file" && line "$file" && tail -n "+$((at + 1))" "$file"; } >"$file.spdx.tmp" &&
            cat "$file.spdx.tmp" >"$file"
        rm -f "$file.spdx.tmp"
    else
        echo "$file: the line '$(line "$file")' is missing at its head (sh tests/lint/spdx.sh --fix)"
        missing=1
    fi
done
exit "$missing"
