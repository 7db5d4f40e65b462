# SPDX-License-Identifier: Apache-2.0
# The best checkpoint: kept when others go, named in best.json, its weights in the final outputs, and known to a run that resumes.
. "$FIXTURES"/../cli/zerotrain_help.inc
# a rate that is too high at the end, so that the best score is not the last one
cat >ds.json <<'EOF'
{"train_batch_size": 16, "optimizer": {"type": "AdamW", "params": {"lr": 2e-3}}, "bf16": {"enabled": true},
 "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.3, "warmup_num_steps": 40, "warmup_type": "linear"}},
 "zero_optimization": {"stage": 2}}
EOF
best() {
    sed -e 's/: [0-9.e-]*}/: X}/' run/best.json
    python3 - <<'EOF'
import json
lines = [json.loads(x) for x in open('m.jsonl')]
scores = {x['step']: x['eval_loss'] for x in lines if 'eval_loss' in x}
best = json.load(open('run/best.json'))
assert best['value'] == min(scores.values()) == scores[best['step']], (best, scores)
assert best['step'] < max(scores), scores
EOF
}
train --eval-data "$S"/eval.tsv --max-eval-samples 64 --max-steps 12 --eval-every 2 --save-every 3 --keep 1 --save run --save-best loss \
    --metrics m.jsonl --save-model out --save-weights w.safetensors 2>&1 | grep '^best' | sed 's/: [0-9.e+-]*/: X/'
best
ls run
tag=$(sed 's/.*"tag": "\([^"]*\).*/\1/' run/best.json)
zero_to_fp32 -q run fp32.safetensors --tag "$tag" && ckpt diff -q fp32.safetensors w.safetensors && echo "the weights of the best checkpoint"
train --quiet --evaluate --init out --eval-data "$S"/eval.tsv --max-eval-samples 64 --json | python3 -c '
import json, sys
assert abs(json.load(sys.stdin)["loss"] - json.load(open("run/best.json"))["value"]) < 1e-6' && echo "its loss"
echo "--- resumed: only a better score replaces it"
train --eval-data "$S"/eval.tsv --max-eval-samples 64 --max-steps 14 --eval-every 1 --keep 1 --load run --save run --save-best loss \
    --metrics m.jsonl 2>&1 | grep '^best' | sed 's/: [0-9.e+-]*/: X/'
best
ls run
echo "--- the Trainer's names"
train --eval-data "$S"/eval.tsv --max-eval-samples 64 --max-steps 4 --eval_strategy steps --eval_steps 2 --save_strategy best --output_dir t \
    --metric_for_best_model eval_accuracy --load_best_model_at_end --greater_is_better false 2>&1 | grep '^best' | sed 's/: [0-9.e+-]*/: X/'
ls t
echo "--- refused"
no() {
    train --quiet --max-steps 2 "$@"
    echo "exit status $?"
}
no --save-best loss --save x
no --save-best loss --eval-data "$S"/eval.tsv
no --save-best loss --eval-data "$S"/eval.tsv --save x --tag t
no --save-best bleu --eval-data "$S"/eval.tsv --save x
no --save-best perplexity --eval-data "$S"/eval.tsv --save x
no --save-best f1 --metric_for_best_model loss --eval-data "$S"/eval.tsv --save x
no --greater_is_better maybe --load_best_model_at_end
ls
