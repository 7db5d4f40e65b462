# SPDX-License-Identifier: Apache-2.0
# What a run tells, and that --quiet tells nothing.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --max-steps 5 2>&1 | numbers
train --max-steps 5 --quiet
