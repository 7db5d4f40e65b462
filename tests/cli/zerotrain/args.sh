# SPDX-License-Identifier: Apache-2.0
# More options from a JSON file; those that follow on the command line win.
. "$FIXTURES"/../cli/zerotrain_help.inc
echo '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}' >auto.json
cat >args.json <<EOF
{"deepspeed_config": "auto.json", "model": "$S", "print-config": true, "per_device_train_batch_size": 5,
 "quiet": false, "init": null}
EOF
zerotrain --args args.json | grep micro
zerotrain --args args.json --per_device_train_batch_size 6 | grep micro
zerotrain --per_device_train_batch_size 6 --args args.json | grep micro
