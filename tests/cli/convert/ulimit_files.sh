# SPDX-License-Identifier: Apache-2.0
# Many shards do not need many descriptors at a time.
ulimit -n 12
ckpt convert -q "$FIXTURES"/z3_bf16_w5_odd/ckpt m.safetensors; echo $?
ckpt ls -q m.safetensors | wc -l
