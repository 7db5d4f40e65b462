# SPDX-License-Identifier: Apache-2.0
# Values in FSDP's files that belong to no parameter, or to one rank, are kept, or a message names them.
plant() { # NAME FIXTURE FILE WHERE KIND: a copy of the fixture, with one value more in the file
    cp -r "$FIXTURES/$2/ckpt" "$1"
    chmod -R u+w "$1"
    python3 "$FIXTURES/../hostile/planted.py" --into "$1/$3" "$4" "$5"
}
plant member accel_fsdp1_full_w2 optimizer.bin "" text
ckpt reshard member member-out -q
plant stray accel_fsdp1_full_w2 optimizer.bin state tensor
ckpt reshard stray stray-out -q
echo "-- a file for each rank: the optimizer, the model, and other values"
plant optimizer rl_verl_fsdp1_w2 optim_world_size_2_rank_1.pt "" text
ckpt verify optimizer
ckpt reshard optimizer optimizer-out -q
plant model rl_verl_fsdp1_w2 model_world_size_2_rank_1.pt "" text
ckpt verify model
plant extra rl_verl_fsdp1_w2 extra_state_world_size_2_rank_1.pt "" tensor
python3 "$FIXTURES/../hostile/planted.py" --into extra/extra_state_world_size_2_rank_0.pt "" tensor
ckpt verify extra
