# SPDX-License-Identifier: Apache-2.0
# Random weights do not depend on the number of threads that draw them.
. "$FIXTURES"/../cli/zerotrain_help.inc
for n in 1 3; do
    zerotrain --deepspeed_config ds.json --model "$S" --data "$S"/train.tsv --max-steps 1 --init none --quiet --threads $n --save-weights $n.safetensors
done
cmp 1.safetensors 3.safetensors && echo the same weights
