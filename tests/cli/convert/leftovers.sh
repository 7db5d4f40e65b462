# SPDX-License-Identifier: Apache-2.0
# What a killed run has left in the way is removed, and said; what it left beside is named.
f=$FIXTURES/z1_bf16_w2_tags/ckpt
for name in m.safetensors model; do
    mkdir -p out/.$name.ckpt-partial/new
    : >out/.$name.ckpt-partial/journal
    echo 12345 >out/.$name.ckpt-partial/new/x
done
ckpt convert "$f" out/m.safetensors | tail -1 | cut -c1-12
ckpt convert "$f" out --to hf | tail -1 | cut -c1-12
ls -A out
