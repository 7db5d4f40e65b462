# SPDX-License-Identifier: Apache-2.0
# A shard is a file like any other.
f=$(find "$FIXTURES"/z3_bf16_w5_odd/ckpt -name '*pp_rank_0_*model_states.pt')
ckpt info "$f"
