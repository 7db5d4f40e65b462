# SPDX-License-Identifier: Apache-2.0
# Names that transformers and launchers have: taken, without effect and said so, or refused with the way out.
. "$FIXTURES"/../cli/zerotrain_help.inc
go() {
    zerotrain --deepspeed ds.json --model_name_or_path "$S" --train_file "$S"/train.tsv --threads 1 --max_steps 1 "$@" >told 2>&1
    echo "$*: exit status $?"
    grep -e '^note: --' -e '^zerotrain:' -e '^evaluated' told | numbers
}
go --do_train --gradient_checkpointing 1 --bf16 False --tf32 true --bf16_full_eval --no_ssh_check --deepspeed --overwrite_output_dir \
    --output_dir run --save_strategy no --eval_strategy=no --per_device_eval_batch_size 4 --master_addr localhost \
    --master_port 29500 --fp16_backend auto --fp16_opt_level O1 --save_on_each_node False --use_cpu --run_name x
ls run
go --do_train --overwrite_output_dir --output_dir run
go --do_train --overwrite_output_dir --output_dir run --force
go --do_eval --validation_file "$S"/eval.tsv --max_eval_samples 40 --resume_from_checkpoint run
go --do_train --do_eval --validation_file "$S"/eval.tsv --max-eval-samples 40
go --do_eval --validation_file "$S"/eval.tsv --bf16_full_eval --block_size 32 --optim adamw_torch --load run --module-only
zerotrain --deepspeed ds.json --model "$S" --do_eval --bf16_full_eval --print_config | grep -A 1 '"bf16"'
zerotrain --deepspeed ds.json --model "$S" --save_on_each_node --print_config | grep node_local
echo "--- once an epoch: 96 samples are 6 updates"
go --do_train --validation_file "$S"/eval.tsv --max_train_samples 96 --max_steps 14 --evaluation_strategy epoch --save_strategy epoch --output_dir epochs
ls epochs
go --do_train --max_steps 3 --save_strategy steps --save_steps 2 --output_dir steps
ls steps
zerotrain --deepspeed ds.json --model "$S" --gradient_checkpointing true --print_config | grep -c activation_checkpointing
zerotrain --deepspeed ds.json --model "$S" --gradient-checkpointing False --print_config | grep -c activation_checkpointing
echo '{"deepspeed": "ds.json", "tf32": true, "fp16": false, "do_train": true, "save_on_each_node": false, "master_port": 1}' >args.json
zerotrain --args args.json --model "$S" --print-config 2>&1 | grep -e '^note: --'
echo "--- refused"
for o in "--do_train --do_eval" --do_predict "--do_train --evaluate" "--save_strategy epoch" "--eval_strategy epoch" "--save_strategy best" "--optim adafactor" \
    --load_best_model_at_end "--fp16_backend apex" "--save_only_model" "--tf32 maybe" "--bf16 maybe" \
    "--nproc_per_node 2" --predict_with_generate "--report_to wandb" --master_port "--max_eval_samples 3"; do
    go $o
done
echo '{"master_port": true, "tf32": 3}' >args.json
zerotrain --args args.json
