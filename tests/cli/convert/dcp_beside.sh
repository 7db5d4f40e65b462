# SPDX-License-Identifier: Apache-2.0
# A distributed checkpoint holds tensors that its program saved beside the model: only --include writes them.
src=$FIXTURES/dcp_plain_w2/ckpt
ckpt convert "$src" model --to hf && ckpt diff "$src" model
ckpt ls "$src"
ckpt convert -q "$src" beside.safetensors --include 'list*' && ckpt ls beside.safetensors
ckpt convert -q "$src" all.safetensors --include '*' && ckpt diff "$src" all.safetensors
