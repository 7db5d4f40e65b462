# SPDX-License-Identifier: Apache-2.0
# Values in optimizer files that no stage of ZeRO knows are kept, or a message names them.
plant() { # NAME FIXTURE WHERE KIND RANKS: a copy of the fixture, with one value more in the files of these ranks
    cp -r "$FIXTURES/$2/ckpt" "$1"
    chmod -R u+w "$1"
    for rank in $5; do
        file=$(echo "$1"/*/*zero_pp_rank_${rank}_mp_rank_00_optim_states.pt)
        [ ! -f "$file" ] || python3 "$FIXTURES/../hostile/planted.py" --into "$file" "$3" "$4"
    done
}
for part in z1_bf16_w3_groups/base_optimizer_state z3_bf16_w5_odd/optimizer_state_dict; do
    fixture=${part%/*}
    inner=optimizer_state_dict/${part#*/}
    echo "-- $fixture: beside the states of parameters, on all ranks and on the last"
    plant run-$fixture "$fixture" "$inner/state" text "0 1 2"
    ckpt reshard run-$fixture out-$fixture -q
    echo "status $?"
    ckpt reshard run-$fixture strict-$fixture -q --strict
    echo "status $?"
    plant last-$fixture "$fixture" "$inner/state" tensor 2
    ckpt reshard last-$fixture last-out-$fixture -q
    echo "-- $fixture: a member of one rank's dicts"
    for where in "" optimizer_state_dict "$inner"; do
        name=$fixture-$(echo "$where" | tr / -)
        plant "own$name" "$fixture" "$where" tensor 2
        ckpt verify -q "own$name"
        ckpt reshard "own$name" "out$name" -q
    done
    echo "-- $fixture: the state of one rank's slice"
    plant slice-$fixture "$fixture" "$inner/state/0" like 2
    ckpt verify slice-$fixture
    ckpt reshard slice-$fixture slice-out-$fixture -q
    echo "status $?"
    plant matrix-$fixture "$fixture" "$inner/state/0" matrix "0 1 2"
    ckpt reshard matrix-$fixture matrix-out-$fixture -q
    echo "status $?"
done
for part in z1_bf16_w3_groups/base_optimizer_state/3 z3_bf16_w5_odd/optimizer_state_dict/1; do
    fixture=${part%%/*}
    key=${part#*/}
    stage=${key#*/}
    key=${key%/*}
    echo "-- $fixture: a member of the optimizer's own, in another stage and other formats"
    plant all-$fixture "$fixture" "optimizer_state_dict/$key" text "0 1 2 3 4"
    ckpt reshard all-$fixture stage-$fixture --stage "$stage" --world 1 -q
    ckpt tree stage-$fixture | grep planted
    for format in universal dcp fsdp-ranks; do
        ckpt reshard all-$fixture $format-$fixture --to $format -q
    done
done
