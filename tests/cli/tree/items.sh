# SPDX-License-Identifier: Apache-2.0
# A few items of each container.
f=$(find "$FIXTURES"/z2_bf16_w2_emptyparam/ckpt -name '*model_states.pt')
ckpt tree --max-items 3 --depth 3 "$f"
