# SPDX-License-Identifier: Apache-2.0
# Stage 0 keeps its loss scale as numbers beside the optimizer: they are carried, and the rest is as configured.
ckpt reshard -q -w 2 -s 3 "$FIXTURES"/z0_fp16_w2_fused/ckpt run
ckpt tree run optim_states.optimizer_state_dict.loss_scaler
ds_to_universal --quiet --input_folder "$FIXTURES"/z0_fp16_w2_fused/ckpt/global_step5 --output_folder uni
ckpt tree uni/zero/optimizer_state.pt loss_scaler
# A run that becomes an fp16 one begins as its section fp16 says.
ckpt reshard -q -w 2 -s 1 --dtype bf16 "$FIXTURES"/z0_fp16_w2_fused/ckpt bf
ckpt tree bf optim_states.optimizer_state_dict.loss_scaler
ckpt reshard -q -w 2 -s 1 --dtype fp16 bf back
ckpt tree back optim_states.optimizer_state_dict.loss_scaler
