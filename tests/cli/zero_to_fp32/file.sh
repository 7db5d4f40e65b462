# SPDX-License-Identifier: Apache-2.0
# Names of files mean files.
for f in m.bin m.pt m.safetensors; do zero_to_fp32 -q "$FIXTURES"/z3_bf16_w5_odd/ckpt $f; done
find . -type f | sort
