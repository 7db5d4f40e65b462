# SPDX-License-Identifier: Apache-2.0
# A manifest describes files: links to folders, pipes and sockets are named, when it is made and when it is compared.
try() {
    "$@" 2>&1
    echo "status $?"
}
ckpt convert "$FIXTURES/hf_bert_sharded" m --to hf --manifest -q
mkdir code .hidden && echo 'print(1)' >code/modeling.py
for what in folder pipe nothing hidden; do
    echo "== $what"
    cp -r m "$what"
    case $what in
    folder) ln -s ../code "$what/code" ;;
    pipe) mkfifo "$what/pipe" ;;
    nothing) ln -s none "$what/note.txt" ;;
    hidden) ln -s ../.hidden "$what/.git" ;;
    esac
    try ckpt verify "$what" -q
    rm "$what"/ckpt-manifest.*
    try ckpt manifest "$what" -q
    ls "$what" | grep manifest
done
echo "== instead of a file"
cp -r m r && rm r/expected.json && mkfifo r/expected.json
try ckpt verify r -q
echo "== the manifest of a file"
ckpt convert "$FIXTURES/hf_bert_sharded" f.safetensors --manifest -q
mkfifo fifo && sed 's/"files": \[/&\n    {"path": "fifo", "bytes": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},/' f.safetensors.manifest.json >with.json
try ckpt verify f.safetensors -q --manifest with.json
