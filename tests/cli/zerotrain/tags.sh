# SPDX-License-Identifier: Apache-2.0
# Checkpoints on the way: tags, keeping the newest, resuming from an older one.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --quiet --max-steps 6 --save run --save-every 2 --keep 2 --metrics a.jsonl
ls run
train --quiet --max-steps 6 --load run --load-tag global_step4 --metrics b.jsonl --save other --tag mine
cat other/latest
# the same updates as without the stop, bit for bit
tail -n 2 a.jsonl | sed 's/, "seconds.*//' >a
sed 's/, "seconds.*//' b.jsonl | cmp - a
