# SPDX-License-Identifier: Apache-2.0
# A lost optimizer file of an AutoEP run: the 16-bit weights are whole in the files of the model and its experts, and
# --weights-only takes them, with the same names.
cp -R "$FIXTURES/autoep_z1_w2/run" run
ckpt convert -q --dtype bf16 run masters.safetensors
rm run/global_step3/bf16_zero_pp_rank_1_*
ckpt convert -q run out.safetensors
echo "a shard lost: $?"
ckpt doctor run
ckpt convert -q --weights-only run weights.safetensors && ckpt diff masters.safetensors weights.safetensors
rm run/global_step3/layer_1_expert_3_*
ckpt convert -q --weights-only run out.safetensors
echo "the last expert lost: $?"
rm run/global_step3/layer_1_expert_*
ckpt convert -q --weights-only run out.safetensors
echo "a layer's experts lost: $?"
ckpt convert -q --weights-only "$FIXTURES/autoep_z3_w2/run" out.safetensors
echo "stage 3: $?"
ls out.safetensors 2> /dev/null
