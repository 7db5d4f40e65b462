# SPDX-License-Identifier: Apache-2.0
# AutoEP: experts and their training state for other stages, worlds and expert-parallel sizes; nothing is lost.
same() {
    ckpt diff "$1" "$2" --with-optimizer
    ckpt verify "$1" | sed 's/: .*//'
}
for stage in 1 3; do
    run=$FIXTURES/autoep_z${stage}_w2/run
    for to in '1 2' '2 4' '3 2' '3 4' '2 3' '3 1'; do
        set -- $to
        echo "stage $stage to stage $1, $2 ranks"
        ckpt reshard -q "$run" to_$stage$1$2 -s $1 -w $2 && same to_$stage$1$2 "$run"
    done
    # there and back
    ckpt reshard -q to_${stage}31 back_$stage -s $stage -w 2 && same back_$stage "$run"
done
ls to_134/global_step3 to_312/global_step3
# one rank cannot have two expert-parallel ones: as many as can be, and that is said
ckpt reshard "$FIXTURES/autoep_z1_w2/run" alone -w 1 2>&1 | grep -v 'global_step3:'
# universal checkpoints know no ranks
for stage in 1 3; do
    ckpt reshard -q "$FIXTURES/autoep_z${stage}_w2/run" uni_$stage --to universal && same uni_$stage "$FIXTURES/autoep_z${stage}_w2/run"
    ckpt reshard -q uni_$stage from_uni_$stage -s 2 -w 4 && same from_uni_$stage "$FIXTURES/autoep_z${stage}_w2/run"
    ckpt convert -q uni_$stage hf_$stage --to hf --dtype bf16 && ckpt diff hf_$stage "$FIXTURES/autoep_z${stage}_w2/truth.safetensors"
done
ls uni_3/*/zero | grep experts
# FSDP has no such layers
ckpt reshard "$FIXTURES/autoep_z1_w2/run" fsdp --to dcp
echo "dcp: $?"
# files of experts are no records that lack a checksum
ckpt reshard -q --strict "$FIXTURES/moe_ep2_z1_w4/ckpt" strict -w 2 && ckpt reshard -q --strict "$FIXTURES/autoep_z1_w2/run" strict_autoep -w 4
echo "strict: $?"
# an expert-parallel size of one's own: any that divides the world and the experts
for stage in 1 3; do
    run=$FIXTURES/autoep_z${stage}_w2/run
    for to in '1 2 1' '2 4 4' '3 2 1' '3 4 1' '3 4 4'; do
        set -- $to
        echo "stage $stage to stage $1, $2 ranks, expert-parallel size $3"
        ckpt reshard -q --strict "$run" ep_$stage$1$2$3 -s $1 -w $2 --ep-size $3 && same ep_$stage$1$2$3 "$run"
    done
done
ckpt reshard "$FIXTURES/autoep_z1_w2/run" named -w 2 --ep-size 1 2>/dev/null | grep size
# what does not fit, and what has no such experts
for to in '-w 4 --ep-size 3' '-w 2 --ep-size 4' '--to dcp --ep-size 1' '--to universal --ep-size 1'; do
    ckpt reshard -q "$FIXTURES/autoep_z1_w2/run" never $to
    echo "$to: $?"
done
ckpt reshard -q "$FIXTURES/moe_ep2_z1_w4/ckpt" never --ep-size 1
echo "without AutoEP: $?"
