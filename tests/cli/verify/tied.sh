# SPDX-License-Identifier: Apache-2.0
# A sound checkpoint.
ckpt verify "$FIXTURES"/old0126_z2_fp16_w3/ckpt
