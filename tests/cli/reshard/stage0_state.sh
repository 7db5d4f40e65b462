# SPDX-License-Identifier: Apache-2.0
# From stage 0 to ZeRO: steps as the run counts them, moments by key, values of one element; zeros only where nothing was.
make=$FIXTURES/../cli/ds_tiny.py
for case in adam fused order unused frozen steps nadam hybrid sgd; do
    python3 "$make" $case $case
    for stage in 1 2 3; do
        echo "== $case, stage $stage"
        ckpt reshard -q -w 2 -s $stage $case $case.$stage 2>&1
        ckpt diff --with-optimizer $case $case.$stage 2>/dev/null
    done
done
ckpt tree fused.2 optim_states.optimizer_state_dict.base_optimizer_state.state
ckpt tree nadam.3 optim_states.optimizer_state_dict.optimizer_state_dict.state
ckpt tree hybrid.1 optim_states.optimizer_state_dict.base_optimizer_state.state
ds_to_universal --quiet --input_folder fused/global_step4 --output_folder uni
ckpt tree uni/zero/emb.weight/step.pt
