# SPDX-License-Identifier: Apache-2.0
# transformers' schedules for a configuration without one: rates, the saved state of torch's LambdaLR, and a resumed run.
. "$FIXTURES"/../cli/zerotrain_help.inc
rates() {
    rm -f m.jsonl
    train --quiet "$@" --metrics m.jsonl --force && sed -e 's/.*"lr": \([^,]*\),.*/\1/' m.jsonl | tr '\n' ' ' && echo
}
echo "--- linear, as the Trainer's default; a share of the steps as warm-up"
rates --max_steps 6 --lr_scheduler_type linear --warmup_ratio 0.3 --save run
ckpt tree run | sed -n '/lr_scheduler/,/data_sampler/p'
ckpt tree run | grep initial_lr | sort -u
echo "--- six updates, and the second half of them on another stage"
restarts() {
    rates --max_steps 6 --lr_scheduler_type cosine_with_restarts --lr_scheduler_kwargs '{"num_cycles": 2}' --warmup_steps 1 "$@"
}
restarts --save half --save-every 3
sed -i 's/"stage": 2/"stage": 3/; s/1e-3/0.5/' ds.json
restarts --load half --load-tag global_step3
sed -i 's/0.5/1e-3/' ds.json
echo "--- resolved"
zerotrain --deepspeed ds.json --model "$S" --max_steps 10 --warmup_steps 2 --lr_scheduler_type polynomial \
    --lr_scheduler_kwargs '{"power": 2.0}' --print-config >resolved.json
sed -n '/"scheduler"/,/^  }/p' resolved.json
zerotrain --deepspeed resolved.json --model "$S" --max_steps 10 --print-config | cmp - resolved.json && echo "read again: equal"
echo "--- the configuration's own schedule wins"
cat >own.json <<'EOF'
{"train_batch_size": 16, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}}}
EOF
zerotrain --deepspeed own.json --model "$S" --data "$S"/train.tsv --max_steps 2 --lr_scheduler_type cosine --learning_rate 3e-4 \
    --threads 1 2>&1 | grep '^note: --lr'
echo "--- refused"
no() {
    train --max-steps 2 "$@"
    echo "exit status $?"
}
no --lr_scheduler_type reduce_lr_on_plateau
no --lr_scheduler_type slow
no --lr_scheduler_kwargs '{}'
no --lr_scheduler_type cosine --lr_scheduler_kwargs '[]'
no --lr_scheduler_type cosine --lr_scheduler_kwargs '{"power": 1}'
no --lr_scheduler_type cosine --lr_scheduler_kwargs '{"num_warmup_steps": 1}'
no --lr_scheduler_type polynomial --lr_scheduler_kwargs '{"lr_end": 0.5}'
no --lr_scheduler_type cosine_with_min_lr
