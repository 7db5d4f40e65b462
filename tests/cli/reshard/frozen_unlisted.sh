# SPDX-License-Identifier: Apache-2.0
# An entry of frozen_param_fragments whose shape frozen_param_shapes does not list is no parameter that may be left out in silence.
plant() { # FIXTURE FOLDER FILE: a copy, with one fragment more
    cp -r "$FIXTURES/$1" "$2"
    chmod -R u+w "$2"
    python3 "$FIXTURES/../hostile/planted.py" --into "$(echo "$2"/$3)" frozen_param_fragments "$4"
}
echo "-- stage 2, where no parameter is frozen"
plant z2_bf16_w2_aligned/ckpt two '*/mp_rank_00_model_states.pt' tensor
echo "-- stage 3, on the last rank"
plant k_lora_z3/ckpt three '*/zero_pp_rank_1_mp_rank_00_model_states.pt' tensor
for run in two three; do
    ckpt convert $run $run.safetensors -q
    echo "status $?"
    ckpt reshard $run $run-out -q
    echo "status $?"
    ckpt verify -q $run
    echo "status $?"
done
