# SPDX-License-Identifier: Apache-2.0
# bitsandbytes' 8-bit moments: they are not laid out anew, and --drop-optimizer leaves nothing of them.
run=$FIXTURES/z2_bf16_w2_bnb8/ckpt
ckpt reshard -q -w 3 $run plain
echo "reshard: $?"
ckpt convert -q --to dcp $run dcp
echo "dcp: $?"
ckpt convert -q --strict $run weights.safetensors
echo "weights: $?"
for stage in 1 2 3; do
    ckpt reshard -q --strict --drop-optimizer --stage $stage -w 3 $run new$stage
    echo "stage $stage without the optimizer: $?"
    for f in new$stage/global_step3/*optim_states.pt; do
        ckpt tree "$f" optimizer_state_dict | grep -c 'state1\|qmap\|absmax'
        ckpt tree "$f" optimizer_state_dict | grep 'state: '
    done
    ckpt convert -q new$stage new$stage.safetensors
    ckpt diff -q weights.safetensors new$stage.safetensors
    echo "the same weights: $?"
done
ls
