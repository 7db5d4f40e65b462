# SPDX-License-Identifier: Apache-2.0
# Several ranks: mpirun is started by itself, and the checkpoint is one of two ranks.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --num_gpus 2 --max-steps 2 --metrics m.jsonl --save run 2>&1 | numbers
wc -l <m.jsonl | tr -d ' '
ls run/global_step2
ckpt info run | grep -e world -e stage
# one rank goes on
train --quiet --max-steps 3 --load run --metrics m.jsonl
wc -l <m.jsonl | tr -d ' '
