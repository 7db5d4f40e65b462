#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Print the names of the development files that the build needs and that are not installed.
#
#   CC=cc MPI="-lmpi" SGEMM=dnnl|openblas sh tools/needs.sh ckpt|build
#
# ckpt is for the checkpoint tools and libckpt only, build for zerotrain too (the sets of deps.sh).
# MPI is the output of pkg-config for ompi-c.  If it is empty, the script reports that zerotrain is built for one process.
set -u
CC=${CC:-cc}
set=${1:-build}

missing=
need() {
    printf '#include <stddef.h>\n#include <stdio.h>\n#include <%s>\n' "$1" |
        $CC -x c -E $3 -o /dev/null - 2>/dev/null || missing="$missing
    <$1> ($2)"
}

if ! command -v "${CC%% *}" >/dev/null 2>&1; then
    echo "needs: no C compiler '$CC' (gcc or clang); sh tools/deps.sh $set installs one on Debian" >&2
    exit 1
fi
need libdeflate.h libdeflate-dev ""
need zip.h libzip-dev ""
need zlib.h zlib1g-dev ""
need openssl/evp.h libssl-dev ""
need cjson/cJSON.h libcjson-dev ""
need pcre2.h libpcre2-dev -DPCRE2_CODE_UNIT_WIDTH=8
need yaml.h libyaml-dev ""
if [ "$set" = build ]; then
    if [ "${SGEMM:-dnnl}" = dnnl ]; then
        need oneapi/dnnl/dnnl.h libdnnl-dev ""
    else
        need cblas.h libopenblas-pthread-dev ""
    fi
    need unicase.h libunistring-dev ""
    need Random123/philox.h librandom123-dev ""
fi
if [ -n "$missing" ]; then
    echo "needs: these headers are missing (Debian packages in brackets; sh tools/deps.sh $set installs them):$missing" >&2
    exit 1
fi
if [ "$set" = build ] && [ -z "${MPI:-}" ]; then
    echo "note: Open MPI was not found (libopenmpi-dev and pkg-config): zerotrain is built for one process" >&2
fi
