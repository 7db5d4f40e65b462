# SPDX-License-Identifier: Apache-2.0
# Two runs are compared by their manifests alone, whatever their formats are.
ckpt convert "$FIXTURES/hf_bert_sharded" a --to hf --manifest -q
ckpt convert a b.npz --manifest -q && rm b.npz && touch b.npz
ckpt diff --manifest a b.npz
ckpt convert a c.safetensors --exclude '*pooler*' --dtype 'bf16:*LayerNorm*,f32:*' --manifest -q
ckpt diff --manifest a c.safetensors.manifest.json
echo "$?"
ckpt diff --manifest -q c.safetensors a | head -2
ckpt diff --manifest --json a c.safetensors | head -12
touch d.npz && ckpt diff --manifest a d.npz
ckpt diff --manifest --tol 1 a a
