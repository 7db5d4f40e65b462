# SPDX-License-Identifier: Apache-2.0
# Signatures by the package model-signing: keys, certificates, one file, parts of files; and those that nobody should accept.
signed=$FIXTURES/model_signing
try() {
    name=$1
    shift
    echo "== $name"
    ckpt verify "$signed/model" --signature "$signed/$name.sig" "$@" 2>&1
    echo "status $?"
}
try p256 --key "$signed/p256.pub"
try p384 --key "$signed/p384.pub"
try p521 --key "$signed/p521.pub"
try shards --key "$signed/p256.pub"
try good --cert "$signed/good.root"
try p256 --key "$signed/other.pub"
try good --cert "$signed/past.root"
try past --cert "$signed/past.root"
try web --cert "$signed/web.root"
try tls --cert "$signed/tls.root"
try code --cert "$signed/code.root"
try weak --cert "$signed/weak.root"
try good --key "$signed/p256.pub"
try p256 --cert "$signed/good.root"
try blake3 --key "$signed/p256.pub"
try less --key "$signed/p256.pub"
try less --key "$signed/p256.pub" --strict
try file --key "$signed/p256.pub"
echo "== one file"
ckpt verify "$signed/model/model.safetensors" --signature "$signed/file.sig" --key "$signed/p256.pub"
echo "== parts of one file"
ckpt verify "$signed/model/model.safetensors" --signature "$signed/file-shards.sig" --key "$signed/p256.pub"
