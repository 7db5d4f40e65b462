# SPDX-License-Identifier: Apache-2.0
# The form that stage 3 of an older release reads: flat tensors, one model file.
ds_to_universal -q --input_folder "$FIXTURES"/z3_bf16_w5_odd/ckpt/global_step4 --output_folder old --deepspeed_version 0.16.4
ls old
ckpt ls old/zero/emb.weight/fp32.pt
ckpt diff --with-optimizer old "$FIXTURES"/z3_bf16_w5_odd/ckpt
