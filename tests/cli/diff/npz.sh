# SPDX-License-Identifier: Apache-2.0
# npz has no BF16: its writer stores the bits as U16, which are compared as BF16 with the floats of the other side.
hf=$FIXTURES/map_meta_s1/hf
ckpt convert -q "$hf" o.npz 2>/dev/null && ckpt convert -q --dtype f32 "$hf" wide.safetensors
ckpt diff "$hf" o.npz && ckpt diff -q o.npz "$hf" && ckpt diff --ignore-dtype wide.safetensors o.npz
ckpt diff wide.safetensors o.npz | tail -n 2
ckpt verify -q o.npz --made-from "$hf" && echo proved
ckpt convert -q "$FIXTURES"/map_meta_s1/meta other.npz --map meta-llama:hf --size heads=1 2>/dev/null
ckpt diff "$hf" other.npz; echo "exit status $?"
