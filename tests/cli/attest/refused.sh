# SPDX-License-Identifier: Apache-2.0
# Statements that are not written, and those that are not read.
cp -r "$FIXTURES/gguf_llama_deep/hf" src
chmod -R u+w src
try() {
    "$@"
    echo "status $?" >&2
}
try ckpt convert -q src none.safetensors --dtype fp8 --attest none.json
try ckpt convert -q src none.safetensors --map none.map --attest none.json
ls none.safetensors none.json
touch there.json
try ckpt convert -q src a.safetensors --attest there.json
ls a.safetensors
try ckpt convert -q src a.safetensors --attest no/such/folder/a.json
ls a.safetensors
try ckpt convert -q -f src a.safetensors --attest there.json
cat there.json | wc -c
ls a.safetensors
rm there.json
try ckpt convert -q -f src a.safetensors --attest there.json
try ckpt convert -q src - --to safetensors --attest b.json | wc -c
try ckpt convert -q src b.safetensors --attest b.json --dry-run >/dev/null
ls b.json
echo "== files of others" >&2
# not a file of the output or its manifest, with whichever name
run=$FIXTURES/z1_bf16_w2_fp32acc/ckpt
for at in c.safetensors ./c.safetensors c.safetensors/x.json c.safetensors.manifest.json ../"${PWD##*/}"/c.safetensors; do
    try ckpt convert -q src c.safetensors --attest "$at"
done
for at in c2 c2/model.safetensors c2/config.json c2/no/x.json c2/ckpt-manifest.sha256 c2/model.safetensors/x; do
    try ckpt convert -q src c2 --to hf --attest "$at"
done
for at in rr/latest rr/global_step5 rr/latest/x; do
    try ckpt reshard -q "$run" rr --to zero --to-tag global_step5 --attest "$at"
done
# nor a source
ln src/config.json linked
ln -s src/config.json symbolic
find src -type f -exec cksum {} + >before
for at in src/config.json src/model.safetensors linked symbolic src/../linked; do
    try ckpt convert -q -f src c.safetensors --attest "$at"
done
find src -type f -exec cksum {} + | cmp - before
ls -d c.safetensors* c2 rr
# a name like that of a manifest, but of none
try ckpt convert -q src c4.safetensors --attest my-manifest.json
ls c4.safetensors my-manifest.json
# beside the files of a folder, and over an older statement
try ckpt convert -q src c2 --to hf --attest c2/x.json
try ckpt convert -q -f src c3.safetensors --attest c2/x.json
try ckpt reshard -q "$run" rr --to zero --to-tag global_step5 --attest rr/global_step5/x.json
ls c2 rr rr/global_step5 | grep -c json
echo "== read" >&2
try ckpt verify a.safetensors --attest there.json
try ckpt verify -q a.safetensors --made-from src --attest src/config.json
change() {
    sed "$1" there.json >changed.json
    try ckpt verify -q a.safetensors --made-from src --attest changed.json
}
change 's/conversion:v1/conversion:v2/'
change 's/"subject": \[/"subject": [], "x": [/'
change 's/"materials": \[/"materials": [7, /'
change 's/"sha256": "[0-9a-f]/"sha256": "/'
change 's/"name": "quiet"/"name": 7/'
change 's/"name": "quiet"/"name": "untie", "value": 7/'
change 's/"version": "/"versions": "/'
change 's/"operands": \[/"operands": "x", "y": [/'
change 's/"options": \[/"option": [/'
change 's/"name": "quiet"/"name": "to-disk"/'
change 's/"name": "quiet"/"name": "untie", "value": "x"/'
change 's/"name": "quiet"/"name": "untie"/'
for own in '"tol", "value": "1e9"' '"ignore-metadata"' '"ignore_metadata"' '"follow-links"' '"key", "value": "k"' '"as-file"' \
    '"cert", "value": "k"' '"signature", "value": "s"' '"made-from", "value": "a.safetensors"' '"ignore-copies"'; do
    change "s/\"name\": \"quiet\"/\"name\": $own/"
done
try ckpt verify -q a.safetensors --made-from src --attest changed.json --ignore-copies
try ckpt verify a.safetensors --made-from src --attest there.json --tol 0.5 | grep -c 'within --tol 0.5'
sed 's/"name": "quiet"/"name": "untie"/' there.json >changed.json
try ckpt verify -q a.safetensors --made-from src --attest changed.json --untie
sed 's/"name": "a.safetensors"/"name": "..\/src\/config.json"/' there.json >changed.json
try ckpt verify -q a.safetensors --made-from src --attest changed.json
try ckpt verify -q a.safetensors --made-from src --attest there.json
