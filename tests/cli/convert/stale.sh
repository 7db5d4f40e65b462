# SPDX-License-Identifier: Apache-2.0
# Weight files of an earlier conversion are named.
mkdir out
touch out/model-00001-of-00009.safetensors out/model.safetensors.index.json
ckpt convert -q -f --no-fsync "$FIXTURES"/z3_bf16_w5_odd/ckpt out --to hf
ls out
