# SPDX-License-Identifier: Apache-2.0
# Files that are missing, were added or have another name are named, and tensors that were added, too.
ckpt convert "$FIXTURES/hf_bert_sharded" m --to hf --manifest -q
cp -r m a && echo x >a/note.md && ckpt verify a
cp -r m b && mv b/expected.json b/expected2.json && ckpt verify b
cp -r m c && rm c/expected.json && ckpt verify c
echo "$?"
cp -r m d && cat m/config.json >d/expected.json && ckpt verify -q d
# hidden folders, temporary files, its own manifest and signature are no part of it
cp -r m e && mkdir e/.cache && touch e/.cache/x e/.a.ckpt-abcdef.tmp e/model.sig && ckpt verify -q e && echo fine
# but other files with such names, and folders, are
mkdir e/more e/b.manifest.json && touch e/more/model.sig e/more/ckpt-manifest.sha256 e/b.manifest.json/x e/c.manifest.json
ckpt verify -q e
# a copy, by the manifest of the original; and by that of another model
rm d/ckpt-manifest.* && cp m/expected.json d && ckpt verify -q d --manifest m/ckpt-manifest.json && echo fine
ckpt convert "$FIXTURES/hf_bert_sharded" f --to hf --exclude '*.LayerNorm.*' --dtype bf16 -q
ckpt verify f --manifest m/ckpt-manifest.json | head -12
# a damaged header: the file is named
cp -r m g && printf 'x' | dd of=g/model.safetensors bs=1 seek=8 conv=notrunc 2>/dev/null && ckpt verify g
