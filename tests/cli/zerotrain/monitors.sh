# SPDX-License-Identifier: Apache-2.0
# Records that DeepSpeed sends to services: said to be without effect, not a reason to stop.
. "$FIXTURES"/../cli/zerotrain_help.inc
on='{"enabled": true, "output_path": "logs", "job_name": "x"}'
echo '{"train_batch_size": 16, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "tensorboard": '"$on"', "csv_monitor": '"$on"', "wandb": {"enabled": true, "project": "p"},
 "comet": {"enabled": false}, "flops_profiler": {"enabled": true}, "comms_logger": {"enabled": true}}' >ds.json
train --max-steps 1 2>&1 | grep note:
echo '{"train_batch_size": 16, "tensorboard": {"enabled": "perhaps"}}' >ds.json
train --max-steps 1
echo "exit status $?"
