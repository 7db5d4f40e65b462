# SPDX-License-Identifier: Apache-2.0
# Everything beside the tensors.
ckpt tree --depth 2 "$FIXTURES"/z2_bf16_w2_emptyparam/ckpt
