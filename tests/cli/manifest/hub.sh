# SPDX-License-Identifier: Apache-2.0
# Files in the cache of the hub are links to files that are named by their SHA-256.
f=$FIXTURES/hf_bert_sharded
mkdir -p models--x/blobs models--x/snapshots/1
ckpt convert "$f" m --to hf -q
sha=$(sha256sum <m/model.safetensors | cut -c1-64)
cp m/model.safetensors "models--x/blobs/$sha"
cp m/config.json models--x/blobs/0123456789012345678901234567890123456789
ln -s "../../blobs/$sha" models--x/snapshots/1/model.safetensors
ln -s ../../blobs/0123456789012345678901234567890123456789 models--x/snapshots/1/config.json
ckpt verify models--x/snapshots/1
ckpt verify models--x/snapshots/1/model.safetensors | sed 's/.*; //'
printf 'x' | dd of="models--x/blobs/$sha" bs=1 seek=9000 conv=notrunc 2>/dev/null
ckpt verify models--x/snapshots/1
echo "$?"
