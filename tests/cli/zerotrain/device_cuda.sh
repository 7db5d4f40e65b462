# SPDX-License-Identifier: Apache-2.0
# A device whose plugin is not there, and one that there is not.
. "$FIXTURES"/../cli/zerotrain_help.inc
ZEROTRAIN_CUDA_PLUGIN=$PWD/none.so train --max-steps 1 --device cuda 2>&1 | sed "s|$PWD/||g" >&2
train --max-steps 1 --device tpu
