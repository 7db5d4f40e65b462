# SPDX-License-Identifier: Apache-2.0
# The folder of a file is made, or refused, never half written.
ckpt convert -q "$FIXTURES"/z3_bf16_w5_odd/ckpt deep/er/m.safetensors; echo $?; find . -type f
