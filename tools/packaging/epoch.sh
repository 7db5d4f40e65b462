#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Print the modification time for files in packages, in seconds since 1970: SOURCE_DATE_EPOCH, else the time of the last
# commit, else the time of CHANGELOG.md, which source.sh has set.
cd "$(dirname "$0")/../.." || exit 1
if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
    echo "$SOURCE_DATE_EPOCH"
elif [ -e .git ] && time=$(git log -1 --format=%ct 2>/dev/null); then
    echo "$time"
else
    stat -c %Y CHANGELOG.md
fi
