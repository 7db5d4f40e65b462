# SPDX-License-Identifier: Apache-2.0
# '-' and '_' are the same in names, "=" is a blank.
. "$FIXTURES"/../cli/zerotrain_help.inc
echo '{"train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "Adam", "params": {"lr": "auto"}}}' >auto.json
set -- --model "$S" --print-config
zerotrain --deepspeed_config auto.json --per_device_train_batch_size 3 --learning_rate 0.25 "$@" >a
zerotrain --deepspeed-config=auto.json --per-device-train-batch-size=3 --learning-rate=0.25 "$@" >b
zerotrain --deepspeed_config auto.json --print_config --model "$S" >c
cmp a b
grep -e train_batch_size -e train_micro -e '"lr"' a
cmp -s a c || echo "without them it is another one"
