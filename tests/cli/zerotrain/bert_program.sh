# SPDX-License-Identifier: Apache-2.0
# A BERT classifier from training to use: six classes, ZeRO-3 on two ranks, an evaluation after each part of the run, the best checkpoint
# by accuracy; its shards made into a model, which is evaluated alone, with the report of its classes.
. "$FIXTURES"/../cli/zerotrain_help.inc
zerotrain --num_gpus 2 --threads 1 --deepspeed_config "$S"/ds_config.json --model_name_or_path "$S" --do_train --do_eval \
    --train_file "$S"/train.tsv --validation_file "$S"/eval.tsv --max_seq_length 24 --max_steps 72 --eval_strategy steps --eval_steps 36 \
    --save_strategy best --metric_for_best_model eval_accuracy --load_best_model_at_end --save_total_limit 1 --output_dir run \
    --save-model model --metrics m.jsonl 2>&1 | grep '^evaluated' | sed 's/[0-9]*\.[0-9]*/X/g'
ls run run/global_step72
ls model
tag=$(sed 's/.*"tag": "\([^"]*\).*/\1/' run/best.json)
zero_to_fp32 -q run classifier --tag "$tag" --safe_serialization
for from in classifier model; do
    zerotrain --deepspeed_config "$S"/ds_config.json --model "$S" --init $from --data "$S"/eval.tsv --seq 24 --threads 1 --evaluate \
        --quiet >$from.txt
    zerotrain --deepspeed_config "$S"/ds_config.json --model "$S" --init $from --data "$S"/eval.tsv --seq 24 --threads 1 --evaluate \
        --quiet --json >$from.json
done
cmp classifier.json model.json && sed -e 's/[0-9]*\.[0-9]*/X/g' classifier.txt
python3 - <<'EOF'
import json
best = json.load(open('run/best.json'))
score = json.load(open('model.json'))
scores = [x['eval_accuracy'] for x in map(json.loads, open('m.jsonl')) if 'eval_accuracy' in x]
assert len(scores) == 2 and max(scores) > 0.7, scores
assert best['value'] == max(scores) == score['accuracy'] == score['report']['accuracy'], (best, scores, score)
assert sum(c['support'] for n, c in score['report'].items() if n not in ('accuracy', 'macro avg', 'weighted avg')) == 166
print('the best of two evaluations is what the model scores')
EOF
