# SPDX-License-Identifier: Apache-2.0
# A run with AutoEP is whole, or what is missing or of another save is named.
run=$FIXTURES/autoep_z1_w2/run tag=global_step3
ckpt verify "$run"
ckpt verify "$FIXTURES/autoep_z3_w2/run"
ckpt doctor "$run" | head -3
copy() {
    rm -rf one
    cp -r "$1" one
    chmod -R u+w one
}
try() {
    ckpt verify one >out 2>&1
    echo "verify: $?: $(grep -m1 error out)"
    ckpt convert -q --force one all.safetensors 2>err
    echo "convert: $?: $(head -1 err)"
}
# a file of an expert that is not there; a rank that did not save
copy "$run" && rm one/$tag/layer_1_expert_2_mp_rank_00_model_states.pt && try
copy "$run" && rm one/$tag/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt && try
copy "$FIXTURES/autoep_z3_w2/run" && rm one/$tag/*_rank_1_mp_rank_00_*.pt && try
# an expert of another save: its values are not the masters'
copy "$run" && python3 "$FIXTURES/../cli/other_values.py" one/$tag/layer_0_expert_1_mp_rank_00_model_states.pt && try
# a rank's files under another rank's names
copy "$FIXTURES/autoep_z3_w2/run" && cd one/$tag && for kind in zero bf16_zero; do
    for file in ${kind}_pp_rank_0_*; do cp "$file" "$(echo "$file" | sed s/rank_0/rank_1/)"; done
done && cd ../.. && try
# a file of an expert that stage 3 does not write
copy "$FIXTURES/autoep_z3_w2/run" && cp "$run/$tag/layer_0_expert_1_mp_rank_00_model_states.pt" one/$tag && try
