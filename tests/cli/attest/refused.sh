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
try ckpt convert -q src - --to safetensors --attest b.json | wc -c
try ckpt convert -q src b.safetensors --attest b.json --dry-run >/dev/null
ls b.json
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
change 's/"name": "quiet"/"name": "to-disk"/'
change 's/"name": "quiet"/"name": "untie", "value": "x"/'
change 's/"name": "quiet"/"name": "untie"/'
sed 's/"name": "quiet"/"name": "untie"/' there.json >changed.json
try ckpt verify -q a.safetensors --made-from src --attest changed.json --untie
sed 's/"name": "a.safetensors"/"name": "..\/src\/config.json"/' there.json >changed.json
try ckpt verify -q a.safetensors --made-from src --attest changed.json
try ckpt verify -q a.safetensors --made-from src --attest there.json
