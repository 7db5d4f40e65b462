# SPDX-License-Identifier: Apache-2.0
# A run of 0.3.16 for the newest release: its state is elastic, its scaler complete, and stage 3 has all of Adam's fields.
run=$FIXTURES/old0316_z1_fp16_w2/ckpt
ckpt reshard -q --deepspeed-version 0.19.8 -w 3 -s 1 "$run" z1
ckpt verify -q z1
osd=optim_states.optimizer_state_dict
ckpt tree z1 $osd.loss_scaler
ckpt tree z1 $osd.base_optimizer_state_step
ckpt tree z1 $osd.zero_stage
ckpt reshard -q --deepspeed-version 0.19.8 -w 1 -s 3 "$run" z3
ckpt verify -q z3
ckpt tree z3 $osd.optimizer_state_dict.param_groups
ckpt diff -q "$run" z3
