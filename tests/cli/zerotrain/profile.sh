# SPDX-License-Identifier: Apache-2.0
# Where the time went, and what a rank holds.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --max-steps 2 --quiet --profile --peak-tflops 0.5 2>&1 | sed -e 's/ *[0-9.]* s  *[0-9.]* %/ T/' -e 's/[0-9][0-9.e+-]*/N/g'
