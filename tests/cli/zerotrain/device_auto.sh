# SPDX-License-Identifier: Apache-2.0
# Where no GPU can be used, auto is the processor.
. "$FIXTURES"/../cli/zerotrain_help.inc
ZEROTRAIN_CUDA_PLUGIN=$PWD/none.so train --max-steps 2 --seq 16 --device auto --deterministic 2>&1 | numbers
