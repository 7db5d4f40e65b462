# SPDX-License-Identifier: Apache-2.0
# The owner in JSON.
ckpt ls --json "$FIXTURES"/old0126_z2_fp16_w3/ckpt
