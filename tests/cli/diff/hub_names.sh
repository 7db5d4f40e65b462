# SPDX-License-Identifier: Apache-2.0
# A run has the names of the model in memory: beside the hub's folder its tensors are compared under those that the hub has for it.
src=$FIXTURES/hub_olmoe
ckpt diff --tol 0.0003 "$src/run" "$src/hub" && ckpt diff -q --tol 0.0003 "$src/hub" "$src/run" && echo "in either order"
ckpt convert -q "$src/hub" memory.safetensors --map hf:packed
ckpt diff --json "$src/hub" memory.safetensors | grep -c '"equal": true'
echo "-- a folder with the names of memory"
ckpt convert -q memory.safetensors packed --to hf --map none --config "$src/hub" 2>&1 | grep -c warning
ckpt diff packed memory.safetensors
