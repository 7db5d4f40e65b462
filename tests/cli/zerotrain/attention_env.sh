# SPDX-License-Identifier: Apache-2.0
# A choice of what computes attention on a GPU has no effect on a processor.
. "$FIXTURES"/../cli/zerotrain_help.inc
for how in cudnn nonsense own ''; do
    echo "-- '$how'"
    ZEROTRAIN_ATTENTION=$how train --max-steps 1 --seq 16 --quiet 2>&1 | grep ATTENTION
done
true
