# SPDX-License-Identifier: Apache-2.0
# An adapter has the names of the model in memory, its base those of the hub: stacked experts, parts under other prefixes.
for one in lora_packed lora_vlm; do
    src=$FIXTURES/$one
    ckpt convert -q "$src/base" $one --to hf --adapter "$src/adapter" && ckpt diff --tol 1e-7 "$src/want" $one
    ckpt convert -q "$src/base" twice --to hf -f --adapter "$src/adapter:0.5" --adapter "$src/adapter:0.5" && ckpt diff --tol 1e-6 "$src/want" twice
done
echo "-- an adapter of another base is still refused"
ckpt convert -q "$FIXTURES/lora_vlm/base" x --to hf --adapter "$FIXTURES/lora_packed/adapter" || echo "status $?"
ckpt convert -q "$FIXTURES/lora_packed/base" x --to hf --adapter "$FIXTURES/lora_vlm/adapter" || echo "status $?"
