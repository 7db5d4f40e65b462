# SPDX-License-Identifier: Apache-2.0
# With optimizer state.
ckpt convert -q --with-optimizer "$FIXTURES"/z2_bf16_w2_aligned/ckpt m.safetensors
ckpt ls -q m.safetensors
# step counts stay exact
ckpt convert -q --with-optimizer --dtype bf16 "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt half.pt --include '*model.norm.weight'
ckpt ls half.pt
