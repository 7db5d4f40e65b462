# SPDX-License-Identifier: Apache-2.0
# Only classifiers tell classes.
. "$FIXTURES"/../cli/zerotrain_help.inc
python3 -c "open('t.bin', 'wb').write(bytes(2 * 16 * 64))"
echo '{"train_micro_batch_size_per_gpu": 1}' >ds.json
zerotrain --quiet --deepspeed_config ds.json --model "$FIXTURES"/golden/run_model_gpt2.json --data t.bin --predict out
