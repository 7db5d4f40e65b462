# SPDX-License-Identifier: Apache-2.0
# Weight files of an earlier conversion go with it; those that loaders do not prefer, and of the other kind, are named.
mkdir out
touch out/model-00001-of-00009.safetensors out/model.safetensors.index.json out/pytorch_model.bin out/model.fp16.safetensors
ckpt convert -f --no-fsync "$FIXTURES"/z3_bf16_w5_odd/ckpt out --to hf | tail -1 | cut -c1-12
ls out
