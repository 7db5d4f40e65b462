# SPDX-License-Identifier: Apache-2.0
# safetensors in bfloat16.
zero_to_torch "$FIXTURES"/z3_bf16_w5_odd/ckpt out --dtype bf16 --safe_serialization
ls out
