#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests of what is given to others: each part says what it left out, and why.
#
#   run.sh [--full] [--install] BIN     --full: also what takes long; --install: what is missing, where that can be had
#
# A machine without a mirror, or where nobody may change the root folder, skips parts and fails none.
set -u
cd "$(dirname "$0")/../.." || exit 1
full=
[ "${1:-}" != --full ] || { full=--full && shift; }
if [ "${1:-}" = --install ]; then
    shift
    # shellcheck disable=SC2086
    timeout 900 sh tools/deps.sh packages ${full:+cross} || echo "packages: what is missing could not be installed"
fi
status=0
# In CI, which sets CKPT_TURN=K/3 (tests/turns.py), each of three groups has its turn, because each compiles everything once more.
# All have one when the last twenty commits changed how packages are made.  Meson's list of sources is compared every time.
# container.sh uses what tarballs.sh makes, same.sh what debs.sh does.
parts="tarballs container debs same wheel meson musl"
changed=unknown
if git rev-parse -q --verify HEAD~20 >/dev/null 2>&1; then
    changed=$(git diff --name-only HEAD~20 HEAD -- tools/packaging tests/packages tools/python | head -n 1)
fi
if [ -n "${CKPT_TURN:-}" ] && [ -z "$changed" ]; then
    case $CKPT_TURN in
    0/*) parts="tarballs container meson" ;;
    1/*) parts="debs same meson" ;;
    2/*) parts="wheel meson musl" ;;
    esac
    echo "packages: the turn of $parts"
fi
for part in $parts; do
    # shellcheck disable=SC2086
    sh tests/packages/$part.sh $full "${1:-build/bin}" || status=1
done
exit $status
