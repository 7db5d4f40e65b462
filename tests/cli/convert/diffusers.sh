# SPDX-License-Identifier: Apache-2.0
# A model of diffusers: its loaders look for diffusion_pytorch_model.safetensors, with its shards and their index.
src=$FIXTURES/diffusers
ckpt convert -q "$src" out --to hf && ls out && ckpt diff "$src" out && cmp "$src/config.json" out/config.json && echo "configuration as it was"
ckpt convert -q "$src" shards --to hf --max-shard-size 4KB && ls shards && ckpt verify -q shards && ckpt diff "$src" shards
ckpt convert -q "$src" bin --to hf-bin && ls bin && ckpt diff "$src" bin
echo "-- weights elsewhere, the configuration named"
ckpt convert -q "$src/diffusion_pytorch_model.safetensors" alone.pt --to torch && ckpt convert -q alone.pt named --to hf --config "$src" && ls named
ckpt convert -q alone.pt file --to hf --config "$src/config.json" && ls file && ! grep dtype file/config.json
ckpt convert -q alone.pt plain --to hf && ls plain
echo "-- a shard goes, an index says so"
rm shards/diffusion_pytorch_model-00002-of-*
ckpt convert -q shards x --to hf || echo "status $?"
