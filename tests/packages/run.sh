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
# container.sh uses what tarballs.sh makes, same.sh what debs.sh does
for part in tarballs container debs same wheel; do
    # shellcheck disable=SC2086
    sh tests/packages/$part.sh $full "${1:-build/bin}" || status=1
done
exit $status
