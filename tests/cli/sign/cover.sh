# SPDX-License-Identifier: Apache-2.0
# A signature vouches only for the files that it lists: not for the other shards of the checkpoint.
keys=$FIXTURES/model_signing
ckpt convert "$FIXTURES/hf_bert_sharded" m --to hf --max-shard-size 25KB -q
ckpt sign m/model-00001-of-00002.safetensors --key "$keys/p256.key"
ckpt verify m/model-00001-of-00002.safetensors --key "$keys/p256.pub"
echo "status $?"
ckpt verify m/model-00001-of-00002.safetensors --key "$keys/p256.pub" --as-file
ckpt sign m --key "$keys/p256.key" && ckpt verify m --key "$keys/p256.pub"
# a manifest is made before the signature, which covers it; one that comes later was added
ckpt manifest m -q && ckpt verify m --key "$keys/p256.pub" -q | sort
ckpt sign m --key "$keys/p256.key" --force -q && ckpt verify m --key "$keys/p256.pub" && rm m/ckpt-manifest.*
# a name that is usually left out
mv m/model-00002-of-00002.safetensors m/.gitattributes
sed -i 's/model-00002-of-00002.safetensors/.gitattributes/' m/model.safetensors.index.json
ckpt sign m --key "$keys/p256.key" --force -q && ckpt verify m --key "$keys/p256.pub"
# another file that was left out and has the name of a signature
cp -r "$keys/model" n && chmod -R u+w n && ckpt sign n --key "$keys/p256.key" -q
ckpt verify n --key "$keys/p256.pub" -q && mkdir x && cp n/model.sig x
echo other >n/model.sig && ckpt verify n --key "$keys/p256.pub" --signature x/model.sig | head -1
