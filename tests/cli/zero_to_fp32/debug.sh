# SPDX-License-Identifier: Apache-2.0
# Every parameter.
zero_to_fp32 -d "$FIXTURES"/z2_bf16_w2_emptyparam/ckpt out
