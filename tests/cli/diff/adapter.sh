# SPDX-License-Identifier: Apache-2.0
# A run that trained an adapter, beside the folder that PEFT would write of it.
run=$FIXTURES/trainer_lora_z3/global_step2
ckpt convert -q "$run" f32 --to hf --dtype f32 --adapter-only
mkdir other && cp "$run"/../adapter_* other && chmod -R u+w other
ckpt diff "$run" f32
ckpt diff f32/adapter_model.safetensors "$run"
ckpt diff --ignore-dtype --tol 1e-3 other "$run"
ckpt diff -q other "$run" | head -n 1
ckpt diff -q --map none f32 "$run" | head -n 1
ckpt diff -q --with-optimizer f32 "$run" | head -n 1
echo "-- with its base model and a trained head, which the configuration must name"
with_head() {
    sed 's/"modules_to_save": null/"modules_to_save": ["lm_head"]/' "$1"
}
run=$FIXTURES/k_lora_z3/ckpt
ckpt diff "$run" f32 | tail -n 1
with_head f32/adapter_config.json >config.json
ckpt convert -q "$run" head --to hf --adapter-only --adapter-config config.json
ckpt diff "$run" head
python3 -c 'f = open("head/adapter_model.safetensors", "r+b"); f.seek(-1, 2); b = f.read(1)[0]; f.seek(-1, 2); f.write(bytes([b ^ 1]))'
ckpt diff "$run" head
