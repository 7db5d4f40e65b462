# SPDX-License-Identifier: Apache-2.0
# A conversion writes hashes of its files and tensors, a list that sha256sum checks, and verify uses them.
ckpt convert "$FIXTURES/hf_bert_sharded" m --to hf --manifest -q && ls m
head -8 m/ckpt-manifest.json
(cd m && sha256sum -c ckpt-manifest.sha256)
ckpt verify m
ckpt verify --json m | grep -e '"manifest"' -e files_
# made afterwards, it is the same
cp m/ckpt-manifest.json first.json
ckpt manifest m && cmp first.json m/ckpt-manifest.json
ckpt manifest --json m -o other.json && cmp first.json other.json
ckpt manifest -q m -o other.txt
