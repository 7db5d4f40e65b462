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
# one of two shards has a hash: it does not vouch for the other
ckpt convert "$f" s --to hf --max-shard-size 25KB -q
sha=$(sha256sum <s/model-00001-of-00002.safetensors | cut -c1-64)
mkdir models--x/snapshots/2 && mv s/model-00001-of-00002.safetensors "models--x/blobs/$sha"
ln -s "../../blobs/$sha" models--x/snapshots/2/model-00001-of-00002.safetensors
cp s/* models--x/snapshots/2
ckpt verify models--x/snapshots/2
ckpt verify models--x/snapshots/2/model-00001-of-00002.safetensors
ckpt verify --as-file models--x/snapshots/2/model-00001-of-00002.safetensors | sed 's/.*; //'
