# SPDX-License-Identifier: Apache-2.0
# Settings of the configuration that a resumed run does not use are named; the state of another optimizer is refused.
. "$FIXTURES"/../cli/zerotrain_help.inc
config() { # FILE TYPE PARAMS MORE
    echo "{\"train_batch_size\": 16, \"zero_optimization\": {\"stage\": 1}, \"zero_allow_untested_optimizer\": true,
          \"optimizer\": {\"type\": \"$2\", \"params\": {$3}}$4}" >"$1"
}
schedule=', "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4, "warmup_max_lr": 0.001}}'
go() { # OPTIMIZER PARAMS MORE OPTIONS...
    config ds.json "$1" "$2" "$3"
    shift 3
    train --quiet --max-steps 3 "$@"
    echo "exit status $?"
}
echo "--- Adam"
config ds.json AdamW '"lr": 0.001, "weight_decay": 0.01' "$schedule"
train --quiet --max-steps 2 --save run
go AdamW '"lr": 0.001, "weight_decay": 0.01' "$schedule" --load run
go AdamW '"lr": 0.5, "betas": [0.9, 0.99], "eps": 1e-6, "weight_decay": 0.3, "bias_correction": false' "$schedule" --load run
go AdamW '"lr": 0.5' '' --load run
go AdamW '"weight_decay": 0.3' "$schedule" --load run --param-groups decay
go AdamW '"weight_decay": 0.3' "$schedule" --load run --module-only
echo "--- another optimizer"
for type in Lion Lamb SGD; do
    go "$type" '"lr": 0.001' '' --load run
done
config ds.json Lamb '"lr": 0.001' ''
train --quiet --max-steps 2 --save lamb
go Lamb '"lr": 0.001' '' --load lamb
go AdamW '"lr": 0.001' '' --load lamb
echo "--- a schedule that the saved run did not have"
config ds.json AdamW '"lr": 0.001' ''
train --quiet --max-steps 2 --save plain
go AdamW '"lr": 0.001' "$schedule" --load plain
go AdamW '"lr": 0.001' "$schedule" --load plain --module-only
