# SPDX-License-Identifier: Apache-2.0
# A conversion writes a statement; verify takes its options from there, and compares the hashes of source and result.
cp -r "$FIXTURES/gguf_llama_deep/hf" src
chmod -R u+w src
short() {
    sed -e 's/[0-9a-f]\{56\}"/..."/' "$1"
}
mkdir said
ckpt convert -q src half --to hf --dtype bf16 --max-shard-size 100KB --attest said/half.json
short said/half.json
ckpt verify half --made-from src --attest said/half.json
echo "status $?"
ckpt convert -q src one.pt --rename /dev/null --include 'model.layers.[01].*' --attest one.json
ckpt verify one.pt --made-from src --attest one.json
echo "status $?"
ckpt verify one.pt --made-from src -q | wc -l
ckpt verify one.pt --made-from src -q >told
echo "without its options: status $?"
ckpt reshard -q "$FIXTURES/z1_bf16_w2_fp32acc/ckpt" run -w 1 --attest run.json
short run.json | sed -n 2,3p
ckpt merge -q src:1 src:3 -o merged.safetensors --attest merged.json
short merged.json | sed -n '/command/,$p'
echo "== in the output"
ckpt convert -q src in --to hf --attest in/made.json --no-sandbox
ckpt convert -q src in --to hf --attest in/made.json --force
ckpt verify in --made-from src --attest in/made.json -q
echo "status $?"
ckpt convert -q src listed --to hf --attest listed/made.json --manifest
grep -c '"path": "made.json"' listed/ckpt-manifest.json
ckpt verify -q listed
echo "status $?"
# a statement is about one output: a conversion of that folder does not copy it, as it copies no manifest
cp in/made.json in/made.txt
ckpt convert -q in next --to hf && ls next | grep made
ckpt convert -q src own --to hf --attest src/own.json && ckpt convert -q src own --to hf --attest src/own.json --force
ls own | grep own
echo "== changed"
try() {
    ckpt verify half --made-from "$1" --attest said/half.json "$2" 2>&1
    echo "status $?"
}
cp -r src other
printf x | dd of=other/model.safetensors bs=1 seek=20000 conv=notrunc 2>/dev/null
try other -q
rm half/merges.txt
try src -q
try src --json | sed -n '/"attestation"/,/^    }/p'
