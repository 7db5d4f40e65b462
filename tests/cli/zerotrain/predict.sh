# SPDX-License-Identifier: Apache-2.0
# Classes and probabilities of every sample, in order; as many right as --evaluate counts.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --quiet --max-steps 60 --save run
set -- --quiet --deepspeed_config ds.json --model "$S" --threads 1 --data "$S"/eval.tsv --load run
zerotrain "$@" --predict out.jsonl
zerotrain "$@" --predict - | cmp - out.jsonl
zerotrain "$@" --evaluate >score
FILE=$S/eval.tsv python3 - <<'EOF'
import json
import os
import re
rows = [line.split('\t')[0] for line in open(os.environ['FILE'], encoding='utf-8')][1:]
lines = [json.loads(line) for line in open('out.jsonl', encoding='utf-8')]
print(len(lines), 'lines of', len(rows), '- keys', *lines[0])
right = 0
for i, (m, row) in enumerate(zip(lines, rows)):
    p = m['probabilities']
    assert m['sample'] == i and len(p) == 6 and abs(sum(p) - 1) < 1e-4 and p[m['class']] == max(p), m
    right += m['name'] == row
share = float(re.search('accuracy ([0-9.]*)', open('score').read())[1])
assert abs(100 * right / len(rows) - share) < 0.006, (right, share)
EOF
