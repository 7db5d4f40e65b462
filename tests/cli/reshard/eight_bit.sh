# SPDX-License-Identifier: Apache-2.0
# bitsandbytes' 8-bit moments: named, written as Adam's in fp32 when asked, and left out by --drop-optimizer.
run=$FIXTURES/z2_bf16_w2_bnb8/ckpt
ckpt info $run | grep moments
ckpt doctor $run
ckpt ls $run | tail -n 2
ckpt ls -a $run | grep 'exp_avg.*norm.weight'
ckpt convert -q --to dcp $run dcp
echo "dcp: $?"
ckpt convert -q --to universal $run universal
echo "universal: $?"
ckpt reshard -q --moments bf16 $run bf16
echo "another dtype: $?"
ckpt reshard -q --drop-optimizer --moments fp32 $run both
echo "with --drop-optimizer: $?"

# the hint leads there: every layout holds the values of the source
for stage in 1 2 3; do
    for world in 1 2 3; do
        ckpt reshard -q --strict --moments fp32 --stage $stage -w $world $run fp32_${stage}_$world &&
            ckpt verify -q fp32_${stage}_$world &&
            ckpt diff -q --with-optimizer $run fp32_${stage}_$world
        echo "stage $stage, $world ranks: $?"
    done
done
ckpt reshard -q --strict --moments fp32 --to dcp $run dcp && ckpt reshard -q --to zero dcp zero && ckpt diff -q --with-optimizer $run zero
echo "dcp and back: $?"
ckpt convert -q --strict --moments fp32 --to universal $run universal && ckpt diff -q --with-optimizer $run universal
echo "universal: $?"
ckpt convert -q --strict --moments fp32 --to fsdp-ranks $run ranks && ckpt verify -q ranks
echo "fsdp-ranks: $?"
ckpt tree fp32_3_2/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt optimizer_state_dict.optimizer_state_dict
ckpt reshard --moments fp32 fp32_3_2 again 2>&1 | grep moments
ckpt convert -q --moments fp32 $run weights.pt
echo "weights: $?"

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

# kept in 8 bits: exact where the layout is the source's; else where every block of the target is of one block of the source
ckpt reshard -q --strict $run same && ckpt reshard -q --strict --stage 1 $run same1 && ckpt diff -q --with-optimizer $run same && ckpt diff -q --with-optimizer $run same1
echo "the source's layout: $?"
ckpt tree same1/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt optimizer_state_dict.base_optimizer_state
for layout in '2 1' '3 2'; do
    set -- $layout
    ckpt reshard -q --stage $1 -w $2 $run cut
    echo "stage $1, $2 ranks: $?"
done
blocks=$FIXTURES/z2_w2_bnb8_blocks/ckpt
for layout in '2 1' '2 4' '1 8' '3 1' '3 2' '3 4'; do
    set -- $layout
    ckpt reshard -q --strict --stage $1 -w $2 $blocks cut$1_$2 && ckpt verify -q cut$1_$2 && ckpt diff -q --with-optimizer $blocks cut$1_$2
    echo "stage $1, $2 ranks: $?"
    for f in cut$1_$2/global_step2/*optim_states.pt; do
        ckpt tree "$f" optimizer_state_dict
    done | sed -n 's/^ *\(state[12]\|absmax[12]\|qmap[12]\): //p' | sort | uniq -c | sed 's/^ *//'
done
ckpt reshard -q --strict --stage 2 -w 2 cut3_4 back && ckpt diff -q --with-optimizer $blocks back
echo "and back: $?"
ckpt reshard -q --strict -w 3 $blocks three
echo "3 ranks: $?"
ckpt reshard -q --strict -w 3 --moments fp32 $blocks three && ckpt diff -q --with-optimizer $blocks three
echo "3 ranks in fp32: $?"
