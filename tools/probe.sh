#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Print what the compiler and the installed libraries offer, as words KIND:VALUE.  The Makefile calls this script at each start,
# because the answers change when packages are installed.
#
#   CC=cc SAN= REMOTE= MOUNT= CUDA_DIR= CUDNN_INCLUDE= sh tools/probe.sh
#
# SAN names sanitizers, with which nothing is hardened.  REMOTE=no and MOUNT=no ask for no libcurl and no libfuse.  CUDA_DIR is the
# folder in which CUDA is installed, and CUDNN_INCLUDE is a list of more folders with headers.
set -u
CC=${CC:-cc}

# compiles FLAG...: the compiler and its headers accept the flags without a warning
compiles() {
    printf '#include <stdio.h>\n' | $CC -O2 -Werror -U_FORTIFY_SOURCE "$@" -x c -c -o /dev/null - 2>/dev/null
}

# Most compilers accept all flags for their processor, so one run usually answers for all.
hardening() {
    case $(uname -m) in
    aarch64) set -- -fstack-clash-protection -mbranch-protection=standard ;;
    *) set -- -fstack-clash-protection -fcf-protection=full ;;
    esac
    if compiles -D_FORTIFY_SOURCE=3 "$@"; then
        printf '%s\n' fortify:-D_FORTIFY_SOURCE=3
        printf 'harden:%s\n' "$@"
        return
    fi
    for level in 3 2; do
        ! compiles -D_FORTIFY_SOURCE=$level || {
            echo fortify:-D_FORTIFY_SOURCE=$level
            break
        }
    done
    for flag in -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard; do
        ! compiles "$flag" || echo "harden:$flag"
    done
}

# installed headers, by one run of the preprocessor
headers() {
    {
        [ "${REMOTE:-}" = no ] || printf '#if __has_include(<curl/curl.h>)\nheader:curl\n#endif\n'
        [ -z "${CUDA_DIR:-}" ] || printf '#if __has_include(<nccl.h>)\nheader:nccl\n#endif\n'
        # cuDNN 9, and headers of its C++ interface from 1.14 on
        [ -z "${CUDA_DIR:-}" ] ||
            printf '%s\n' '#if __has_include(<cudnn_version.h>) && __has_include(<cudnn_frontend_version.h>)' \
                '#include <cudnn_version.h>' '#include <cudnn_frontend_version.h>' \
                '#if CUDNN_MAJOR == 9 && CUDNN_FRONTEND_VERSION >= 11400' header:cudnn '#endif' '#endif'
    } | $CC "$@" ${CUDA_DIR:+"-I$CUDA_DIR/include"} -x c -E -P - 2>/dev/null
}

# package KIND NAME: flags of an installed package, whose headers are system headers
package() {
    for word in $(pkg-config --cflags "$2" 2>/dev/null | sed 's/-I/-isystem /g'); do echo "$1_cflags:$word"; done
    for word in $(pkg-config --libs "$2" 2>/dev/null); do echo "$1_libs:$word"; done
}

echo "machine:$(uname -m)"
[ -n "${SAN:-}" ] || hardening
set --
for folder in ${CUDNN_INCLUDE:-}; do set -- "$@" "-I$folder"; done
headers "$@"
package mpi ompi-c
[ "${MOUNT:-}" = no ] || package fuse 'fuse3 >= 3.12'
