# SPDX-License-Identifier: Apache-2.0
# A sound checkpoint.
ckpt verify "$FIXTURES"/old0316_z1_fp16_w2/ckpt
