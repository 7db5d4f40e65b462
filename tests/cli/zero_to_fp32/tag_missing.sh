# SPDX-License-Identifier: Apache-2.0
# A tag that does not exist.
zero_to_fp32 "$FIXTURES"/z3_bf16_w5_odd/ckpt out -t global_step999; echo $?; ls
