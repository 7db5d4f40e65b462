# SPDX-License-Identifier: Apache-2.0
# A run: the manifest lies in the folder of the tag, with moments, and is found from the run.
for to in zero universal dcp fsdp-ranks; do
    ckpt reshard "$FIXTURES/z1_bf16_w2_fp32acc/ckpt" "$to" --to "$to" --manifest -q
    found=$(find "$to" -name ckpt-manifest.json)
    echo "$found" "$(grep -c '"dtype"' "$found")" tensors
    ckpt manifest -q "$to" -o again.json && cmp again.json "$found"
    ckpt verify "$to" | sed 's/.*; //'
    ckpt verify -q "${found%/*}"
done
# another world, another framework: the same tensors
ckpt diff --manifest zero dcp
ckpt diff --manifest zero universal/*/ckpt-manifest.json
rm zero/*/*rank_1*optim_states.pt
ckpt verify zero 2>&1 | grep manifest
ckpt verify -q zero >/dev/null
echo "$?"
