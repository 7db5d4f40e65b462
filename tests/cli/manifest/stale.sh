# SPDX-License-Identifier: Apache-2.0
# A manifest describes one output: a conversion does not copy it, and removes the one of an output that it replaces.
ckpt convert "$FIXTURES/hf_bert_sharded" a --to hf --manifest -q
ckpt convert a b --to hf -q && ls b
ckpt convert a a.npz --manifest -q && ls
ckpt convert a a.npz --force --dtype f16 -q && ls
ckpt convert a b --to hf --force --manifest -q && ls b && ckpt verify -q b && echo fine
ckpt convert "$FIXTURES/hf_bert_sharded" b --to hf --force -q && ls b
# nothing is written: no manifest
ckpt convert a c --to hf --manifest --dry-run -q >/dev/null && ls -d c
ckpt convert a - --to npz --manifest | wc -c
# files that are not manifests stay, and are found before the output is written
echo "== files of others"
try() {
    "$@" 2>&1
    echo "status $?"
}
model=$FIXTURES/hf_bert_sharded
echo mine >d.npz.manifest.json
echo mine >e.npz.manifest.sha256
mkdir f && echo mine >f/ckpt-manifest.json
cp -r "$model" in && chmod -R u+w in && cp in/config.json in/model.sha256
ln -s a/ckpt-manifest.json link.json
find . -type f ! -name before -exec cksum {} + | sort >before
try ckpt convert a d.npz --manifest --force -q
try ckpt convert a e.npz --manifest --force -q
try ckpt convert a f --to hf --manifest --force -q
try ckpt manifest in -q -o e.npz.manifest.json
try ckpt manifest in -q -o in/config.json
try ckpt manifest in -q -o in/model.json
try ckpt manifest in -q -o link.json
find . -type f ! -name before -exec cksum {} + | sort | cmp - before
# a conversion with --force removes neither them, nor a manifest of an output that it has not replaced
cp a.npz d.npz
try ckpt convert a d.npz --force -q
cp a/ckpt-manifest.json g.npz.manifest.json
try ckpt convert a g.npz --force -q
ls d.npz* g.npz*
