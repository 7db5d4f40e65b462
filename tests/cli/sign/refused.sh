# SPDX-License-Identifier: Apache-2.0
# Every change of a signed folder is found and has a sentence of its own; before that, the signature is that of the package.
keys=$FIXTURES/model_signing
begin() {
    rm -rf m
    cp -r "$keys/model" m
    chmod -R u+w m
    ckpt sign m --key "$keys/p256.key"
}
try() {
    echo "== $1"
    begin >/dev/null
    (cd m && eval "$2")
    ckpt verify m --key "$keys/p256.pub" -q 2>&1
    echo "status $?"
}
begin
ckpt verify m --key "$keys/p256.pub"
try changed 'printf x | dd of=model.safetensors bs=1 seek=700 conv=notrunc 2>/dev/null'
try removed 'rm more/notes.txt'
try added 'echo new >more/new'
try renamed 'mv more-notes.txt notes.txt'
try twice 'cp more-notes.txt notes.txt'
try all 'rm more/notes.txt; mv more-notes.txt a; echo b >b; echo x >>model.safetensors'
try link 'mv more-notes.txt ../x; ln -s ../x more-notes.txt'
try pipe 'mkfifo pipe'
try git 'mkdir .git; echo x >.git/config; echo y >.gitattributes'
echo "== the link is followed"
begin >/dev/null
mv m/more-notes.txt x
ln -s ../x m/more-notes.txt
ckpt verify m --key "$keys/p256.pub" --follow-links
mkdir y
ln -s ../y m/folder
ckpt verify m --key "$keys/p256.pub" --follow-links
echo "status $?"
echo "== JSON"
begin >/dev/null
echo new >m/new
ckpt verify m --key "$keys/p256.pub" --json
echo "status $?"
