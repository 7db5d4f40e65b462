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
printf '\001\000\002\000\003\000\004\000' >tokens.bin
t5 --init out --data tokens.bin --seq 2
echo "exit status $?"
# settings of the file that transformers would follow instead of feed_forward_proj
with() { # NAME VALUE: the gated model with one more setting
    python3 -c 'import json, sys; c = json.load(open(sys.argv[1])); c[sys.argv[2]] = json.loads(sys.argv[3]); json.dump(c, open("c.json", "w"))' \
        "$G"/run_model_t5_gated.json "$1" "$2"
    zerotrain --deepspeed_config pairs.json --threads 1 --quiet --max-steps 2 --model c.json --init none --data "$G"/run_data_t5_gated.safetensors
    echo "$1 $2: exit status $?"
}
with dense_act_fn '"relu"'
with dense_act_fn '"gelu_new"'
with is_gated_act false
with num_hidden_layers 2
sed 's/"train_batch_size"/"fp16": {"enabled": true}, "train_batch_size"/' pairs.json >half.json
zerotrain --deepspeed_config half.json --quiet --max-steps 2 --model out --data "$G"/run_data_t5_gated.safetensors
echo "exit status $?"
