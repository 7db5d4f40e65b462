# SPDX-License-Identifier: Apache-2.0
# --init with adapters must still have all of the base: adapters that it has do not count for the base.
cp "$FIXTURES/golden/run_model_gpt2.json" config.json
cat >ds.json <<'J'
{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
J
train() {
    zerotrain --deepspeed_config ds.json --model config.json --data "$FIXTURES/golden/run_data_gpt2.safetensors" --lora-rank 2 \
        --max-steps 1 --quiet "$@"
}
train --init "$FIXTURES/golden/run_data_gpt2.safetensors" --save-weights whole.safetensors
ckpt ls whole.safetensors | tail -n 1
ckpt convert -q whole.safetensors cut.safetensors --exclude '*ln_f.bias'
train --init whole.safetensors; echo "status $?"
train --init cut.safetensors; echo "status $?"
