# SPDX-License-Identifier: Apache-2.0
# A kind of state that one parameter lacks, and others have; a model file that is lost; an empty folder.
ckpt convert -q "$FIXTURES"/z2_bf16_w2_aligned/ckpt whole --to universal
try() {
    rm -rf some
    cp -r whole some
    rm some/*_universal/$1
    echo "== without $1"
    ckpt verify some
    echo "verify: $?"
    ckpt reshard -q some out
    echo "reshard: $?"
    ckpt convert -q some w.safetensors
    echo "convert: $?"
    rm -rf out w.safetensors
}
try zero/bn.bias/exp_avg.pt
try zero/bn.bias/step.pt
try zero/bn.running_mean/fp32.pt
try mp_rank_00_model_states.pt
# Muon and AdamW keep other kinds
ckpt convert -q "$FIXTURES"/z2_bf16_w2_muon/ckpt muon --to universal
ckpt verify -q muon
echo "muon: $?"
