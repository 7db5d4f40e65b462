# SPDX-License-Identifier: Apache-2.0
# Files that are not there: 5.
. "$FIXTURES"/../cli/zerotrain_help.inc
try() {
    zerotrain --quiet --threads 1 --max-steps 1 "$@"
    echo "exit status $?"
}
C="--deepspeed_config ds.json"
try --deepspeed_config nowhere.json --model "$S" --data "$S"/train.tsv
try $C --model nowhere --data "$S"/train.tsv
try $C --model "$S" --data nowhere.tsv
try $C --model "$S" --data "$S"/train.tsv --vocab nowhere.txt
try $C --model "$S" --data "$S"/train.tsv --init nowhere
try $C --model "$S" --data "$S"/train.tsv --load nowhere
try $C --model "$S" --data "$S"/train.tsv --hostfile nowhere
try --args nowhere.json
