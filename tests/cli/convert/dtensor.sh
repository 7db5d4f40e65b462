# SPDX-License-Identifier: Apache-2.0
# One rank's file of distributed tensors: its parts are not exported under names of their own; the values can be seen.
# By its own name it stands for all ranks' files.
f=one.pt
cp "$FIXTURES/torch_dtensor_w2/model_world_size_2_rank_0.pt" "$f"
ckpt convert "$f" all.safetensors
echo "convert: $?"
ckpt verify "$f"
echo "verify: $?"
ckpt ls "$f" 2>/dev/null
echo "ls: $?"
ckpt tree --depth 1 "$f"
echo "tree: $?"
ckpt convert "$FIXTURES/torch_dtensor_w2/model_world_size_2_rank_0.pt" all.safetensors
echo "convert: $?"
ls
