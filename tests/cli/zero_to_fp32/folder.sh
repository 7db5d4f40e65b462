# SPDX-License-Identifier: Apache-2.0
# The default: pytorch_model.bin in a folder, and the script's own lines.
zero_to_fp32 "$FIXTURES"/z3_bf16_w5_odd/ckpt out
ls out
ckpt ls out
