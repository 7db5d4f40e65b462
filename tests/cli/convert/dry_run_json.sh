# SPDX-License-Identifier: Apache-2.0
# The plan as JSON.
ckpt convert --dry-run --json -q "$FIXTURES"/z1_bf16_w3_groups/ckpt m.safetensors
ls
