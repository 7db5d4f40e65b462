# SPDX-License-Identifier: Apache-2.0
# What was understood.
ckpt info "$FIXTURES"/old0126_z2_fp16_w3/ckpt
