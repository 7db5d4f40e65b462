# SPDX-License-Identifier: Apache-2.0
# Threads, memory and a second run do not change a byte.
for j in 1 2 5; do
    mkdir $j
    ckpt convert -q -j $j --memory 1MiB "$FIXTURES"/z1_bf16_w3_groups/ckpt $j/m.safetensors
    ckpt convert -q -j $j --no-fsync "$FIXTURES"/z1_bf16_w3_groups/ckpt $j/m.pt
    cmp 1/m.safetensors $j/m.safetensors && cmp 1/m.pt $j/m.pt && echo same
done
