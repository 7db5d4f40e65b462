# SPDX-License-Identifier: Apache-2.0
# Evaluations of a run, and the one at its end.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --max-steps 5 --eval-every 2 --eval-data "$S"/eval.tsv --metrics m.jsonl 2>&1 | numbers | grep evaluated
sed 's/, "[le].*//' m.jsonl
