# SPDX-License-Identifier: Apache-2.0
# A manifest that does not list the files of the checkpoint vouches for nothing.
ckpt convert "$FIXTURES/hf_bert_sharded" a.safetensors -q && cp a.safetensors b.safetensors
ckpt manifest -q a.safetensors
ckpt verify b.safetensors --manifest a.safetensors.manifest.json
echo "$?"
echo '{"schema": "ckpt-manifest/1", "files": [], "tensors": []}' >none.json
ckpt verify b.safetensors --manifest none.json
# split files and one file share the name of the manifest
ckpt convert --map none a.safetensors m.gguf --max-shard-size 10KB --manifest -q
ckpt convert --map none a.safetensors m.gguf -q
ckpt verify m.gguf | tail -2
ckpt verify m-00001-of-*.gguf | tail -2
