# SPDX-License-Identifier: Apache-2.0
# The best checkpoint: a model of NaN is not the best by its accuracy, and no later run loses the one that best.json names.
. "$FIXTURES"/../cli/zerotrain_help.inc
cat >bad.json <<'EOF'
{"train_batch_size": 16, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
 "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-4, "warmup_max_lr": 1e25, "warmup_num_steps": 2, "warmup_type": "linear"}}}
EOF
best() {
    train --eval-data "$S"/eval.tsv --max-eval-samples 32 --eval-every 1 "$@" 2>&1 | grep -e best -e '^zerotrain' | sed 's/: [0-9.e+-]*/: X/'
}
zerotrain --deepspeed_config bad.json --model "$S" --data "$S"/train.tsv --threads 1 --eval-data "$S"/eval.tsv --max-eval-samples 32 --max-steps 4 \
    --eval-every 1 --save nan --save-best accuracy --keep 1 >/dev/null 2>&1
sed 's/.*"step": \([0-9]*\).*/best step \1/' nan/best.json
echo "--- a run that goes on: by another metric, with a damaged file, without --save-best"
best --max-steps 2 --save run --save-best loss --keep 1
tag=$(sed 's/.*"tag": "\([^"]*\).*/\1/' run/best.json)
best --max-steps 3 --load run --save run --save-best accuracy --keep 1
train --quiet --max-steps 5 --save-every 1 --load run --save run --keep 1 && test -d "run/$tag" && echo "it is still there"
echo x >run/best.json
best --max-steps 6 --load run --save run --save-best loss --keep 1
test -d "run/$tag" && echo "it is still there"
