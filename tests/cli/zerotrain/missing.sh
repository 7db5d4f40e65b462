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
# before the tokenizer, the data and the weights are read
echo '{' >tokenizer.json
echo words >words.txt
gpt2="--model $FIXTURES/peft_gpt2_conv1d/base --vocab tokenizer.json"
try $C $gpt2 --data nowhere.txt
try $C $gpt2 --data words.txt --eval-data nowhere.txt
try $C $gpt2 --data words.txt --load nowhere
try $C $gpt2 --data words.txt --init nowhere
try $C $gpt2 --data words.txt --init none
