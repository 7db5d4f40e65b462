# SPDX-License-Identifier: Apache-2.0
# Manifests that are damaged, or lie about their place, are refused.
ckpt convert "$FIXTURES/hf_bert_sharded" m.safetensors --manifest -q
one() { printf '%s' "$1" >bad.json; ckpt verify -q m.safetensors --manifest bad.json | grep bad.json; ckpt verify -q m.safetensors --manifest bad.json >/dev/null; echo "$?"; }
z=0000000000000000000000000000000000000000000000000000000000000000
one ''
one '[]'
one '{"schema": 1}'
one '{"schema": "ckpt-manifest/2", "files": [], "tensors": []}'
one '{"schema": "ckpt-manifest/1", "files": []}'
one '{"schema": "ckpt-manifest/1", "files": [1], "tensors": []}'
one '{"schema": "ckpt-manifest/1", "files": [{"path": "../m.safetensors", "bytes": 1, "sha256": "'$z'"}], "tensors": []}'
one '{"schema": "ckpt-manifest/1", "files": [{"path": "/etc/passwd", "bytes": 1, "sha256": "'$z'"}], "tensors": []}'
one '{"schema": "ckpt-manifest/1", "files": [{"path": "a", "bytes": -1, "sha256": "'$z'"}], "tensors": []}'
one '{"schema": "ckpt-manifest/1", "files": [{"path": "a", "bytes": 1, "sha256": "'$z'0"}], "tensors": []}'
one '{"schema": "ckpt-manifest/1", "files": [{"path": "a", "bytes": 1, "sha256": "'$z'"}, {"path": "a", "bytes": 1, "sha256": "'$z'"}], "tensors": []}'
one '{"schema": "ckpt-manifest/1", "files": [], "tensors": [{"name": "a", "dtype": "F33", "shape": [], "sha256": "'$z'"}]}'
one '{"schema": "ckpt-manifest/1", "files": [], "tensors": [{"name": "a", "dtype": "F32", "shape": [9000000000000000000, 9], "sha256": "'$z'"}]}'
ckpt verify -q m.safetensors --manifest none.json
echo "$?"
printf '{' >m.safetensors.manifest.json && ckpt verify -q m.safetensors
echo "$?"
