# SPDX-License-Identifier: Apache-2.0
# A lost optimizer file of stages 1 and 2: every command says what is missing, and that the 16-bit weights are whole; what it
# advises is done.  Stage 3 has no other weights.
for f in z2_bf16_w2_aligned z1_bf16_w3_groups tp2_z1_w4 moe_ep2_z2_w2; do
    rm -rf run
    cp -r "$FIXTURES"/$f/ckpt run
    chmod -R u+w run
    ckpt convert -q --weights-only run $f.whole --to hf 2>/dev/null
    rm $(find run -name '*_optim_states.pt' | sort | tail -1)
    echo "== $f"
    ckpt verify run
    echo "verify: $?"
    ckpt doctor run
    echo "doctor: $?"
    ckpt convert -q run out --to hf
    echo "convert: $?"
    ckpt convert -q --weights-only run out --to hf
    echo "convert --weights-only: $?"
    ckpt diff $f.whole out
    rm -rf out run/*/*_optim_states.pt
    ckpt convert -q --weights-only run out --to hf
    echo "convert --weights-only without any: $?"
    ckpt diff $f.whole out
    rm -rf out
done
rm -rf run
cp -r "$FIXTURES"/z2_bf16_w2_aligned/ckpt run
chmod -R u+w run
ckpt diff z2_bf16_w2_aligned.whole run --ignore-dtype --tol 0.01
rm run/*/*rank_0*_optim_states.pt
ckpt info run | head -1
zero_to_fp32 run out
echo "zero_to_fp32: $?"
zero_to_fp32 -q --weights_only run out
echo "zero_to_fp32 --weights_only: $?"
ckpt diff out z2_bf16_w2_aligned.whole --ignore-dtype
# the model file is lost, too
mv run/*/mp_rank_00_model_states.pt .
ckpt convert -q --weights-only run out --to hf
echo "without a model file: $?"
ckpt convert -q --weights-only "$FIXTURES"/z3_bf16_w5_odd/ckpt out --to hf
echo "stage 3: $?"
ckpt convert -q --weights-only "$FIXTURES"/hf_bert_sharded bert --to hf
echo "no run: $?"
