# SPDX-License-Identifier: Apache-2.0
# The report as JSON.
ckpt convert --json -q "$FIXTURES"/z3_bf16_w5_odd/ckpt m.safetensors
