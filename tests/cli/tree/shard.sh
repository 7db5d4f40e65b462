# SPDX-License-Identifier: Apache-2.0
# One shard.
f=$(find "$FIXTURES"/z2_bf16_w2_emptyparam/ckpt -name '*pp_rank_0_*optim_states.pt')
ckpt tree "$f"
