# SPDX-License-Identifier: Apache-2.0
# A shard stands for its checkpoint, unless it is to be taken alone.
f=$(find "$FIXTURES"/z2_bf16_w2_emptyparam/ckpt -name '*model_states.pt')
ckpt convert -q "$f" whole.safetensors
ckpt convert -q --as-file "$f" alone.safetensors
ckpt ls whole.safetensors
ckpt ls alone.safetensors
