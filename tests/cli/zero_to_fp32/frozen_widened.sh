# SPDX-License-Identifier: Apache-2.0
# Frozen parameters that were saved in 16 bits: float32 here, as in the script; as saved in ckpt convert.
zero_to_fp32 -q "$FIXTURES"/k_lora_z3/ckpt a
ckpt info a | grep weight
ckpt convert -q "$FIXTURES"/k_lora_z3/ckpt b --to hf
ckpt info b | grep weight
ckpt diff a b --ignore-dtype | tail -1
zero_to_fp32 -q "$FIXTURES"/k_lora_z3/ckpt c.pt
ckpt info c.pt | grep weight
