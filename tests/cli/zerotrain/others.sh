# SPDX-License-Identifier: Apache-2.0
# Names that transformers and launchers have: taken, without effect and said so, or refused with the way out.
. "$FIXTURES"/../cli/zerotrain_help.inc
go() {
    zerotrain --deepspeed ds.json --model_name_or_path "$S" --train_file "$S"/train.tsv --threads 1 --max_steps 1 "$@" >told 2>&1
    echo "$*: exit status $?"
    grep -e '^note: --' -e '^zerotrain:' -e '^evaluated' told | numbers
}
go --do_train --gradient_checkpointing 1 --bf16 False --tf32 true --bf16_full_eval --fp16_full_eval=True --overwrite_output_dir \
    --output_dir run --save_strategy no --eval_strategy=steps --per_device_eval_batch_size 4 --master_addr localhost \
    --master_port 29500 --fp16_backend auto --fp16_opt_level O1 --save_on_each_node False --use_cpu --run_name x
ls run
go --do_train --overwrite_output_dir --output_dir run
go --do_train --overwrite_output_dir --output_dir run --force
go --do_eval --validation_file "$S"/eval.tsv --max_eval_samples 40 --resume_from_checkpoint run
go --do_train --do_eval --validation_file "$S"/eval.tsv --max-eval-samples 40
zerotrain --deepspeed ds.json --model "$S" --gradient_checkpointing true --print_config | grep -c activation_checkpointing
zerotrain --deepspeed ds.json --model "$S" --gradient-checkpointing False --print_config | grep -c activation_checkpointing
echo '{"deepspeed": "ds.json", "tf32": true, "fp16": false, "do_train": true, "save_on_each_node": false, "master_port": 1}' >args.json
zerotrain --args args.json --model "$S" --print-config 2>&1 | grep -e '^note: --'
echo "--- refused"
for o in "--do_train --do_eval" --do_predict "--do_train --evaluate" "--save_strategy epoch" "--eval_strategy epoch" \
    --load_best_model_at_end "--fp16_backend apex" "--lr_scheduler_type cosine" --save_on_each_node "--tf32 maybe" "--bf16 maybe" \
    "--nproc_per_node 2" --predict_with_generate "--report_to wandb" --master_port "--max_eval_samples 3"; do
    go $o
done
echo '{"lr_scheduler_type": "cosine"}' >args.json
zerotrain --args args.json
