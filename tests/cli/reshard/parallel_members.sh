# SPDX-License-Identifier: Apache-2.0
# A member that only the last model-parallel rank's file has is kept, or a message names it.
plant() { # NAME SOURCE FILE WHERE KIND: a copy of the folder, with one value more in a file of its tag
    rm -rf "$1"
    cp -r "$2" "$1"
    chmod -R u+w "$1"
    python3 "$FIXTURES/../hostile/planted.py" --into "$(echo "$1"/*/"$3")" "$4" "$5"
}
convert() { # NAME FORMAT...
    name=$1
    shift
    for format in "$@"; do
        ckpt reshard "$name" out --to "$format" -q
        echo "status $?"
        rm -rf out
    done
}
echo "-- the last layer of a pipeline"
plant run "$FIXTURES/pipe2_z0_w2/ckpt" layer_04-model_states.pt "" text
convert run universal dcp fsdp-ranks
echo "-- a universal checkpoint with the model file of a second tensor-parallel rank"
ckpt reshard "$FIXTURES/tp2_z1_w4/ckpt" universal --to universal -q
cp "$FIXTURES"/tp2_z1_w4/ckpt/*/mp_rank_01_model_states.pt universal/*/
for kind in text tensor; do
    plant run universal mp_rank_01_model_states.pt module "$kind"
    convert run zero universal dcp
done
convert universal zero
echo "-- the optimizer of the last pipeline stage, without ZeRO"
for where in optimizer optimizer/optimizer_state_dict/state/0 optimizer/optimizer_state_dict/param_groups/0; do
    plant run "$FIXTURES/pipe2_z0_w2/ckpt" mp_rank_01_model_states.pt "$where" text
    convert run universal
done
echo "-- the optimizer file of the last expert-parallel rank, without ZeRO"
for where in "" optimizer optimizer/state optimizer/state/0 optimizer/param_groups/1; do
    plant run "$FIXTURES/moe_ep2_z0_w2/ckpt" expp_rank_1_mp_rank_00_optim_states.pt "$where" text
    convert run dcp
done
echo "-- the optimizer in the model file of a run with experts, which has its own files"
plant run "$FIXTURES/moe_ep2_z0_w2/ckpt" mp_rank_00_model_states.pt optimizer text
convert run dcp
echo "-- nothing planted"
for fixture in pipe2_z0_w2 moe_ep2_z0_w2; do
    convert "$FIXTURES/$fixture/ckpt" dcp
done
