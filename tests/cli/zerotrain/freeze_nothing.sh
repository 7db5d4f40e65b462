# SPDX-License-Identifier: Apache-2.0
# Globs that match nothing, or everything.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --max-steps 1 --freeze 'roberta.*'
echo "exit status $?"
train --max-steps 1 --freeze '*'
