#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The include hierarchy: a folder may include only itself and folders before it.  Third-party headers: one file each.
set -u
bad=0
rank() {
    case "$1" in
    libckpt/base/*) echo 1 ;;
    libckpt/map/*) echo 2 ;;
    libckpt/copy/*) echo 3 ;;
    libckpt/*) echo 4 ;;
    formats/*) echo 5 ;;
    engine/device/*) echo 11 ;;
    engine/comm/*) echo 12 ;;
    engine/optim/*) echo 13 ;;
    engine/config/*) echo 14 ;;
    engine/model/*) echo 15 ;;
    engine/data/* | engine/zero/*) echo 16 ;;
    engine/save/*) echo 17 ;;
    engine/estimate.h) echo 6 ;;
    engine/*) echo 18 ;;
    tools/*) echo 6 ;;
    *) echo 0 ;;
    esac
}
for f in libckpt/base/*.[ch] libckpt/map/*.[ch] libckpt/copy/*.[ch] libckpt/*.[ch] formats/*.[ch] tools/*.[ch] \
    engine/*/*.[ch] engine/*/*.cu engine/*.[ch]; do
    mine=$(rank "$f")
    for inc in $(sed -n 's/^#include "\([^"]*\)".*/\1/p' "$f"); do
        case "$inc" in
        # the public types belong to no room
        ckpt_types.h) continue ;;
        ckpt.h) inc=libckpt/ckpt.h ;;
        esac
        theirs=$(rank "$inc")
        if [ "$theirs" -gt "$mine" ]; then
            echo "$f includes upward: $inc"
            bad=1
        fi
        if [ "${f#tools/}" != "$f" ] && [ "$theirs" -ne 6 ] && [ "$inc" != libckpt/ckpt.h ]; then
            echo "$f: tools include ckpt.h and their own headers only, not $inc"
            bad=1
        fi
    done
done
if grep -n '#include "\(formats\|tools\)/' engine/*.[ch] engine/*/*.[ch]; then
    echo "the engine includes libckpt and itself only"
    bad=1
fi
for lib in libdeflate.h zlib.h openssl/ cjson/ pcre2.h cblas.h oneapi/dnnl mpi.h; do
    users=$(grep -l "#include <$lib" libckpt/base/*.c libckpt/map/*.c libckpt/copy/*.c libckpt/*.c formats/*.c tools/*.c engine/*/*.c 2>/dev/null)
    n=$(printf '%s\n' "$users" | grep -c .)
    limit=1
    [ "$lib" = zlib.h ] && limit=2 # CRC joining in digest.c, inflate in inflate.c
    if [ "$n" -gt "$limit" ]; then
        echo "<$lib> is included by more than $limit file: $users"
        bad=1
    fi
done
exit $bad
