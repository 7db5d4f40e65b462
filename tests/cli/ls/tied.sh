# SPDX-License-Identifier: Apache-2.0
# A tied name shows its owner.
ckpt ls "$FIXTURES"/old0126_z2_fp16_w3/ckpt
