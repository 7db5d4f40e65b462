# SPDX-License-Identifier: Apache-2.0
# The tag folder, a shard, and the tag as an option.
t=$(cat "$FIXTURES"/z3_bf16_w5_odd/ckpt/latest)
zero_to_fp32 -q "$FIXTURES"/z3_bf16_w5_odd/ckpt/$t a
zero_to_fp32 -q "$FIXTURES"/z3_bf16_w5_odd/ckpt b -t $t
f=$(find "$FIXTURES"/z3_bf16_w5_odd/ckpt -name '*pp_rank_0_*model_states.pt')
zero_to_fp32 -q "$f" c
cmp a/pytorch_model.bin b/pytorch_model.bin && cmp a/pytorch_model.bin c/pytorch_model.bin && echo same
