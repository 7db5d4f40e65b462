# SPDX-License-Identifier: Apache-2.0
# Metrics that cannot be written end the run.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --quiet --max-steps 1 --metrics nowhere/m.jsonl
