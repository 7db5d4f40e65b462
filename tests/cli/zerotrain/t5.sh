# SPDX-License-Identifier: Apache-2.0
# T5: pairs of source and target, a folder and adapters with transformers' names; what it refuses.
. "$FIXTURES"/../cli/zerotrain_help.inc
G=$FIXTURES/golden/t5
sed 's/"train_batch_size": 16/"train_batch_size": 2/' ds.json >pairs.json
t5() {
    zerotrain --deepspeed_config pairs.json --threads 1 --quiet --max-steps 2 --model "$G"/run_model_t5_gated.json "$@"
}
t5 --init "$G"/run_data_t5_gated.safetensors --data "$G"/run_data_t5_gated.safetensors --save-model out
ckpt ls out | grep -e shared -e decoder.block.0 -e relative -e lm_head
t5 --init out --data "$G"/run_data_t5_gated.safetensors --lora-rank 2 --save-model adapters
ckpt ls adapters | grep -e decoder.block.1
t5 --init out --data "$G"/run_data_t5_gated.safetensors --device cuda
echo "exit status $?"
t5 --init out --data "$G"/run_data_t5_gated.safetensors --device auto
echo "exit status $?"
printf '\001\000\002\000\003\000\004\000' >tokens.bin
t5 --init out --data tokens.bin --seq 2
echo "exit status $?"
