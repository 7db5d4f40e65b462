# SPDX-License-Identifier: Apache-2.0
# What was understood.
ckpt info "$FIXTURES"/old0316_z1_fp16_w2/ckpt
