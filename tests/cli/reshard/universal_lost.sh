# SPDX-License-Identifier: Apache-2.0
# A moment that the settings ask for and that a universal folder lacks, as DeepSpeed's converter writes it, is missed.
python3 "$FIXTURES"/../cli/ds_tiny.py amsgrad amsgrad
ds_to_universal --quiet --input_folder amsgrad/global_step4 --output_folder uni
ckpt reshard -q -w 2 -s 2 uni whole
ckpt tree whole optim_states.optimizer_state_dict.base_optimizer_state.state
rm uni/zero/*/max_exp_avg_sq.pt
ckpt reshard -q -w 2 -s 2 uni lost
