# SPDX-License-Identifier: Apache-2.0
# Folders of the Trainer, accelerate and Lightning with a file that is missing, cut, or of another save.
# try FIXTURE COMMAND...: COMMAND breaks the copy `some`
try() {
    rm -rf some out
    cp -r "$FIXTURES"/$1/ckpt some
    chmod -R u+w some
    shift
    (cd some && "$@")
    echo "== $*"
    ckpt verify --strict -q some >told
    rc=$?
    ckpt verify some | grep -v '^note'
    echo "verify --strict: $rc"
}
cut() { truncate -s "$2" "$1"; }
step() { sed -i "s/\"global_step\": [0-9]*/\"global_step\": $1/" trainer_state.json; }
T=hf_trainer_fsdp1_full_w2 A=accel_fsdp1_full_w2 L=lightning_mp_w2
try $T true
for file in optimizer.bin pytorch_model_fsdp.bin rng_state_1.pth scheduler.pt trainer_state.json; do
    try $T rm $file
done
try $T rm rng_state_0.pth rng_state_1.pth
try $T cut rng_state_1.pth 9000
try $T cut trainer_state.json 900
try $T cut model.safetensors 9000
try $T cut generation_config.json 100
try $T rm config.json
try $T step 1
try $A true
for file in optimizer.bin random_states_0.pkl scheduler.bin; do
    try $A rm $file
done
try $A cut random_states_1.pkl 9000
try $L true
try $L rm meta.pt
# what follows of the run is asked for
try $A rm optimizer.bin
ckpt reshard -q some out -w 2
echo "reshard: $?"
# beside DeepSpeed's tags
rm -rf some
cp -r "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt some
chmod -R u+w some
rm some/rng_state_1.pth
ckpt doctor -a some
ckpt convert -q --strict some out --to hf
echo "convert: $?"
truncate -s 100 some/generation_config.json
ckpt convert -q --strict some out2 --to hf
echo "convert: $?"
# an adapter, and Meta's files
mkdir adapter meta
cp "$FIXTURES"/peft_tied_head/adapter/adapter_model.safetensors adapter
ckpt convert -q --strict adapter out3 --to hf
echo "convert: $?"
cp "$FIXTURES"/map_meta_s1/meta/consolidated.00.pth meta
ckpt verify --strict meta
echo "verify --strict: $?"
rm -rf some
cp -r "$FIXTURES"/$L/ckpt some
chmod -R u+w some
python3 "$FIXTURES"/../cli/other_step.py some/meta.pt global_step
ckpt verify --strict some
echo "Lightning, another step: $?"
# a Trainer's folder of one process: weights, and files of a run without its optimizer
rm -rf some
cp -r "$FIXTURES"/$T/ckpt some
chmod -R u+w some
rm some/pytorch_model_fsdp.bin some/optimizer.bin
ckpt info some | tail -1
ckpt reshard -q some new --stage 2 -w 2
echo "reshard: $?"
ckpt reshard -q some new --stage 2 -w 2 --drop-optimizer
echo "reshard --drop-optimizer: $?"
