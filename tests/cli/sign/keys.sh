# SPDX-License-Identifier: Apache-2.0
# Keys and certificates that do not sign, and outputs that are not replaced.
keys=$FIXTURES/model_signing
cp -r "$keys/model" m
chmod -R u+w m
try() {
    ckpt sign m "$@" 2>&1
    echo "status $?"
}
try
try --key "$keys/ed25519.key"
try --key "$keys/p256.pub"
try --key none.pem
try --key "$keys/p256.key" --cert "$keys/good.chain"
try --key "$keys/good.key" --cert "$keys/good.key"
try --key "$keys/past.key" --cert "$keys/past.chain"
try --key "$keys/tls.key" --cert "$keys/tls.chain"
try --key "$keys/p256.key" -o none/of/these/m.sig
ls none 2>&1
try --no-sandbox --key "$keys/p256.key" -o nor/of/these/m.sig
ls nor 2>&1
try --no-sandbox --key "$keys/past.key" --cert "$keys/past.chain" -o never/m.sig
ls never 2>&1
try --key "$keys/p256.key" --json
try --key "$keys/p256.key"
try --key "$keys/good.key" --cert "$keys/good.chain" --force
ckpt verify m --cert "$keys/good.root"
echo "== files of others"
cp "$keys/p256.key" own.key
cp "$keys/good.chain" own.chain
ln m/model.safetensors linked
find m own.* -type f -exec cksum {} + >before
for at in m/model.safetensors m/more-notes.txt own.key own.chain linked m; do
    try --key own.key --force -o "$at"
    try --key "$keys/good.key" --cert own.chain --force -o "$at"
done
ckpt sign m/model.sig --key own.key --force -o m/model.sig 2>&1
find m own.* -type f -exec cksum {} + | cmp - before
rm linked
mkdir -p m/more
for left in m/.model.sig.ckpt-a1b2c3.tmp m/more/.x.ckpt-a1b2c3.tmp; do
    touch "$left"
    try --key own.key --force
    rm "$left"
done
# before the files are hashed
touch m/.x.ckpt-a1b2c3.tmp && truncate -s 100G m/large
timeout 20 ckpt sign m --key own.key --force 2>&1
rm m/.x.ckpt-a1b2c3.tmp m/large
find m own.* -type f -exec cksum {} + | cmp - before
rmdir m/more 2>/dev/null
echo "== checking"
check() {
    ckpt verify m "$@" 2>&1
    echo "status $?"
}
check --signature m/model.sig
check --key "$keys/p256.key"
check --key "$keys/good.chain"
check --key "$keys/p256.pub" --cert "$keys/good.root"
check --key "$keys/p256.pub" --signature none.sig
check --key "$keys/p256.pub" --signature m/model.safetensors
ckpt verify m m --key "$keys/p256.pub"
echo "status $?"
ckpt sign hf://a/b --key "$keys/p256.key" -o x.sig
echo "status $?"
echo "== one file"
ckpt sign m/model.safetensors --key "$keys/p256.key"
ckpt verify m/model.safetensors --key "$keys/p256.pub"
