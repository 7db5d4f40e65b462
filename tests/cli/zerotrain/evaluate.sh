# SPDX-License-Identifier: Apache-2.0
# Loss, share of right answers and report by class of a trained model; of one that has only begun; as a line of metrics.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --quiet --max-steps 60 --save run
train --quiet --evaluate --eval-data "$S"/eval.tsv --load run --metrics m.jsonl >out
numbers <out | sed 's/[0-9]\.[0-9][0-9]/X.XX/g'
sed 's/: [0-9.e-]*\([,}]\)/: X\1/g' m.jsonl
train --quiet --evaluate --eval-data "$S"/eval.tsv --load run --json | sed 's/: [0-9.e-]*\([,}]\)/: X\1/g'
train --json 2>&1
train --quiet --max-steps 1 --save begun
train --evaluate --quiet --load begun >fresh
numbers <fresh | sed 's/[0-9]\.[0-9][0-9]/X.XX/g'
python3 - <<'EOF'
import json
import re
known, fresh = (float(re.search('accuracy ([0-9.]*)', open(f).read())[1]) for f in ('out', 'fresh'))
m = json.loads(open('m.jsonl').read())
assert known > fresh + 15, (known, fresh)
assert abs(100 * m['eval_accuracy'] - known) < 0.006, m
EOF
