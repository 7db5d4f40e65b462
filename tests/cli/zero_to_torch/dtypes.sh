# SPDX-License-Identifier: Apache-2.0
# Three dtypes, two names each.
for d in bf16 bfloat16 fp16 float16 fp32 float32; do
    zero_to_torch -q "$FIXTURES"/z2_bf16_w2_aligned/ckpt $d --dtype $d
done
cmp bf16/pytorch_model.bin bfloat16/pytorch_model.bin && cmp fp16/pytorch_model.bin float16/pytorch_model.bin
ckpt ls bf16
ckpt ls fp16
ckpt diff fp32 "$FIXTURES"/z2_bf16_w2_aligned/ckpt
