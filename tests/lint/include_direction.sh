#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The include hierarchy: a folder may include only itself and folders before it.  Third-party headers: one file each.
set -u
bad=0
rank() {
    case "$1" in
    libckpt/include/*) echo 0 ;;
    libckpt/base/*) echo 1 ;;
    libckpt/map/*) echo 2 ;;
    libckpt/dist/run/*) echo 8 ;;
    libckpt/dist/*) echo 3 ;;
    libckpt/io/*) echo 4 ;;
    libckpt/commit/*) echo 5 ;;
    libckpt/copy/*) echo 6 ;;
    libckpt/run/*) echo 7 ;;
    libckpt/codec/* | libckpt/readback/*) echo 8 ;;
    libckpt/inspect/* | libckpt/init_state/* | libckpt/transform/merge/*) echo 14 ;;
    libckpt/*) echo 9 ;;
    formats/torch/* | formats/safetensors/* | formats/rules/* | formats/training/* | formats/npz/*) echo 10 ;;
    formats/deepspeed/write/*) echo 12 ;;
    formats/deepspeed/*) echo 11 ;;
    formats/universal/* | formats/hf/* | formats/dcp/*) echo 13 ;;
    formats/*) echo 14 ;;
    tools/zerotrain/* | tools/costs/config.c) echo 29 ;;
    tools/cli/*) echo 15 ;;
    tools/sandbox/* | tools/mpi/*) echo 16 ;;
    tools/ckpt/*) echo 17 ;;
    tools/compat/* | tools/report/*) echo 18 ;;
    tools/*) echo 19 ;;
    engine/device/*) echo 21 ;;
    engine/comm/*) echo 22 ;;
    engine/cuda/* | engine/optim/*) echo 23 ;;
    engine/config/*) echo 24 ;;
    engine/model/* | engine/tokenizer/*) echo 25 ;;
    engine/data/* | engine/zero/*) echo 26 ;;
    engine/save/*) echo 27 ;;
    engine/*) echo 28 ;;
    *) echo 0 ;;
    esac
}
pairs=
files=$(find libckpt formats tools engine -name '*.[ch]' -o -name '*.cu')
for f in $files; do
    mine=$(rank "$f")
    for inc in $(sed -n 's/^#include "\([^"]*\)".*/\1/p' "$f"); do
        case "$inc" in
        # the public headers are below everything
        ckpt*.h | libckpt/include/*) continue ;;
        esac
        [ "${f%/*}" = "${inc%/*}" ] || pairs="$pairs
${f%/*} ${inc%/*}"
        theirs=$(rank "$inc")
        if [ "$theirs" -gt "$mine" ]; then
            echo "$f includes upward: $inc"
            bad=1
        fi
        case "$f $inc" in
        libckpt/copy/*\ libckpt/dist/* | libckpt/run/*\ libckpt/dist/*)
            echo "$f: the executor knows other processes only by libckpt/run/peers.h, so it must not include $inc"
            bad=1
            ;;
        esac
        if [ "${f#tools/}" != "$f" ] && [ "${f#tools/zerotrain/}" = "$f" ] && [ "$f" != tools/costs/config.c ] && [ "${inc#tools/}" = "$inc" ] &&
            [ "$inc" != libckpt/base/plugin.h ] &&
            [ "$inc" != libckpt/base/hidden.h ] && # one loader of plugins, one list of characters
            [ "$inc" != libckpt/base/number.h ] && # one parser of numbers
            [ "$inc" != libckpt/base/index.h ] && [ "$inc" != libckpt/base/vec.h ]; then # one kind of tables and arrays
            echo "$f: tools include ckpt.h and their own headers only, not $inc"
            bad=1
        fi
    done
done
# folders of one level, too, include each other in one direction only
both=$(printf '%s\n' "$pairs" | sort -u | awk 'NF == 2 { if (($2, $1) in seen) print $1 " and " $2; seen[$1, $2] = 1 }')
if [ -n "$both" ]; then
    printf 'include each other: %s\n' "$both"
    bad=1
fi
if grep -rn '#include "\(formats\|tools\)/' engine; then
    echo "the engine includes libckpt and itself only"
    bad=1
fi
for lib in libdeflate.h zlib.h zip.h openssl/ cjson/ pcre2.h yaml.h cblas.h oneapi/dnnl mpi.h curl/; do
    users=$(grep -rl --include='*.c' "#include <$lib" libckpt formats tools engine)
    n=$(printf '%s\n' "$users" | grep -c .)
    limit=1
    [ "$lib" = zlib.h ] && limit=2     # CRC joining in digest.c, inflate in inflate.c
    [ "$lib" = pcre2.h ] && limit=2    # names of tensors in the library, words of text in the engine
    [ "$lib" = openssl/ ] && limit=3   # digests, and keys, in the library; base64 in the engine
    [ "$lib" = oneapi/dnnl ] && limit=2 # products of fp32, and of BF16, which other processors have no code for
    [ "$lib" = mpi.h ] && limit=2      # the engine's, and the plugin of ckpt
    if [ "$n" -gt "$limit" ]; then
        echo "<$lib> is included by more than $limit file: $users"
        bad=1
    fi
done
exit $bad
