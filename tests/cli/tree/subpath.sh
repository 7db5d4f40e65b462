# SPDX-License-Identifier: Apache-2.0
# A part of it; nothing on stdout when there is no such part.
f=$(find "$FIXTURES"/z2_bf16_w2_emptyparam/ckpt -name '*pp_rank_0_*optim_states.pt')
ckpt tree "$f" optimizer_state_dict.loss_scaler
ckpt tree "$f" optimizer_state_dict.nosuchkey
ckpt tree "$f" nosuchkey
ckpt tree --json "$f" optimizer_state_dict.nosuchkey
