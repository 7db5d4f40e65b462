#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans of cuDNN's attention for GPUs that are not there: plans.sh BUILD [FOLDER...]
# FOLDERs have cuDNN's headers; beside them, in ../lib or in Python's packages, its library is looked for, then where the system's
# loader looks.
set -u
b=${1:-build}
[ $# -eq 0 ] || shift
if [ ! -x "$b/absent/plans" ]; then
    echo "skipped: plans of cuDNN: built without cudnn.h and cudnn_frontend.h (CUDNN_INCLUDE)"
    exit 0
fi
for folder in "$@" "$(dirname "$(command -v nvcc || echo /nowhere/bin/nvcc)")/../include"; do
    for lib in "$folder/../lib" "$folder/../lib64" "$folder/../nvidia/cudnn/lib"; do
        if [ -e "$lib/libcudnn.so.9" ]; then
            LD_LIBRARY_PATH=$(cd "$lib" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
            break 2
        fi
    done
done
# the driver that does nothing stands in only where there is none
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    LD_LIBRARY_PATH=$(cd "$b/absent" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
export LD_LIBRARY_PATH
exec "$b/absent/plans"
