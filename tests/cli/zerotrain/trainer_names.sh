# SPDX-License-Identifier: Apache-2.0
# Trainer's names beside ours: one setting, either spelling; two values for it are refused, as is what has no equivalent.
. "$FIXTURES"/../cli/zerotrain_help.inc
zerotrain --deepspeed ds.json --model "$S" --train-file "$S"/train.tsv --threads 1 --max_train_samples 32 \
    --num_train_epochs 2.0 --max_steps -1 --output_dir run --save-steps 2 --save_total_limit 1 --logging_steps 3 2>&1 |
    grep '^step' | numbers
ls run
zerotrain --deepspeed ds.json --model "$S" --data "$S"/train.tsv --threads 1 --max_steps 5 --save run --output_dir run \
    --resume_from_checkpoint True 2>&1 | grep -e '^resumed' -e '^step' | numbers
no() {
    train --max-steps 1 "$@"
    echo "exit status $?"
}
no --epochs 2 --num_train_epochs 3
no --num_train_epochs 0.5
no --epochs 0
no --max_steps 0
no --max-steps -2
no --save a --output_dir b
no --resume_from_checkpoint true
no --keep 2 --save_total_limit 3 --save x
no --warmup_ratio 1
no --warmup_ratio 0.1 --warmup_steps 3
no --evaluate --max_train_samples 3
no --quiet --logging_steps 3
no --evaluate --plot x.svg
no --data "$FIXTURES"/golden/run_data_bert.safetensors --max_train_samples 3
ls
